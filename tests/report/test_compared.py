"""The panel that says whom a fit compares: strata, a number, each attribute, known outcomes, probable groups."""

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, GroupProbabilities, Groups, audit
from evenout.report.compared import nice_ticks
from evenout.report.page import collect, render

pytestmark = pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 400
    age, sex = rng.uniform(20, 70, n), rng.choice(["f", "m"], n)
    product = np.where(rng.random(n) < np.where(sex == "f", 0.7, 0.3), "loan", "card")
    X = rng.normal(size=(n, 3)) * np.where(product == "loan", 2.0, 1.0)[:, None]
    return X, pd.DataFrame({"age": age, "sex": sex}), pd.Series(product, name="product")


def collected(X, sensitive, given=None, labels=None, smallest=False, **settings):
    model = FairOutlierEnsemble(alpha=5.0, random_state=0, **settings)
    model.fit(X, sensitive_features=sensitive, given=given, labels=labels)
    return model, collect(model, X=X, sensitive_features=sensitive, given=given, show_small_cells=smallest)


def test_strata_curve_and_attributes_are_those_of_the_audit_and_of_the_model(people):
    X, columns, product = people
    settings = {"groups": Groups(continuous=("age",), cross=False)}
    model, data = collected(X, columns, product, **settings)
    found = audit(model.outlier_scores_, sensitive_features=columns, given=product, resamples=0, **settings)
    now = {group: rest for group, *_, rest in data.parts["compared"].strata}
    for attribute in ("age", "sex"):
        for group in found[attribute].group_names:
            apart, explained = (found[attribute].get(name, group).value for name in ("mean_apart", "apart_by_strata"))
            assert now[group] == pytest.approx(apart - explained, abs=1e-12)
    (curve,) = data.parts["compared"].curves
    np.testing.assert_allclose(curve.after, found["age"].curves[0].mean_score)
    assert [after for _, after in data.parts["compared"].attributes.values()] == [
        bias.after for bias in model.attribute_bias_.values()
    ]
    page = render(data)
    assert "others who have the same product: a difference that goes with this column counts as justified" in page
    assert "Age counts as a number" in page
    assert "Average score against age: before from" in page


def test_plain_groups_have_no_such_panel(people):
    X, columns, _ = people
    _, data = collected(X, columns["sex"])
    assert data.parts["compared"] is None
    assert "Who is compared with whom" not in render(data)


def test_few_people_have_no_curve(people):
    X, columns, _ = people
    rows, rules = slice(0, 100), Groups(continuous=("age",), bands=2)
    for smallest in (False, True):
        _, data = collected(X[rows], columns[["age"]][rows], smallest=smallest, groups=rules)
        assert len(data.parts["compared"].curves) == smallest


def test_outcomes_and_probabilities_are_said_in_words(people):
    X, columns, _ = people
    labels = (np.abs(X).max(axis=1) > 3).astype(int)
    _, data = collected(X, columns["sex"], labels=labels, fairness="equal_false_alarms")
    assert data.parts["compared"].words == ("Only people known to be no outliers are compared; all others are scored.",)
    assert "gap between known inliers of different groups" in render(data)
    sure = np.where(columns["sex"] == "f", 0.8, 0.3)
    _, data = collected(X, GroupProbabilities(pd.DataFrame({"f": sure, "m": 1 - sure})))
    assert "Groups are known by probability" in data.parts["compared"].words[0]


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-3e-9, 8e-9), (1e6, 1.2e6), (5.0, 5.0)])
def test_ticks_are_few_and_within(ends):
    ticks = nice_ticks(*ends)
    assert 2 <= len(ticks) <= 7
    if ends[1] > ends[0]:
        assert ends[0] <= ticks[0] < ticks[-1] <= ends[1]
