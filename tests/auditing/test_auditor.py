import json

import numpy as np
import pandas as pd
import pytest

from evenout import Groups, metrics
from evenout.auditing import audit
from evenout.auditing import measures as families
from evenout.auditing.counted import MEANINGS
from evenout.core.intervals import holm
from evenout.exceptions import SmallGroupWarning

SMALL = {"resamples": 60}


def make(n=300, gap=0.6, seed=0):
    """Three groups, the first scored higher; a feature that differs between them; labels that follow the score."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(["x", "y", "z"], n, p=[0.5, 0.3, 0.2])
    X = pd.DataFrame(
        {"u": rng.normal(size=n) + (groups == "x"), "v": rng.normal(size=n), "w": rng.choice(["p", "q"], n)}
    )
    scores = rng.normal(size=n) + gap * (groups == "x") + 0.3 * X["u"].to_numpy()
    y = (scores + rng.normal(size=n) > 1.2).astype(int)
    return scores, {"sensitive_features": groups, "labels": y, "X": X, "given": X["v"].to_numpy()}


@pytest.fixture(scope="module")
def result():
    scores, rest = make()
    return audit(scores, **rest, **SMALL)


def test_values_are_those_of_the_metrics(result):
    scores, rest = make()
    of = {"sensitive_features": rest["sensitive_features"]}
    expected = {
        "demographic_parity_raw": metrics.demographic_parity(scores, **of),
        "demographic_parity": metrics.demographic_parity(scores, **of, scale_free=True),
        "demographic_parity_corrected": metrics.demographic_parity(scores, **of, scale_free=True, corrected=True),
        "welch_test": metrics.no_gap_test(scores, **of),
        "flag_rate_ratio": metrics.flag_rate_ratio(scores, **of),
        "unflagged_rate_ratio": metrics.unflagged_rate_ratio(scores, **of),
    }
    for name, value in expected.items():
        assert result.get(name).value == pytest.approx(value), name
    assert result.get("mean_score", "y").value == pytest.approx(scores[of["sensitive_features"] == "y"].mean())
    encoded = pd.get_dummies(rest["X"], dtype=float)
    individual = metrics.individual_unfairness(scores, encoded, **of, scale_free=True)
    assert result.get("individual_unfairness").value == pytest.approx(individual)


def test_every_interval_holds_its_value_and_every_gap_has_a_p_value(result):
    for m in result.measures:
        assert np.isnan(m.low) or m.low <= m.value <= m.high, m
        if MEANINGS[m.measure].worse:
            least = 0.0 if "conditional" in m.measure or MEANINGS[m.measure].question == "strata" else 1 / 61  # Wald's
            assert least <= m.p <= m.p_adjusted <= 1, m
        assert (MEANINGS[m.measure].shape == "none") == bool(np.isnan(m.low)), m


def test_p_values_are_corrected_within_each_question(result):
    for question in ("scores", "labels", "strata", "features"):
        kinds = [name for name, kind in MEANINGS.items() if kind.question == question and kind.tested_as is None]
        tested = [m for m in result.measures if m.measure in kinds and not np.isnan(m.p)]
        assert len(tested) > 0, question
        np.testing.assert_allclose([m.p_adjusted for m in tested], holm(np.array([m.p for m in tested])))
    twin, main = result.get("demographic_parity_corrected"), result.get("demographic_parity")
    assert (twin.p, twin.p_adjusted, twin.high) == (main.p, main.p_adjusted, main.high)


def test_equal_seeds_give_equal_results_and_others_do_not(result):
    scores, rest = make()
    assert audit(scores, **rest, **SMALL).to_dict() == result.to_dict()
    other = audit(scores, **rest, **SMALL, random_state=1)
    assert other.get("mean_score", "x").low != result.get("mean_score", "x").low
    assert other.get("mean_score", "x").value == result.get("mean_score", "x").value


def test_asking_for_more_does_not_change_the_rest(result):
    scores, rest = make()
    alone = audit(scores, sensitive_features=rest["sensitive_features"], **SMALL)
    assert len(alone.measures) > 20
    for m in alone.measures:
        assert repr(m) == repr(result.get(m.measure, m.group, m.detail))


def test_order_of_rows_and_names_of_groups_do_not_matter(result):
    scores, rest = make()
    order = np.random.default_rng(1).permutation(len(scores))
    rename = {"x": "3", "y": "1", "z": "2"}
    moved = {name: np.asarray(values)[order] for name, values in rest.items() if name != "X"}
    moved["sensitive_features"] = [rename[g] for g in moved["sensitive_features"]]
    X = rest["X"].iloc[order].reset_index(drop=True)
    other = audit(scores[order], **moved, X=X, **SMALL)
    for m in (m for m in result.measures if m.measure != "individual_unfairness_shuffled"):
        value = other.get(m.measure, rename.get(m.group), m.detail).value
        assert value == pytest.approx(m.value, rel=1e-6, nan_ok=True), m


def test_order_of_rows_does_not_change_intervals_either():
    scores, rest = make()
    order = np.random.default_rng(1).permutation(len(scores))
    groups = rest["sensitive_features"]
    one = audit(scores, sensitive_features=groups, **SMALL)
    other = audit(scores[order], sensitive_features=groups[order], **SMALL)
    for a, b in zip(one.measures, other.measures, strict=True):
        assert [b.low, b.high, b.p] == pytest.approx([a.low, a.high, a.p], nan_ok=True)


def test_two_protected_columns_make_intersectional_groups():
    scores, rest = make()
    both = pd.DataFrame({"g": rest["sensitive_features"], "w": rest["X"]["w"]})
    result = audit(scores, sensitive_features=both, **SMALL)
    assert result.group_names == tuple(f"g={g}, w={w}" for g in "xyz" for w in "pq")
    expected = metrics.demographic_parity(scores, sensitive_features=both, scale_free=True)
    assert result.get("demographic_parity").value == pytest.approx(expected)


def few_and_many(seed=0):
    """Two large groups and two small ones, the last of them far on top."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(["big", "few", "more", "top"], [150, 12, 90, 8])
    return rng.normal(size=260) + 9 * (groups == "top"), groups


