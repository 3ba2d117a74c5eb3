"""Prepare docstrings for the API reference.

Docstrings set formulas apart by indenting them, as one reads them in an editor. reStructuredText would run such lines
together as a quotation, so they are marked as literal text. What estimators and warnings inherit from scikit-learn and
Python is left to their own documentation.
"""

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import inspect
from sphinx.util.typing import ExtensionMetadata

_FOREIGN = re.compile(r"set_\w+_request|get_metadata_routing|set_output|add_note|with_traceback")


def keep_lines(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Put ``::`` before every indented paragraph that follows an unindented one after a blank line."""
    kept: list[str] = []
    for place, line in enumerate(lines):
        opens = line.startswith("    ") and place >= 2 and not lines[place - 1]
        before = next((text for text in reversed(lines[:place]) if text), "")
        if opens and before and not before.startswith((" ", ":", "..")) and not before.endswith("::"):
            kept += ["::", ""]
        kept.append(line)
    lines[:] = kept


def skip_foreign(_app: Sphinx, _what: str, name: str, _object: Any, _skip: bool, _options: Any) -> bool | None:
    """Leave out ``set_fit_request`` and its kin."""
    return True if _FOREIGN.fullmatch(name) else None


def show_parameters(
    _app: Sphinx, what: str, _name: str, object_: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Show the parameters of ``__init__`` where ``__new__`` takes anything."""
    if what != "class" or signature != "(*args, **kwargs)":
        return None
    parameters = inspect.signature(object_.__init__, bound_method=True)
    return inspect.stringify_signature(parameters, show_annotation=False, show_return_annotation=False), returns


def setup(app: Sphinx) -> ExtensionMetadata:
    """Work on docstrings before napoleon does."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", keep_lines, priority=100)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-signature", show_parameters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
