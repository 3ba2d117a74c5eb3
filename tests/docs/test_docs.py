"""The documentation says what happens: every snippet runs, every link leads somewhere, every page opens by itself."""

import doctest
import importlib
import io
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from evenout.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
SLOW = ("start.md", "audit.md", "reproduction.md", "reasons.md", "choosing.md", "blind-or-aware.md")
OUT_OF_CORE = "scale.md"  # its snippets are about files that a test has to make first

FENCE = re.compile(r"^(```+)([^\n]*)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)>\s]+)>?\)")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# What sticks out of the screen and lies in nothing that scrolls by itself; the theme hides it, so it could not be read.
STICKS_OUT = """
() => [...document.querySelectorAll("article *")].filter((element) => {
  if (element.getBoundingClientRect().right <= window.innerWidth + 1) return false;
  for (let box = element.parentElement; box.tagName !== "ARTICLE"; box = box.parentElement)
    if (getComputedStyle(box).overflowX !== "visible") return false;
  return true;
}).map((element) => element.outerHTML.slice(0, 80))
"""


def snippets(page):
    """Language, text and line of every fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    return [(m[2].strip(), m[3], text[: m.start()].count("\n") + 2) for m in FENCE.finditer(text)]


def run_python(code, names, where):
    """Run a session with prompts, in the names of the page so far."""
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    session = doctest.DocTestParser().get_doctest(code, names, *where)
    report = io.StringIO()
    failed = runner.run(session, out=report.write, clear_globs=False).failed
    names.update(session.globs)
    assert not failed, report.getvalue()


def run_console(text, where):
    """Run each ``$ evenout ...`` and compare what it prints with what is shown below it."""
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        program, *arguments = shlex.split(command, comments=True)
        assert program == "evenout", f"{where}: only evenout is run here, not {program}"
        result = CliRunner(env={"COLUMNS": "80"}).invoke(main, arguments)
        assert result.exit_code == 0, f"{where}: {command}\n{result.output}"
        same = doctest.OutputChecker().check_output(shown, result.output, FLAGS)
        assert same, f"{where}: {command}\nshown:\n{shown}\nprinted:\n{result.output}"


def runnable():
    for page in PAGES:
        if page.name != OUT_OF_CORE and any(kind in ("pycon", "console") for kind, _, _ in snippets(page)):
            marks = [pytest.mark.long] if page.name in SLOW else []
            yield pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", list(runnable()))
def test_snippets_of_a_page_give_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(DOCS / "extending")
    names = {"__name__": "__main__"}
    for language, text, line in snippets(page):
        if language == "pycon":
            run_python(text, names, (page.name, str(page), line))
        elif language == "console":
            run_console(text, f"{page.name}:{line}")


def test_every_block_is_run_or_is_no_code():
    for page in PAGES:
        for language, text, line in snippets(page):
            where = f"{page.name}:{line}"
            if language.startswith("{") or page.name == OUT_OF_CORE:
                continue
            assert language in ("pycon", "console", "sh", "text", ""), f"{where}: {language!r} would not be run"
            if language in ("text", ""):
                assert not re.search(r"^(\$|>>>|evenout|pip|python) ", text, re.MULTILINE), f"{where} runs nowhere"


def test_installation_lines_name_extras_that_exist():
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for page in PAGES:
        for language, text, line in snippets(page):
            for command in text.splitlines() if language == "sh" else ():
                assert command.startswith("pip install "), f"{page.name}:{line}: {command}"
                named = {name for names in re.findall(r"\[([\w,]+)\]", command) for name in names.split(",")}
                assert named <= extras, f"{page.name}:{line}: {command}"


def slugs(page):
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def source_of(target, page):
    """The file that a link leads to; the gallery's pages come from its scripts."""
    made = re.fullmatch(r"gallery/(plot_[a-z_]+)\.rst", target)
    return DOCS / "examples" / f"{made[1]}.py" if made else page.parent / target


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page):
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        source = source_of(target, page) if target else page
        assert source.exists(), f"{page.name} links to {link}"
        if anchor and source.suffix == ".md":
            assert anchor in slugs(source), f"{page.name} links to {link}"