def test_small_groups_take_no_part_and_are_shown_apart():
    scores, groups = few_and_many()
    with pytest.warns(SmallGroupWarning, match=r"left out: 'few' \(12\), 'top' \(8\)") as caught:
        result = audit(scores, sensitive_features=groups, **SMALL)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert result.group_names == ("big", "more")
    top = np.sort(scores)[-26]  # a tenth of all rows is flagged, those of small groups among them
    flagged = [int((scores[groups == g] >= top).sum()) for g in ("big", "more", "few", "top")]
    assert result.flagged_counts.tolist() == flagged[:2]
    assert [(g.name, g.rows, g.flagged) for g in result.left_out] == [("few", 12, flagged[2]), ("top", 8, 8)]
    assert sum(flagged) == 26
    record = result.to_dict()
    assert record["left_out"][1] == {
        "name": "top",
        "rows": 8,
        "flagged": 8,
        "note": "too few rows to measure",
    }
    frame = result.to_frame().query("group == 'top'")
    assert frame["measure"].tolist() == ["left_out_rows", "left_out_flagged"]
    assert set(frame["note"]) == {"too few rows to measure"}
    line = next(line for line in repr(result).splitlines() if line.startswith("top "))
    assert line.split() == ["top", "8", "8", "too", "few", "rows", "to", "measure"]
    assert "Too few rows to measure, so left out: 'few' (12 rows" in result.verdict[2]


def test_small_groups_change_nothing_but_the_threshold():
    """The rest is as if the flagged share of the compared rows had been asked for."""
    scores, groups = few_and_many()
    with pytest.warns(SmallGroupWarning):
        result = audit(scores, sensitive_features=groups, **SMALL)
    kept = np.isin(groups, ["big", "more"])
    alone = audit(
        scores[kept], sensitive_features=groups[kept], contamination=int(result.flagged_counts.sum()), **SMALL
    )
    for name in (
        "flag_rate_ratio",
        "flag_rate_test",
        "demographic_parity",
        "mean_score_test",
        "threshold_free_gap",
    ):
        one, other = result.get(name), alone.get(name)
        assert (one.value, one.p) == pytest.approx((other.value, other.p)), name
    assert result.get("demographic_parity").high == pytest.approx(alone.get("demographic_parity").high)


def test_rows_without_a_group_count_when_flagging():
    scores, groups = few_and_many()
    known = np.where(groups == "top", None, groups)
    result = audit(scores, sensitive_features=known, groups=Groups(unknown="ignore", min_size=2), **SMALL)
    assert result.flagged_counts.sum() == 26 - 8


def test_small_groups_can_be_merged_or_refused():
    rng = np.random.default_rng(0)
    groups = np.array(["big"] * 150 + ["few"] * 12 + ["none"] * 8)
    scores = rng.normal(size=170) - 9 * (groups == "none")
    with pytest.raises(ValueError, match=r"fewer than 30 rows: 'few' \(12\), 'none' \(8\)"):
        audit(scores, sensitive_features=groups, groups=Groups(small="error"), **SMALL)
    merged = audit(scores, sensitive_features=groups, groups=Groups(small="merge", min_size=15), **SMALL)
    assert merged.group_names == ("big", "merged: few + none")
    assert merged.group_counts.tolist() == [150, 20]


