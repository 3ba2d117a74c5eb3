import base64
import hashlib
import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from evenout import FairOutlierEnsemble
from evenout.report import collect, render, write_report

HOSTILE = "</script><script>alert(1)</script><!-- \"'`\n\r\u2028\u2029 <img src=x onerror=alert(1)> {{ 7*7 }} &lt;"


class Page(HTMLParser):
    """Elements with their attributes, and the text inside each script and title."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.title = [], [], ""
        self.open = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open = tag if tag in ("script", "title") else self.open
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.open = None if tag == self.open else self.open

    def handle_data(self, data):
        if self.open == "script":
            self.scripts[-1] += data
        elif self.open == "title":
            self.title += data


@pytest.fixture(scope="module")
def page(data):
    return Page(render(data))


def hostile_case(make):
    case = make(sizes=(60, 50, 40), k=3)
    names = case.sensitive.replace({"f": f"f{HOSTILE}", "m": '=cmd|"x"'})
    model = FairOutlierEnsemble(
        [(f"d{j}{HOSTILE}", lambda X, j=j: X[:, j]) for j in range(3)], alpha=50.0, random_state=0
    ).fit(case.X, sensitive_features=names)
    return model, case, names


def test_hostile_names_stay_text(make, date):
    model, case, names = hostile_case(make)
    ids = [f"{HOSTILE}{row}" for row in range(150)]
    text = {"title": f"T{HOSTILE}", "source": HOSTILE, "input_sha256": HOSTILE, "model_sha256": HOSTILE}
    data = collect(model, X=case.X, sensitive_features=names, ids=ids, date=date, show_small_cells=True, **text)
    page = Page(render(data))
    assert len(page.scripts) == 3
    assert not [tag for tag, _ in page.elements if tag == "img"]
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert page.title.startswith("T</script><script>alert(1)")
    payload = json.loads(page.scripts[0])
    assert [group["name"][:12] for group in payload["groups"]] == ['sex==cmd|"x"', "sex=f</scrip", "sex=f</scrip"]
    assert payload["detectors"][0].startswith("d0</script>")
    assert {person["id"][:20] for person in payload["people"]} == {HOSTILE[:20]}
    assert "\u2028" not in page.scripts[0]
    assert "49" not in page.title  # templates in names are not run


def test_page_fetches_nothing_and_runs_nothing_else(page):
    for tag, attrs in page.elements:
        assert "src" not in attrs
        assert attrs.get("href", "#").startswith(("#", "data:")), (tag, attrs)
    (policy,) = [attrs["content"] for _, attrs in page.elements if "http-equiv" in attrs]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for script in page.scripts[1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe-eval" not in policy


def test_numbers_in_the_page_are_those_of_the_data(data, page):
    payload = json.loads(page.scripts[0])
    for step, shown in zip(data.steps, payload["steps"], strict=True):
        assert shown["score"]["bias"] == pytest.approx(step.score.bias, rel=1e-5)
        np.testing.assert_allclose(shown["score"]["flags"]["rates"], step.score.flags.rates, rtol=1e-5)
        assert shown["moves"]["listed"] == list(step.moves.listed)


def test_page_reads_without_scripts_and_without_sight(page):
    tags = [tag for tag, _ in page.elements]
    assert tags.count("noscript") == 1
    assert tags.count("h1") == 1
    assert {"header", "main", "footer"} <= set(tags)
    charts = [attrs for _, attrs in page.elements if attrs.get("class") == "chart"]
    assert len(charts) == 6
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in charts)
    assert tags.count("table") >= 5
    labelled = {attrs.get("for") for tag, attrs in page.elements if tag == "label"}
    assert "alpha" in labelled
    assert [attrs for _, attrs in page.elements if attrs.get("aria-live") == "polite"]


def test_page_carries_its_origin(case):
    text = render(case.collect(source="people.csv", input_sha256="a1" * 32, model_sha256="b2" * 32))
    for part in ("people.csv", "a1" * 32, "b2" * 32, "2026-01-02 03:04 UTC", "contamination", "scikit-learn"):
        assert part in text
    assert "What this page can and cannot tell you" in text


def test_words_about_labels_fit_the_case(case, data):
    assert "never in fitting" in render(data)
    assert "No labels were given" in render(case.collect(labels=None))


def test_page_says_who_has_not_seen_the_unseen_and_what_the_bars_are(data):
    given, refitted = render(data), render(replace(data, refitted=True))
    assert "what gave the scores may have seen them" in given
    assert "scored by what was learnt without them: detectors, base score and weights" in refitted
    assert "unseen by the weights alone" not in refitted
    assert "the score is a weighted sum of 5 detectors" in given
    added = render(replace(data, weights_of_sum=False, left_out_groups=("x & <y>",)))
    assert "the base score plus a weighted sum of 5 detectors" in added
    assert "Too few people to compare: x &amp; &lt;y&gt;. They are scored" in added
    assert "Too few people" not in given


def test_same_data_give_the_same_bytes(case, tmp_path, date):
    given = {"X": case.X, "sensitive_features": case.sensitive, "labels": case.y, "date": date}
    first = write_report(case.model, tmp_path / "a.html", **given)
    second = write_report(case.model, tmp_path / "b.html", **given)
    assert first.read_bytes() == second.read_bytes()


def test_failure_leaves_the_old_page(case, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(ValueError, match="fitted on"):
        write_report(case.model, path, X=case.X[:9], sensitive_features=case.sensitive[:9])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match="folder"):
        write_report(case.model, tmp_path, X=case.X, sensitive_features=case.sensitive)


@pytest.mark.long
def test_million_rows_stay_below_six_megabytes(tmp_path):
    n = 1_000_000
    rng = np.random.default_rng(0)
    number = rng.integers(0, 30, n)
    X = rng.gamma(2.0, 1.0, (n, 3)) * (1 + 0.02 * number[:, None])
    groups = number.astype(str)
    model = FairOutlierEnsemble("precomputed", combination="average", alpha=1e6, random_state=0)
    model.fit(X, sensitive_features=groups)
    ids = np.full(n, "x" * 200, dtype=object)
    path = write_report(model, tmp_path / "report.html", X=X, sensitive_features=groups, ids=ids)
    assert 1_000_000 < path.stat().st_size < 6_000_000
    assert "Listed are the 1,000 people" in path.read_text()


def test_a_score_that_has_learnt_says_so(data):
    page = render(replace(data, label_gap=(0.0494, 0.0263)))
    assert "its gap on the training rows was 0.0494 before and is 0.0263 after" in page
    assert "never in fitting" not in page
    assert "has learnt from labels" not in render(data)


def test_flag_rates_of_unseen_people_stand_apart_from_those_of_training_rows(case, data):
    text, (low, high) = render(data), case.model.flag_rate_ratio_interval_
    ratio = f"the lowest flag rate is {case.model.flag_rate_ratio_:.2f} of the highest"
    assert f"Unseen people, at the chosen setting: {ratio} (95% interval {low:.2f} to {high:.2f})" in text
    assert "Lowest ÷ highest flag rate, in training" in text
    assert "In training, lowest over highest flag rate: " in text
