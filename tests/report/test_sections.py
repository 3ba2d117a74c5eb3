"""A section of the page is one file, and one line in the list of sections."""

from dataclasses import dataclass

import pytest

from evenout.report import page, render
from evenout.report.people import Fitted, Section

# The whole file of a section begins here.

TEMPLATE = """\
<section class="panel" aria-labelledby="top-title">
<h2 id="top-title">The most unusual</h2>
<p>{{ part.name }}, of {{ "{:,}".format(data.rows) }} people.</p>
</section>
"""


@dataclass(frozen=True)
class Top:
    name: str


def collect_top(fitted: Fitted) -> Top | None:
    """The person with the highest fair score, where small cells may be shown."""
    if fitted.people.smallest:
        return None
    return Top(fitted.people.name(int(fitted.scores[1].argmax()))[0])


# It ends here; below is the line.


@pytest.fixture
def with_top(monkeypatch):
    monkeypatch.setattr(page, "SECTIONS", (*page.SECTIONS, (Section("top", collect_top, TEMPLATE),)))


@pytest.mark.usefixtures("with_top")
def test_a_section_is_one_file_and_one_line(case):
    shown = case.collect(show_small_cells=True, ids=[f"<b>{i}" for i in range(len(case.y))])
    text = render(shown)
    name = f"&lt;b&gt;{case.model.outlier_scores_.argmax()}, of 1,000 people."
    assert f'<h2 id="top-title">The most unusual</h2>\n<p>{name}</p>' in text
    assert "<b>0" not in text
    assert text.index('id="top-title"') > text.index('id="origin-title"')


@pytest.mark.usefixtures("with_top")
def test_a_section_with_nothing_to_show_is_left_out(case):
    data = case.collect()
    assert data.parts["top"] is None
    assert "top-title" not in render(data)