def test_contamination_may_be_a_count():
    scores, rest = make()
    of = {"sensitive_features": rest["sensitive_features"], **SMALL}
    count, share = (audit(scores, **of, contamination=c) for c in (60, 0.2))
    assert count.flagged_counts.sum() == 60
    assert repr(count).startswith("Audit of 300 rows in 3 groups, 60 rows flagged; 95% intervals")
    for m in share.measures:
        assert repr(count.get(m.measure, m.group, m.detail)) == repr(m)
    assert audit(scores, **of, contamination=1).flagged_counts.sum() == 1
    json.dumps(count.to_dict(), allow_nan=False)


def test_features_are_listed_only_where_there_is_a_gap(result):
    shares = [m for m in result.measures if m.measure == "gap_explained"]
    assert {m.detail for m in shares} == {"u", "v", "w"}
    assert shares[0].detail == "u"
    _, rest = make(gap=0.0)
    even = audit(
        np.random.default_rng(0).normal(size=300),
        sensitive_features=rest["sensitive_features"],
        X=rest["X"],
        **SMALL,
    )
    assert not even.has("gap_explained")
    assert any("no features behind it are listed" in note for note in even.notes)


def test_without_resamples_there_are_values_alone():
    scores, rest = make()
    result = audit(scores, **rest, resamples=0)
    assert all(np.isnan(m.p) for m in result.measures)
    assert all(np.isnan(m.low) for m in result.measures if m.measure != "group_share")
    assert "not tested" in result.verdict[0]


def test_equal_scores_are_said_to_be_equal():
    result = audit(np.ones(80), sensitive_features=["a", "b"] * 40, **SMALL)
    assert result.verdict[0] == "All scores are equal, so the groups cannot differ."
    assert result.verdict[1].startswith("Nobody is flagged")
    assert "all scores are equal: there is nothing to compare" in result.notes
    assert np.isnan(result.get("demographic_parity").value)
    assert result.get("demographic_parity_raw").value == 0
    json.dumps(result.to_dict(), allow_nan=False)


def test_equal_scores_have_no_individual_unfairness_and_no_drivers():
    _, rest = make(200)
    result = audit(np.ones(200), sensitive_features=rest["sensitive_features"], X=rest["X"], **SMALL)
    assert result.get("individual_unfairness_raw").value == 0
    assert np.isnan(result.get("individual_unfairness").value)
    assert not result.has("gap_explained")


def test_too_few_permutations_are_said():
    scores, rest = make()
    result = audit(scores, sensitive_features=rest["sensitive_features"], resamples=19)
    assert any("19 permutations are too few for 7 tests" in note and "resamples=140" in note for note in result.notes)


def test_rounded_scores_give_nearly_the_same_intervals(monkeypatch):
    scores, rest = make(3000)
    exact = audit(scores, **rest, resamples=200)
    monkeypatch.setattr(families, "MAX_LEVELS", 500)
    rounded = audit(scores, **rest, resamples=200)
    for name in (
        "flag_rate_ratio",
        "demographic_parity",
        "threshold_free_gap",
        "auc_gap",
        "conditional_parity",
    ):
        one, other = exact.get(name), rounded.get(name)
        assert other.value == one.value
        assert other.high - other.low == pytest.approx(one.high - one.low, rel=0.25), name


def test_interval_of_individual_unfairness_narrows_with_all_rows(monkeypatch):
    """Resampled on a part of the rows, the interval is as wide as one of all the rows."""
    scores, rest = make(900)
    arguments = {"sensitive_features": rest["sensitive_features"], "X": rest["X"], "resamples": 300}
    whole = audit(scores, **arguments).get("individual_unfairness")
    monkeypatch.setattr("evenout.auditing.drivers._PAIR_ROWS", 300)
    part = audit(scores, **arguments)
    measure = part.get("individual_unfairness")
    assert measure.value == whole.value
    assert measure.high - measure.low == pytest.approx(whole.high - whole.low, rel=0.4)
    assert any("the interval of 244" in note for note in part.notes)


def test_exports_are_tidy_and_json(result):
    frame = result.to_frame()
    assert list(frame.columns) == [
        "measure",
        "group",
        "detail",
        "value",
        "low",
        "high",
        "p",
        "p_adjusted",
        "n",
        "note",
    ]
    assert not frame.duplicated(["measure", "group", "detail"]).any()
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert record["groups"] == dict(zip(result.group_names, result.group_counts.tolist(), strict=True))
    assert len(record["measures"]) == len(frame)
    assert record["settings"]["contamination"] == 0.1
    assert sum(record["flagged"].values()) == 30
    with pytest.raises(KeyError, match="no 'auc' for group 'nobody'"):
        result.get("auc", "nobody")


def test_random_state_may_be_none_or_a_generator_of_old():
    scores, rest = make()
    of = {"sensitive_features": rest["sensitive_features"], **SMALL}
    one = audit(scores, **of, random_state=np.random.RandomState(3))
    other = audit(scores, **of, random_state=np.random.RandomState(3))
    assert one.to_dict() == other.to_dict()
    assert audit(scores, **of, random_state=None).settings["random_state"] >= 0
