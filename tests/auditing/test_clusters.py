"""Rows that belong together count as one: several rows of one person are not several people."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from evenout import Groups
from evenout.auditing import audit
from evenout.core.resampling import class_table, joined_clusters, level_table
from evenout.exceptions import SmallGroupWarning
from evenout.metrics import no_gap_test
from evenout.tables.rows import read_clusters

FEW = {"resamples": 150}


def copies(n_people=60, times=10, gap=0.0, seed=0, sizes=None):
    """People of two groups, and the same people ten times over."""
    rng = np.random.default_rng(seed)
    groups = np.arange(n_people) % 2 if sizes is None else np.repeat(np.arange(len(sizes)), sizes)
    scores = rng.normal(size=len(groups)) + gap * (groups == 1)
    people = np.arange(len(groups))
    return (scores, groups), tuple(np.repeat(x, times) for x in (scores, groups, people))


@pytest.fixture(params=["levels", "classes"])
def table(request):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, 40)
    clusters = np.repeat(np.arange(40), sizes)
    groups = np.repeat(rng.choice(3, 40, p=[0.5, 0.3, 0.2]), sizes)
    scores, classes = rng.integers(0, 6, len(clusters)) / 6, rng.integers(0, 2, len(clusters))
    if request.param == "levels":
        return level_table(scores, groups, 3, clusters=clusters)
    return class_table(scores, groups, 3, classes, 2, clusters=clusters)


def test_bootstrap_draws_whole_clusters_within_groups(table):
    """Counts are those of the rows on average, and vary as sums over clusters do."""
    size = 4000
    drawn = np.concatenate(list(table.bootstrap(size, np.random.default_rng(1))))
    assert drawn.shape == (size, *table.counts.shape)
    np.testing.assert_allclose(drawn.mean(axis=0), table.counts, atol=0.25)
    for group in range(3):
        mine = table.members.toarray()[table.owner == group]
        np.testing.assert_allclose(drawn[:, group].var(axis=0), len(mine) * mine.var(axis=0), rtol=0.25, atol=0.1)
        per_cluster = mine.sum(axis=1)
        rows = drawn[:, group].sum(axis=1)
        assert rows.var() == pytest.approx(len(mine) * per_cluster.var(), rel=0.1)


def test_permutations_shuffle_whole_clusters_within_classes(table):
    drawn = np.concatenate(list(table.permutations(3000, np.random.default_rng(1))))
    assert (drawn >= 0).all()
    assert (drawn.sum(axis=1) == table.counts.sum(axis=0)).all()
    parts = table.parts.toarray()
    for first, last in zip(table.part_edges[:-1], table.part_edges[1:], strict=True):
        cells, owner = parts[first:last], table.part_owner[first:last]
        used = cells.sum(axis=0) > 0
        for group in range(3):
            m, k = len(owner), int((owner == group).sum())
            expected = k / m * cells.sum(axis=0)
            np.testing.assert_allclose(drawn[:, group].mean(axis=0)[used], expected[used], atol=0.25)
            variance = k * (1 - k / m) * cells.var(axis=0, ddof=1)  # drawn without replacement
            np.testing.assert_allclose(drawn[:, group].var(axis=0)[used], variance[used], rtol=0.25, atol=0.1)


def test_an_audit_of_copies_says_what_an_audit_of_people_says():
    """Ten identical rows per person: the values are the same, and so is the doubt."""
    people, (scores, groups, clusters) = copies(200, gap=0.3)
    options = {"resamples": 1000, "contamination": 0.2}
    one = audit(people[0], sensitive_features=people[1], **options)
    ten = audit(scores, sensitive_features=groups, clusters=clusters, **options)
    assert ten.n_clusters == 200
    assert repr(ten).startswith("Audit of 2,000 rows of 200 clusters in 2 groups")
    assert ten.get("mean_score", "0").n == 1000
    assert ten.get("welch_test").value == pytest.approx(no_gap_test(people[0], sensitive_features=people[1]))
    for name, group in (
        ("mean_score", "0"),
        ("flag_rate", "1"),
        ("group_share", "1"),
        ("demographic_parity", None),
        ("flag_rate_ratio", None),
        ("threshold_free_gap", None),
    ):
        a, b = one.get(name, group), ten.get(name, group)
        assert b.value == pytest.approx(a.value, abs=0.01), name
        assert b.high - b.low == pytest.approx(a.high - a.low, rel=0.15), name
    for name in ("mean_score_test", "flag_rate_test", "threshold_free_gap"):
        assert ten.get(name).p == pytest.approx(one.get(name).p, abs=0.05), name
    for name in ("mean_score_detectable", "flag_rate_detectable"):
        assert ten.get(name).value == pytest.approx(one.get(name).value, rel=0.2), name


def test_clusters_of_one_row_change_nothing_but_the_draws():
    (scores, groups), _ = copies(300, gap=0.4)
    plain = audit(scores, sensitive_features=groups, resamples=800)
    each = audit(scores, sensitive_features=groups, clusters=np.arange(300), resamples=800)
    for m in plain.measures:
        other = each.get(m.measure, m.group, m.detail)
        if "detectable" not in m.measure:
            assert other.value == pytest.approx(m.value), m
        if not np.isnan(m.low) and m.measure not in ("top_share_drift", "score_quantile"):
            assert other.high - other.low == pytest.approx(m.high - m.low, rel=0.2), m


@pytest.mark.long
def test_intervals_cover_and_tests_hold_their_level_with_clusters_alone():
    """Population of people without a gap, ten identical rows each; 90 % intervals, tests at 10 %."""
    covered, rejected = {True: [], False: []}, {True: [], False: []}
    for seed in range(120):
        _, (scores, groups, clusters) = copies(80, seed=seed)
        for known in (True, False):
            found = audit(
                scores,
                sensitive_features=groups,
                clusters=clusters if known else None,
                confidence=0.9,
                random_state=seed,
                **FEW,
            )
            means = [found.get("mean_score", str(g)) for g in (0, 1)]
            gap, ratio = found.get("demographic_parity"), found.get("flag_rate_ratio")
            covered[known].append([*(m.low <= 0 <= m.high for m in means), gap.low <= 1e-12, ratio.high >= 1 - 1e-12])
            tests = [found.get(name).p for name in ("mean_score_test", "flag_rate_test", "threshold_free_gap")]
            rejected[known].append(np.array([*tests, found.get("welch_test").value]) <= 0.1)
    assert (np.mean(covered[True], axis=0) > 0.83).all()
    assert (np.mean(rejected[True], axis=0) < 0.17).all()
    assert (np.mean(covered[False], axis=0) < 0.7).all()
    assert (np.mean(rejected[False], axis=0) > 0.3).all()


@pytest.mark.long
def test_stated_gap_with_clusters_is_seen_80_percent_of_the_time():
    """Clusters of unequal size with a common part: more than a row says, less than all rows as if independent."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 8, 120)
    clusters, owner = np.repeat(np.arange(120), sizes), np.arange(120) % 2
    groups = owner[clusters]

    def draw(gap):
        return rng.normal(size=120)[clusters] + 0.7 * rng.normal(size=len(clusters)) + gap * groups

    options = {"sensitive_features": groups, "clusters": clusters, "resamples": 199}
    even = [audit(draw(0.0), **options, random_state=i) for i in range(40)]
    gap = float(np.mean([a.get("mean_score_detectable").value * a.scores.std() for a in even]))
    p = [audit(draw(gap), **options, random_state=i).get("mean_score_test").p for i in range(280)]
    assert 0.74 < np.mean(np.array(p) <= 0.05) < 0.86


