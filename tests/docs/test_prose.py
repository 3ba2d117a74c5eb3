"""The prose of the documents: a purpose for each page, short sentences where people begin, no spelling mistakes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TUTORIALS = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("start.md", "idea.md", "production.md"))]
FENCE = re.compile(r"^(```+|:::+).*?^\1$", re.DOTALL | re.MULTILINE)
INCLUDES = ("changelog", "contributing", "security")
LONGEST = 30  # words of a sentence


def paragraphs(page):
    """Blocks of prose of a page: no code, no table, no heading, no picture."""
    text = re.sub(r"<!--.*?-->", "", FENCE.sub("\n\n", page.read_text(encoding="utf-8")), flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=- |\d+\. )", text):
        lines = [line for line in block.splitlines() if not re.match(r"\s*(#|\||!\[|:|```)", line)]
        if lines:
            yield " ".join(line.strip() for line in lines)


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in INCLUDES], ids=lambda page: page.stem)
def test_a_page_begins_with_a_title_and_its_purpose(page):
    title, _, rest = page.read_text(encoding="utf-8").lstrip().partition("\n")
    assert title.startswith("# ")
    first = rest.strip().split("\n\n")[0]
    assert re.match(r"[A-Z`*\"]", first), f"{page.name} opens with {first[:60]!r}, not with a sentence"
    assert first.rstrip("*").rstrip().endswith((".", ":", "?")), f"{page.name} opens with {first[-60:]!r}"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_sentences_where_people_begin_are_short(page):
    plain = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", paragraph)) for paragraph in paragraphs(page)
    ]
    sentences = [sentence for text in plain for sentence in re.split(r"(?<=[.!?:])[\"*)]*\s+", text)]
    long = [sentence for sentence in sentences if len(sentence.split()) > LONGEST]
    assert long == []


def test_words_are_spelt_right():
    files = [str(path) for path in [*PAGES, *ROOT.glob("*.md"), *(ROOT / "docs" / "examples").glob("*.py")]]
    done = subprocess.run([sys.executable, "-m", "codespell_lib", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_prose_linter_has_nothing_to_say(tmp_path):
    """proselint, without its rules of typography, which are about print."""
    for page in [*PAGES, ROOT / "README.md"]:
        prose = "\n\n".join(re.sub(r"`[^`]*`", "code", text) for text in paragraphs(page))
        (tmp_path / page.name).write_text(prose, encoding="utf-8")
    command = [sys.executable, "-m", "proselint", "check", *map(str, sorted(tmp_path.glob("*.md")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stdout.splitlines() if ": typography." not in line] == []
