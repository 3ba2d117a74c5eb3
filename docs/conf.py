"""The documentation site: ``sphinx-build -W --keep-going -b html docs docs/_build/html``; it asks no other host."""

import sys
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import evenout

project = "evenout"
author = "The evenout developers"
version = release = evenout.__version__
project_copyright = author

extensions = [
    "docstrings",
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "examples"]
templates_path = ["_templates"]
default_role = "py:obj"
highlight_language = "none"
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types and shapes are in the docstrings
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "evenout"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = html_favicon = "_static/mark.svg"
html_math_renderer = "mathml"
html_show_sourcelink = html_copy_source = html_use_index = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#005b8f", "color-brand-content": "#005b8f"},
    "dark_css_variables": {"color-brand-primary": "#7cc4f0", "color-brand-content": "#7cc4f0"},
}

_ORDER = (
    *("idea", "credit", "tradeoff", "reasons", "given", "age", "attributes", "outcomes", "individual"),
    *("audit", "vendor", "repair", "watch", "fraud_desk", "drift", "detectors"),
)

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "within_subsection_order": ExplicitOrder([f"plot_{name}.py" for name in _ORDER]),
    "backreferences_dir": "gallery/uses",
    "doc_module": ("evenout",),
    "reset_modules": ("matplotlib", "gallery_state.prepare"),
    "abort_on_example_error": True,
    "capture_repr": (),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 60,
}