def test_every_page_is_in_the_contents():
    contents = "\n".join(text for kind, text, _ in snippets(DOCS / "index.md") if kind == "{toctree}")
    listed = set(re.findall(r"^(?:.+ <)?([\w-]+)>?$", contents, re.MULTILINE))
    assert {page.stem for page in PAGES} - {"index"} <= listed


@pytest.mark.parametrize("name", ["", ".auditing", ".datasets", ".displays", ".metrics", ".persistence", ".reasons"])
def test_public_names_are_in_the_reference(name):
    public = importlib.import_module(f"evenout{name}").__all__
    listed = set(re.findall(r"^   (?:\w+\.)*(\w+)$", (DOCS / "api.rst").read_text(), re.MULTILINE))
    assert set(public) - {"__version__"} <= listed


def parquet_folder(folder, rows, seed):
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for part in range(2):
        frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["a", "b", "c"])
        frame["sex"] = rng.choice(["f", "m"], rows)
        frame["a"] += frame["sex"] == "m"
        frame.insert(0, "id", np.arange(part * rows, (part + 1) * rows))
        frame.to_parquet(folder / f"{part}.parquet")


@pytest.mark.long
def test_snippets_past_one_machine_run(tmp_path):
    pytest.importorskip("dask.dataframe")
    parquet_folder(tmp_path / "data", 600, 0)
    parquet_folder(tmp_path / "new", 100, 1)
    blocks = snippets(DOCS / OUT_OF_CORE)
    scripts = [text for language, text, _ in blocks if language == "python"]
    lines = [line for language, text, _ in blocks if language != "python" for line in text.splitlines()]
    commands = [line for line in lines if line.startswith("evenout ")]
    assert scripts
    assert commands
    for command in commands:
        arguments = shlex.split(command, comments=True)[1:]
        if "--scheduler" in arguments or "cuda" in arguments:  # which is not here; it must still be understood
            with click.Context(main) as context:
                main.get_command(context, arguments[0]).make_context(arguments[0], arguments[1:])
        else:
            run_process(["-m", "evenout", *arguments], tmp_path)
    for script in scripts:
        guarded = "if __name__ == '__main__':\n" + re.sub(r"^", "    ", script, flags=re.MULTILINE)
        (tmp_path / "snippet.py").write_text(guarded)
        run_process(["snippet.py"], tmp_path)


def run_process(arguments, folder):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built from a copy, so that no file of an earlier build helps; warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    made = shutil.ignore_patterns("_build", "gallery", "api", "__pycache__")
    shutil.copytree(DOCS, folder / "docs", ignore=made)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, folder)
    run_process(["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", "html"], folder)
    return folder / "html"


@pytest.mark.long
def test_site_is_built_without_a_warning(site):
    built = {path.stem for path in site.glob("*.html")}
    assert {page.stem for page in PAGES} <= built
    examples = {path.stem for path in (DOCS / "examples").glob("plot_*.py")}
    assert examples <= {path.stem for path in (site / "gallery").glob("*.html")}


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("width", [1440, 390])
def test_pages_open_alone_and_fit_the_screen(site, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    faults = []
    page.on("console", lambda message: faults.append((page.url, message.text)))
    page.on("pageerror", lambda error: faults.append((page.url, str(error))))
    page.on("request", lambda request: faults.append((page.url, request.url)) if outside(request) else None)
    paths = sorted(site.rglob("*.html"))
    assert len(paths) > len(PAGES)
    for path in paths:
        page.goto(path.as_uri())
        faults += [(page.url, f"sticks out: {element}") for element in page.evaluate(STICKS_OUT)]
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if wide > 0:
            faults.append((page.url, f"{wide} px too wide"))
        for image in page.locator("img").all():
            image.evaluate("image => { image.loading = 'eager'; return image.decode(); }")
    page.close()
    assert faults == []


def outside(request):
    return not request.url.startswith(("file:", "data:"))
