"""Audits of bands of a number, of probable groups, and of each attribute by itself."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from evenout import GroupProbabilities, Groups, audit
from evenout.auditing.by_ruler import score_family
from evenout.auditing.measures import AuditSettings
from evenout.auditing.result import AttributeAudits
from evenout.auditing.sample import read_audit_inputs
from evenout.cli import main
from evenout.exceptions import ContinuousWarning, InputError

QUICK = {"resamples": 400}


def drawn(n, seed, trend=0.0):
    """Ages, and scores that rise to both sides of 45."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 70, n)
    return pd.DataFrame({"age": age}), rng.normal(size=n) + trend * np.abs(age - 45) / 25


def hats(age, bands=5):
    """Literally: band g is 1 at its knot and falls to 0 at the next ones."""
    knots = np.quantile(age, (np.arange(bands) + 0.5) / bands)
    phi = np.zeros((len(age), bands))
    for i, a in enumerate(np.clip(age, knots[0], knots[-1])):
        for g in range(bands):
            if g and knots[g - 1] <= a <= knots[g]:
                phi[i, g] = (a - knots[g - 1]) / (knots[g] - knots[g - 1])
            if g < bands - 1 and knots[g] <= a <= knots[g + 1]:
                phi[i, g] = (knots[g + 1] - a) / (knots[g + 1] - knots[g])
    return phi


def test_bands_are_measured_as_the_literal_formulas_say():
    people, y = drawn(700, 0, trend=1.0)
    found = audit(y, sensitive_features=people, groups=Groups(continuous=("age",)), **QUICK)
    phi, flagged = hats(people["age"].to_numpy()), y > np.sort(y)[-71]
    for g, name in enumerate(found.group_names):
        assert found.get("mean_score", name).value == pytest.approx(phi[:, g] @ y / phi[:, g].sum(), abs=1e-12)
        assert found.get("flag_rate", name).value == pytest.approx(phi[:, g] @ flagged / phi[:, g].sum(), abs=1e-12)
    share, mean = phi.sum(axis=0) / phi.sum(), phi.T @ y / phi.sum(axis=0)
    between = sum(share[g] * share[h] * (mean[g] - mean[h]) ** 2 for g in range(5) for h in range(g))
    assert found.get("demographic_parity").value == pytest.approx(between / y.var(), abs=1e-12)
    assert found.group_counts.sum() == pytest.approx(700, abs=3)


def test_known_groups_given_as_probabilities_are_audited_as_known_groups():
    rng = np.random.default_rng(1)
    group = rng.integers(0, 3, 900)
    y = rng.normal(size=900) + 0.3 * group
    sure = audit(y, sensitive_features=GroupProbabilities(pd.DataFrame(np.eye(3)[group], columns=list("abc"))), **QUICK)
    known = audit(y, sensitive_features=np.array(list("abc"))[group], resamples=2000)
    assert sure.group_names == known.group_names
    np.testing.assert_array_equal(sure.flagged_counts, known.flagged_counts)
    for measure in ("demographic_parity", "demographic_parity_corrected", "flag_rate_ratio", "unflagged_rate_ratio"):
        one, two = sure.get(measure), known.get(measure)
        assert one.value == pytest.approx(two.value, abs=1e-10)
        assert (one.low, one.high) == pytest.approx((two.low, two.high), abs=0.12 * max(two.high, 0.1))
    assert "'a' 0, 'b' 0, 'c' 0" in sure.notes[0]


@pytest.mark.nightly
@pytest.mark.long
def test_intervals_cover_a_population_and_the_test_keeps_its_level():
    """Samples of a population whose band means and bias are known from a million rows."""
    trend = 0.4
    people, y = drawn(1_000_000, 2, trend)
    knots = np.quantile(people["age"], (np.arange(5) + 0.5) / 5)
    age = np.clip(people["age"].to_numpy(), knots[0], knots[-1])
    phi = np.column_stack([np.interp(age, knots, np.eye(5)[g]) for g in range(5)])
    share, mean = phi.mean(axis=0), phi.T @ y / phi.sum(axis=0)
    truth = float(share @ (mean - share @ mean) ** 2 / y.var())
    covered, mean_covered, rejected = 0, 0, 0
    rules = {"groups": Groups(min_size=30, small="leave_out", unknown="error", continuous=("age",))}
    settings, rng = AuditSettings(0.1, 400, 0.95, "minmax"), np.random.default_rng(9)
    for seed in range(200):
        for place, slope in enumerate((trend, 0.0)):
            people, y = drawn(1500, (3, seed, place), slope)
            inputs = read_audit_inputs(y, people, **rules)
            found = {(m.measure, m.group): m for m in score_family(inputs, settings, rng)}
            if slope:
                gap, first = found["demographic_parity_corrected", None], found["mean_score", inputs.names[0]]
                covered += gap.low <= truth <= gap.high
                mean_covered += first.low <= mean[0] <= first.high
            else:
                rejected += found["mean_score_test", None].p <= 0.05
    assert covered >= 0.92 * 200
    assert mean_covered >= 0.91 * 200
    assert rejected <= 0.09 * 200


