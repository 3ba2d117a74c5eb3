import warnings

import numpy as np
import pytest
from scipy import stats

from evenout import FairOutlierEnsemble
from evenout.core.flags import flag_rates, rate_ratio
from evenout.core.membership import Membership
from evenout.core.ruler import Sample
from evenout.exceptions import ManyColumnsWarning, NoGapWarning, TargetNotReachedWarning
from evenout.fitting.choose import FlagRows, flag_p_value
from evenout.fitting.settings import Settings


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    sample = Sample(Membership.of_codes(rng.integers(-1, 3, 90), 3))
    return FlagRows(rng.random((90, 3)), rng.random(90), sample, rng.integers(0, 4, 90))


def test_flags_are_counted_fold_by_fold(rows):
    """Each fold is scored by its own weights, and its own top rows are flagged; rows of no group take up flags."""
    V = np.random.default_rng(1).normal(size=(4, 7, 4))
    groups, n = rows.sample.members.codes, rows.sample.size
    counts = rows.sample.means(rows.flagged(V, 0.2)) * n[:, None]
    for m in range(7):
        expected = np.zeros(3)
        for fold in range(4):
            inside = [i for i in range(90) if rows.folds[i] == fold]
            scores = [np.r_[rows.S[i], rows.t[i]] @ V[fold, m] for i in inside]
            limit = np.quantile(scores, 0.8)
            for i, score in zip(inside, scores, strict=True):
                if score > limit and groups[i] >= 0:
                    expected[groups[i]] += 1
        np.testing.assert_allclose(counts[:, m], expected)
    np.testing.assert_array_equal(n, [(groups == g).sum() for g in range(3)])


def test_scale_and_shift_of_a_folds_scores_do_not_matter_to_its_flags(rows):
    V = np.random.default_rng(1).normal(size=(4, 2, 4))
    unit = np.array([1.0, 1e-6, 1e6, 3.0])
    moved = FlagRows(rows.S, rows.t + unit[rows.folds], rows.sample, rows.folds)
    V[..., -1] = 1.0
    np.testing.assert_array_equal(rows.flagged(V, 0.25), moved.flagged(V, 0.25))
    np.testing.assert_array_equal(rows.flagged(V, 0.25), rows.flagged(unit[:, None, None] * V, 0.25))


def test_fold_without_rows_flags_nobody(rows):
    """Groups of fewer rows than there are folds, or clusters that are dealt whole, can leave a fold empty."""
    without = FlagRows(rows.S, rows.t, rows.sample, np.where(rows.folds == 2, 1, rows.folds))
    V = np.ones((4, 1, 4))
    assert 0 < without.flagged(V, 0.25).sum() < 0.3 * 90


def test_flags_of_the_base_score_are_tested_by_chi_square(rows):
    """The top rows of each fold are flagged, as they are along the path."""
    groups, over = rows.sample.members.codes, np.zeros(90, dtype=bool)
    for fold in range(4):
        mine = rows.folds == fold
        over[mine] = rows.t[mine] > np.quantile(rows.t[mine], 0.7)
    table = [[(over & (groups == g)).sum(), (~over & (groups == g)).sum()] for g in range(3)]
    expected = stats.chi2_contingency(table, correction=False).pvalue
    assert flag_p_value(rows, 0.3) == pytest.approx(expected, rel=1e-9)
    assert (groups >= 0).sum() == np.sum(table)
    flat = FlagRows(rows.S, np.zeros(90), rows.sample, rows.folds)
    assert flag_p_value(flat, 0.3) == 1.0  # nobody is above the rest


def test_flags_asked_for_on_training_rows_are_those_of_the_training_scores():
    """The smallest alpha at which the model's own flags are even enough."""
    S, groups = two_groups(400)
    S = np.column_stack([S, np.random.default_rng(1).random(400)]) ** 3  # extremes differ from fold to fold
    model = FairOutlierEnsemble("precomputed", flag_rate_ratio=0.7, judged_on="training", random_state=0)
    model.fit(S, sensitive_features=groups)
    codes = (groups == "b").astype(int)

    def ratio(alpha):
        y = model.path_.mixture(alpha).apply(model._result.scores.scaling.transform(S), model.target_)
        return rate_ratio(flag_rates(y, codes, 2, 0.1))

    assert model.request_met_
    assert model.alpha_ > 0
    assert ratio(model.alpha_) >= 0.7 > ratio(model.alpha_ * (1 - 1e-5))
    assert model.flag_rate_ratio_ == pytest.approx(ratio(model.alpha_))