def test_labels_strata_and_features_know_of_clusters():
    """What rests on copies of the same people is as wide as what rests on the people."""
    rng = np.random.default_rng(1)
    people, (scores, groups, clusters) = copies(300, gap=1.0)
    y, given = rng.integers(0, 2, 300), rng.integers(0, 3, 300)
    X = pd.DataFrame({"u": people[0] + rng.normal(size=300), "v": rng.normal(size=300)})
    of = {"resamples": 300, "length_scale": ("median", 0.3)}
    one = audit(people[0], sensitive_features=people[1], labels=y, given=given, X=X, **of)
    ten = audit(
        scores,
        sensitive_features=groups,
        clusters=clusters,
        labels=np.repeat(y, 10),
        given=np.repeat(given, 10),
        X=X.iloc[np.repeat(np.arange(300), 10)].reset_index(drop=True),
        **of,
    )
    for name, group, detail in (
        ("auc", "0", None),
        ("true_positive_rate", "1", None),
        ("conditional_parity", None, None),
        ("individual_unfairness", None, None),
        ("gap_explained", None, "u"),
    ):
        a, b = one.get(name, group, detail), ten.get(name, group, detail)
        assert b.high - b.low == pytest.approx(a.high - a.low, rel=0.35), name
    assert np.isnan(ten.get("gap_explained", None, "u").p)
    assert any("features are not tested where rows come in clusters" in note for note in ten.notes)
    assert ten.get("conditional_detectable").value == pytest.approx(one.get("conditional_detectable").value, rel=0.2)