def test_a_curve_follows_the_trend_where_two_halves_look_alike():
    people, y = drawn(20_000, 5, trend=1.0)
    halves = audit(y, sensitive_features=people["age"] < 45, **QUICK).get("demographic_parity_corrected")
    assert halves.low <= 0.0
    found = audit(y, sensitive_features=people, groups=Groups(continuous=("age",)), **QUICK)
    (curve,) = found.curves
    frame = curve.to_frame()
    truth = np.array([np.mean(np.abs(a + np.linspace(-4, 4, 201) - 45)) / 25 for a in frame.index])
    inner = slice(1, -1)
    off = (frame["mean_score"].to_numpy() - truth)[inner]
    half = (frame["mean_score_high"] - frame["mean_score_low"]).to_numpy()[inner] / 2
    assert (np.abs(off) < 2 * half).all()
    assert found.to_dict()["curves"]["age"][0]["mean_score"] == frame["mean_score"].iloc[0]


def test_each_attribute_has_an_audit_and_tests_are_corrected_together():
    rng = np.random.default_rng(6)
    people = pd.DataFrame({"sex": rng.choice(["f", "m"], 600), "age": rng.uniform(20, 70, 600)})
    y = rng.normal(size=600) + (people["sex"] == "f").to_numpy()
    both = audit(y, sensitive_features=people, groups=Groups(continuous=("age",), cross="both"), resamples=200)
    assert isinstance(both, AttributeAudits)
    assert list(both) == ["sex", "age", "sex & age"]
    alone = audit(y, sensitive_features=people[["sex"]], resamples=200)
    assert both["sex"].get("mean_score_test").p == alone.get("mean_score_test").p
    assert both["age"].get("mean_score_test").p_adjusted > both["age"].get("mean_score_test").p
    assert set(both.to_frame()["attribute"]) == set(both)
    assert both.verdict[0].startswith("sex: Scores differ between groups")
    with pytest.raises(KeyError, match="no attribute 'race'; there are 'sex', 'age'"):
        both["race"]


def test_what_needs_known_groups_is_refused_beside_probabilities():
    sure = GroupProbabilities(np.column_stack([np.arange(100) / 99, 1 - np.arange(100) / 99]))
    with pytest.raises(InputError, match="X does not go with sensitive_features that are probabilities"):
        audit(np.arange(100.0), sensitive_features=sure, X=np.ones((100, 1)))
    with pytest.raises(InputError, match="a table counts people of known groups"):
        audit(np.arange(100.0), sensitive_features=sure, **QUICK).table("hiring")


def test_a_column_of_many_fractions_is_a_number():
    people, y = drawn(300, 7)
    with pytest.warns(ContinuousWarning, match="taken as a continuous attribute"):
        assert len(audit(y, sensitive_features=people, **QUICK).curves) == 1


@pytest.mark.parametrize("way", ["no", "both"])
def test_the_command_line_audits_each_attribute(way, tmp_path):
    rng = np.random.default_rng(8)
    people = pd.DataFrame({"sex": rng.choice(["f", "m"], 300), "age": rng.integers(20, 70, 300)})
    for name in ("may", "june"):
        people.assign(risk=rng.normal(size=300)).to_csv(tmp_path / f"{name}.csv", index=False)
    options = ["--score", "risk", "--sensitive", "sex,age", "--continuous", "age", "--resamples", "100"]
    command = ["audit", str(tmp_path / "june.csv"), *options, "--cross", way]
    text = CliRunner().invoke(main, command)
    assert text.exit_code == 0, text.stderr
    assert "\nage\n===\nAudit of 300 rows in 5 groups" in text.stdout
    found = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)["audit"]
    assert len(found) == (2 if way == "no" else 3)
    assert len(found["age"]["curves"]["age"]) == 12
    compared = CliRunner().invoke(main, [*command, "--baseline", str(tmp_path / "may.csv")])
    assert (
        "bands of a number, probable groups, weights and clusters that span groups are not compared" in compared.stderr
    )
    assert compared.exit_code == 2


def test_a_number_that_is_no_protected_column_is_refused_for_each_attribute_too():
    people = pd.DataFrame({"sex": ["f", "m"] * 100, "age": np.arange(200)})
    for way in (True, False, "both"):
        with pytest.raises(InputError, match=r"continuous=...\) names 'aeg', but the columns of .* are 'sex'"):
            audit(np.arange(200.0), sensitive_features=people, groups=Groups(continuous=("aeg",), cross=way))


def test_too_few_permutations_are_told_by_the_tests_of_all_attributes():
    rng = np.random.default_rng(9)
    people = pd.DataFrame({"sex": rng.choice(["f", "m"], 300), "region": rng.choice(["n", "s"], 300)})
    options = {"resamples": 150}
    alone = audit(rng.normal(size=300), sensitive_features=people["sex"], **options)
    both = audit(rng.normal(size=300), sensitive_features=people, groups=Groups(cross=False), **options)
    assert not any("permutations are too few" in note for note in alone.notes)
    assert any("permutations are too few for 14 tests" in note for note in both["sex"].notes)


def test_bands_are_audited_without_tests_and_with_features():
    people, y = drawn(300, 10, trend=2.0)
    options = {"resamples": 0, "groups": Groups(continuous=("age",))}
    found = audit(y, sensitive_features=people, X=people.assign(other=y), **options)
    assert found.get("welch_test").value < 0.05
    assert np.isnan(found.get("demographic_parity").p)
    assert found.has("gap_explained")
