"""The features behind the gap add up to it; reasons of people are in the page only if they are asked for."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble
from evenout.report import collect, render

HOSTILE = "</script><img src=x onerror=alert(1)>{{ 7*7 }}"


@pytest.fixture(scope="module")
def credit_like(date):
    rng = np.random.default_rng(0)
    n = 700
    group = np.where(rng.random(n) < 0.5, "a", "b")
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["calm", "wide", HOSTILE])
    X["wide"] *= np.where(group == "a", 3.0, 1.0)
    model = FairOutlierEnsemble(alpha=300.0, random_state=0).fit(X, sensitive_features=group)
    return model, {"X": X, "sensitive_features": group, "date": date}, group


def test_the_features_behind_the_gap_add_up_to_it(credit_like):
    model, given, group = credit_like
    gap = collect(model, **given).parts["why"]
    assert (gap.high, gap.low, gap.rows) == ("a", "b", 700)
    for scores, total, which in ((model.target_, gap.base, 2), (model.outlier_scores_, gap.fair, 3)):
        expected = scores[group == "a"].mean() - scores[group == "b"].mean()
        assert total == pytest.approx(expected, abs=1e-9)
        assert sum(feature[which] for feature in gap.features) == pytest.approx(expected, abs=1e-9)
    name, _, base, fair = gap.features[0]
    assert name == "wide"
    assert fair < base


def test_values_of_people_are_shown_only_if_reasons_are_asked_for(credit_like):
    model, given, _ = credit_like
    plain = collect(model, **given)
    assert plain.parts["reasons"] is None
    assert 'data-test="reasons"' not in render(plain)
    told = collect(model, **given, reasons=2)
    lists = told.parts["reasons"]
    assert len(lists["stay"]) == 20
    assert lists["stay"][0].rank_now < lists["stay"][1].rank_now
    best = int(np.argmax(np.where(model.target_ > np.percentile(model.target_, 90), model.outlier_scores_, -np.inf)))
    assert lists["stay"][0].id == str(best)
    first = model.explain(given["X"].iloc[[best]], n_reasons=2, rows="people")
    assert lists["stay"][0].reasons == tuple(first.texts(0)[: first.n_given(0)])
    page = render(told)
    assert page.count('data-test="reasons"') == sum(len(people) for people in lists.values())
    assert HOSTILE not in page
    assert "&lt;/script&gt;&lt;img" in page


def test_nobody_is_named_where_few_enter_or_leave(credit_like):
    model, given, _ = credit_like
    guarded = collect(model, **given, reasons=1).parts["reasons"]
    shown = collect(model, **given, reasons=1, show_small_cells=True).parts["reasons"]
    moved = int(((model.target_ > np.percentile(model.target_, 90)) != (model.predict(given["X"]) == -1)).sum())
    assert len(shown["enter"]) + len(shown["leave"]) == moved
    for which in ("enter", "leave"):
        assert len(guarded[which]) == (len(shown[which]) if len(shown[which]) >= 10 else 0)
    assert all(person.group is None for person in guarded["stay"])
    assert all(person.group in ("a", "b") for person in shown["stay"])


def test_a_model_without_a_background_has_a_page_without_the_panel(credit_like):
    model, given, _ = credit_like
    old = FairOutlierEnsemble(**model.get_params())
    old.__dict__.update(model.__dict__ | {"_result": replace(model._result, background=None)})
    data = collect(old, **given)
    assert data.parts["why"] is None
    assert "Which features make the gap" not in render(data)