def test_a_group_is_as_large_as_its_number_of_clusters():
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], [200, 200, 300])
    clusters = np.r_[np.arange(400), 400 + np.arange(300) // 100]  # the third group has three people
    scores = rng.normal(size=700)
    with pytest.warns(SmallGroupWarning, match=r"fewer than 30 clusters are left out: 'c' \(3\)"):
        found = audit(scores, sensitive_features=groups, clusters=clusters, resamples=0)
    assert found.group_names == ("a", "b")
    assert [(g.name, g.rows) for g in found.left_out] == [("c", 300)]
    with pytest.raises(ValueError, match="fewer than two groups have 300 clusters or more"):
        audit(scores, sensitive_features=groups, clusters=clusters, groups=Groups(min_size=300))


def test_order_of_rows_and_names_of_clusters_do_not_matter():
    _, (scores, groups, clusters) = copies(80, times=3)
    order = np.random.default_rng(0).permutation(240)
    one, other = (
        audit(
            scores[rows],
            sensitive_features=groups[rows],
            clusters=[f"p{c:03}" for c in clusters[rows]],
            **FEW,
        )
        for rows in (slice(None), order)
    )
    for a, b in zip(one.measures, other.measures, strict=True):
        assert [b.value, b.low, b.high, b.p] == pytest.approx([a.value, a.low, a.high, a.p], nan_ok=True)


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ([1, 1, 2, 2, 3], "clusters has 5 rows, but scores has 6"),
        ([1, 1, None, 2, 2, np.nan], "clusters has missing values in 2 of 6 rows \\(first: row 2\\)"),
        (np.ones((6, 2)), "clusters must hold one value per row"),
        ([[1], [2], [3], [4], [5], [6, 7]], "clusters"),
    ],
)
def test_bad_clusters_are_one_clear_line(clusters, message):
    with pytest.raises(ValueError, match=message):
        audit(np.arange(6.0), sensitive_features=list("aabbbb"), clusters=clusters, groups=Groups(min_size=2))


def test_clusters_are_told_apart_by_value():
    assert read_clusters(pd.Series([7, 3, 7, 3]), 4).tolist() == [1, 0, 1, 0]


def test_many_clusters_are_drawn_in_sets_of_one_group_that_vary_as_clusters_do():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(20_000), 3)
    groups = np.repeat(rng.choice(2, 20_000, p=[0.9, 0.1]), 3)
    sets = joined_clusters(clusters, groups)
    assert 3000 < len(np.unique(sets)) < 5000
    for members in (clusters, groups):  # whole clusters, of one group
        pairs = np.unique(np.column_stack([members, sets]), axis=0)
        assert len(pairs) == max(len(np.unique(members)), len(np.unique(sets)))
    z = np.repeat(rng.normal(size=20_000), 3)
    one, two = (np.bincount(units, z * (groups == 1)) for units in (clusters, sets))
    assert (two**2).sum() == pytest.approx((one**2).sum(), rel=0.15)
    assert joined_clusters(clusters[:900], groups[:900]) is not None
    np.testing.assert_array_equal(joined_clusters(clusters[:900], groups[:900]), clusters[:900])


def test_drift_between_clustered_batches_is_not_tested():
    _, (scores, groups, clusters) = copies(80)
    one = audit(scores, sensitive_features=groups, clusters=clusters, **FEW)
    drift = one.compare(audit(scores, sensitive_features=groups, **FEW))
    assert np.isnan(drift.get("score_shift").p)
    assert drift.verdict[0].startswith("Drift of the scores, not tested")
    assert drift.verdict[1].startswith("Change in the mix of groups, not tested")
    assert any("clusters" in note for note in drift.notes)
    assert stats.ks_2samp(scores, scores).pvalue == 1