def read(**changes):
    return Settings.read(FairOutlierEnsemble(**changes).get_params(deep=False))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 1.0, "bias_reduction": 0.5}, "bias_reduction and alpha were given; give at most one"),
        ({"alpha": 1.0, "confidence": 0.9}, "confidence goes with bias_reduction, but alpha was given"),
        ({"flag_rate_ratio": 0.8, "confidence": 0.9}, "but flag_rate_ratio was given; leave one of them out"),
        ({"judged_on": "training", "confidence": 0.9}, "confidence is about unseen rows"),
        (
            {"fairness": np.eye(2), "correction": "published"},
            "has no target to compare with in correction='published'; give",
        ),
        (
            {"fairness": np.eye(2), "alpha": 1.0, "combination": "maximum"},
            "combination='maximum' is no weighted mean of the detectors.*'greedy', or correction='published'",
        ),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        read(**changes)


def test_own_form_is_taken_where_it_can_be_measured():
    for changes in ({"combination": "average"}, {"combination": "greedy"}, {"correction": "published"}):
        request = read(fairness=np.eye(2), alpha=1.0, **({"combination": "maximum"} | changes))
        assert [(notion.name, weight) for notion, weight in request.fairness.items()] == [("own", 1.0)]


def test_own_form_moves_the_score_by_default():
    rng = np.random.default_rng(0)
    S, groups = rng.random((200, 3)), np.repeat(["a", "b"], 100)
    form = np.diag([1.0, 0.0, 0.0])
    model = FairOutlierEnsemble("precomputed", fairness=form, alpha=1e5, random_state=0)
    model.fit(S, sensitive_features=groups)
    assert abs(model.weights_[0]) < 0.01 < model.weights_[1:].min()
    assert np.corrcoef(model.outlier_scores_, S[:, 1] + S[:, 2])[0, 1] > 0.99


def two_groups(n=80):
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b"], n // 2)
    return rng.random((n, 3)) + 0.5 * (groups == "b")[:, None], groups


def test_group_that_is_one_cluster_is_refused():
    """All its rows are one person's: nothing is known of how people of the group differ."""
    S, groups = two_groups()
    model = FairOutlierEnsemble("precomputed", random_state=0)
    with pytest.raises(ValueError, match="group 'a' has 1 clusters of positive weight; at least 2 are needed"):
        model.fit(S, sensitive_features=groups, clusters=groups)
    weight = np.where(groups == "b", 0.0, 1.0)
    weight[50] = 2.0
    with pytest.raises(ValueError, match="group 'b' has 1 rows of positive weight; at least 2 are needed"):
        model.fit(S, sensitive_features=groups, sample_weight=weight)


def test_clusters_that_cannot_be_left_out_are_refused():
    """Two clusters over both groups, each first of its own: both would be dealt to the same fold."""
    S, groups = two_groups()
    clusters = np.where(groups == "a", "x", "y")
    clusters[[0, 79]] = ["y", "x"]
    with pytest.raises(ValueError, match="clusters has too few values to leave some of them out"):
        FairOutlierEnsemble("precomputed").fit(S, sensitive_features=groups, clusters=clusters)


@pytest.mark.parametrize("request_", [{}, {"flag_rate_ratio": 0.8}, {"confidence": 0.9}, {"alpha": 5.0}])
@pytest.mark.parametrize("n_clusters", [2, 3, 7])
def test_few_clusters_are_little_evidence_but_no_fault(n_clusters, request_):
    S, groups = two_groups()
    clusters = np.arange(80) % n_clusters + 10 * (groups == "b")
    model = FairOutlierEnsemble("precomputed", random_state=0, **request_)
    with warnings.catch_warnings():
        for category in (NoGapWarning, TargetNotReachedWarning, ManyColumnsWarning):
            warnings.simplefilter("ignore", category)
        model.fit(S, sensitive_features=groups, clusters=clusters)
    assert np.isfinite(model.outlier_scores_).all()
    if n_clusters == 2 and "flag_rate_ratio" not in request_:  # one in each of two folds: no bias can be measured
        assert not model.gap_detected_
        assert np.isnan(model.bias_reduction_)
