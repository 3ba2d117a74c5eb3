import json
import re

import numpy as np
import pandas as pd
import pytest

from evenout.reproduce import reproduce
from evenout.reproduce.claims import judge
from evenout.reproduce.experiment import compare_searches
from evenout.reproduce.figures import count

DATA = ["breastw"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("reproduce") / "results"
    reproduce(out, datasets=DATA, repeats=1, seed=0)
    return out


def contents(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


@pytest.mark.long
def test_one_seed_gives_the_same_bytes_on_any_number_of_threads(folder, tmp_path):
    reproduce(tmp_path / "again", datasets=DATA, repeats=1, seed=0, n_threads=2)
    first, second = contents(folder), contents(tmp_path / "again")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == ["run.json"]


@pytest.mark.long
def test_another_seed_gives_other_points(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("evenout.reproduce.figures.plan", lambda _: [])
    monkeypatch.setattr("evenout.reproduce.page.render", lambda *_, **__: "")
    reproduce(tmp_path / "other", datasets=DATA, repeats=1, seed=1)
    first, second = (pd.read_csv(out / "points.csv") for out in (folder, tmp_path / "other"))
    assert first.shape == second.shape
    assert (first["f2"] != second["f2"]).mean() > 0.99


def test_every_figure_is_there_as_png_and_svg(folder):
    names = {f.stem for f in (folder / "figures").iterdir()}
    assert {
        f"{kind}_{fairness}_supplement"
        for kind in ("distance", "auc", "scale_free", "cost")
        for fairness in ("group", "individual")
    } < names
    assert len(names) == count(DATA) == 10
    for name in names:
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / "figures" / f"{name}.svg").read_text()


def test_run_json_tells_how_to_run_again(folder):
    run = json.loads((folder / "run.json").read_text())
    assert set(run["versions"]) >= {"evenout", "python", "numpy", "scipy", "scikit-learn", "numba"}
    assert run["settings"] == {"datasets": DATA, "repeats": 1, "seed": 0, "quick": False, "n_threads": 1}
    assert run["seconds"]["breastw"] > 0
    written = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}
    assert set(run["files"]) | {"run.json"} == written
    claims = judge(pd.read_csv(folder / "points.csv"))
    assert [c["verdict"] for c in run["claims"]] == [c.verdict for c in claims]


def test_the_page_holds_the_verdicts_and_asks_for_nothing(folder):
    page = (folder / "index.html").read_text(encoding="utf-8")
    for claim in judge(pd.read_csv(folder / "points.csv")):
        assert f'<th scope="row">{claim.id}' in page
        assert f">{claim.verdict}</span>" in page
    assert "<script" not in page
    assert not re.search(r"https?://|//[a-z]+\.[a-z]+/|@import|url\((?!#)", page)
    assert set(re.findall(r'(?:src|href)="([^"#]+)"', page)) <= {"data:,", "points.csv", "run.json"} | {
        f"figures/{f.name}" for f in (folder / "figures").iterdir()
    }
    assert page.count("<svg") == 10
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert {
        target.removeprefix("#")
        for target in re.findall(r'href="(#[^"]+)"|url\((#[^)]+)\)', page)
        for target in target
        if target
    } <= set(ids)
    assert "Undefined" not in page
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL).split()


def test_progress_counts_to_its_total(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("evenout.reproduce.figures.PaperFigure.save", lambda *_: None)
    monkeypatch.setattr("evenout.reproduce.page.render", lambda *_, **__: "")
    reproduce(tmp_path / "out", datasets=["pima"], repeats=1, progress=lambda *step: seen.append(step))
    done, totals = [step[1] for step in seen], {step[2] for step in seen}
    assert len(totals) == 1
    assert done == sorted(done)
    assert done[-1] == totals.pop()


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    def stop(*step):
        if step[1] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path / "out", datasets=DATA, repeats=1, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_unknown_data_sets_are_named_with_the_known_ones(tmp_path):
    with pytest.raises(
        ValueError, match=r"datasets has 'credit', 'x'; .*communities, german, annthyroid, cardio, vowels"
    ):
        reproduce(tmp_path / "out", datasets=["pima", "credit", "x"])
    with pytest.raises(ValueError, match="datasets has nothing"):
        reproduce(tmp_path / "out", datasets=[])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("wrong", "message"), [({"repeats": 0}, "repeats is 0"), ({"seed": -1}, "seed is -1")])
def test_numbers_out_of_range_are_refused(tmp_path, wrong, message):
    with pytest.raises(ValueError, match=message):
        reproduce(tmp_path / "out", datasets=DATA, **wrong)


def test_a_file_in_place_of_the_folder_is_refused_before_any_work(tmp_path):
    out = tmp_path / "out"
    out.write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        reproduce(out, datasets=DATA, progress=lambda *_: pytest.fail("work was begun"))
    assert out.read_text() == "mine"


def test_neighbour_searches_disagree_on_breast_cancer_through_lof_alone():
    ties = compare_searches(0, 1).set_index(["base", "search"])["auc"]
    assert ties["average"].between(0.97, 0.99).all()
    assert ties["maximum"][["kd_tree", "ball_tree", "brute"]].nunique() == 3
    assert np.ptp(ties["average"]) < 0.005


@pytest.mark.browser
def test_the_page_opens_in_a_browser_without_request_or_error(folder, browser):
    errors, requests = [], []
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((folder / "index.html").as_uri())
        assert page.title() == "Fairness-aware Outlier Ensemble, reproduced"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("figure svg").count() == 10
        assert page.evaluate(
            "[...document.querySelectorAll('figure svg')].every(s => s.getBoundingClientRect().height > 100)"
        )
    assert errors == []
    assert [url for url in requests if not url.startswith(("file://", "data:"))] == []
