"""The page to hand over: what it says, that nothing in the data can act, and that a browser asks for nothing."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, Groups, audit

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "\u202eevil\n\x1b[31m", "</style><b>"]
DATE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
FEW = {"resamples": 200}


@pytest.fixture(scope="module")
def hostile():
    rng = np.random.default_rng(0)
    groups = pd.DataFrame({"</title>a": rng.choice(HOSTILE, 800), "b": rng.choice(["x", "y"], 800)})
    scores = rng.normal(size=800) + (groups["b"] == "x")
    given = pd.Series(rng.choice(["<i>1", "2"], 800), name="<u>")
    return audit(scores, sensitive_features=groups, given=given, labels=rng.integers(0, 2, 800), **FEW)


@pytest.fixture(scope="module")
def page(hostile):
    return hostile.to_html(tables=("hiring", "lending", "strata"), title="<i>T</i>", source="<b>f.csv", date=DATE)


def test_the_page_has_findings_answers_figures_method_and_origin(hostile, page):
    for words in ("What was found", "Questions and answers", "Could have been seen", "Between groups", "Method",
                  "It cannot say", "SHA-256", "2026-01-02 03:04 UTC", "numpy", "29 CFR 1607.4 D", "FFIEC", "Mantel",
                  "What it does not establish"):  # fmt: skip
        assert words in page, words
    assert f"{hostile.get('flag_rate_ratio').value:.3g}" in page
    assert page == hostile.to_html(
        tables=("hiring", "lending", "strata"), title="<i>T</i>", source="<b>f.csv", date=DATE
    )


def test_nothing_in_the_data_can_act(page):
    assert not re.search(r"<script|<img|<iframe|<a |onerror=[^&]*>", page.replace("&lt;", "").replace("&#34;", ""))
    assert "<i>T" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert page.count("</style>") == 1
    assert "script-src &#39;none&#39;" in page
    assert "http://" not in page
    assert "https://" not in page


def test_a_flag_rate_that_is_not_known_is_a_dash(hostile):
    first, rates = hostile.group_names[0], {"value": np.nan, "low": np.nan, "high": np.nan}
    measures = (replace(m, **rates) if (m.measure, m.group) == ("flag_rate", first) else m for m in hostile.measures)
    unknown = replace(hostile, measures=tuple(measures))
    for page in (unknown.to_html(), unknown._repr_html_()):
        assert "<td>–</td><td></td>" in page
        assert not re.search(r"\bnan\b", page)


def test_cannot_tell_is_said_with_what_would_have_been_seen():
    rng = np.random.default_rng(1)
    calm = audit(rng.normal(size=300), sensitive_features=rng.choice(["a", "b"], 300), **FEW)
    page = calm.to_html()
    row = re.search(r'<tr class="open"><th scope="row">Do the groups.*?</tr>', page, re.S).group()
    assert "<td>cannot tell</td>" in row
    assert "standard deviations" in row


def test_the_digest_is_that_of_the_data():
    rng = np.random.default_rng(1)
    scores, groups = rng.normal(size=100), np.repeat(["a", "b"], 50)
    few = {"resamples": 0}
    pages = [audit(s, sensitive_features=groups, **few).to_html(date=DATE) for s in (scores, scores, scores + 1)]
    found = [re.search(r"<code>([0-9a-f]{64})</code>", page).group(1) for page in pages]
    assert found[0] == found[1] != found[2]


def test_attributes_by_themselves_share_one_page():
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"sex": rng.choice(["f", "m"], 400), "region": rng.choice(["n", "s"], 400)})
    each = audit(rng.normal(size=400), sensitive_features=people, groups=Groups(cross=False), **FEW)
    page = each.to_html(tables=["hiring"])
    assert "What was found by sex" in page
    assert "What was found by region" in page
    assert page.count("Rates against the best-off group") == 1


def test_saving_is_whole_or_not_at_all(hostile, tmp_path):
    hostile.save(tmp_path / "audit.html", tables=["hiring"])
    assert (tmp_path / "audit.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(ValueError, match="is no table"):
        hostile.save(tmp_path / "other.html", tables=["nonsense"])
    assert [file.name for file in tmp_path.iterdir()] == ["audit.html"]


def test_notebooks_show_audit_path_and_model(hostile):
    shown = hostile._repr_html_()
    assert "<table>" in shown
    assert "<script" not in shown
    rng = np.random.default_rng(0)
    groups = rng.choice(HOSTILE[:2], 200)
    model = FairOutlierEnsemble("precomputed", alpha=1.0)
    before = model._repr_mimebundle_()["text/html"]
    model.fit(rng.random((200, 3)), sensitive_features=groups)
    after = model._repr_mimebundle_()["text/html"]
    assert "fair score" not in before
    assert "flagged: &lt;script&gt;" in after
    assert "<script>alert" not in after
    assert model._repr_html_() == after or "fair score" in model._repr_html_()
    assert model.path_._repr_html_().count("<tr>") >= 10


@pytest.mark.browser
def test_a_browser_opens_it_without_a_request_or_a_complaint(browser, page, tmp_path):
    file = tmp_path / "audit.html"
    file.write_text(page, encoding="utf-8")
    for width, scheme in ((1280, "light"), (390, "dark")):
        tab = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
        said, asked = [], []
        tab.on("console", lambda message, said=said: said.append(message.text))
        tab.on("pageerror", lambda error, said=said: said.append(str(error)))
        tab.on("request", lambda request, asked=asked: asked.append(request.url))
        tab.goto(file.as_uri())
        assert said == []
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, "the page itself never scrolls sideways"
        back = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", back)[:3])) < 150) == (scheme == "dark")
        tab.close()


@pytest.mark.browser
def test_on_paper_no_table_is_cut(browser, tmp_path):
    """200 groups: in print nothing scrolls, and no table is wider than its page."""
    rng = np.random.default_rng(0)
    groups = rng.choice([f"a rather long name of group {i:03d}" for i in range(200)], 8000)
    result = audit(rng.normal(size=8000), sensitive_features=groups, resamples=0, groups=Groups(min_size=5))
    result.save(tmp_path / "audit.html", tables=["hiring", "lending"])
    tab = browser.new_page(viewport={"width": 718, "height": 1000})  # A4 less its margins, in CSS pixels
    tab.emulate_media(media="print")
    tab.goto((tmp_path / "audit.html").as_uri())
    cut = tab.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    )
    assert cut == 0
    assert tab.evaluate("[...document.querySelectorAll('table')].filter(e => e.offsetWidth > 720).length") == 0
    tab.close()
