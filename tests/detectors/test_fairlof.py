import math
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kruskal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import LocalOutlierFactor
from sklearn.utils.validation import check_is_fitted

from evenout.datasets import list_scenarios, load_dataset, make_biased_outliers
from evenout.detectors.fairlof import FairLOF
from evenout.detectors.neighbours import Neighbours
from evenout.metrics import demographic_parity


def simulated(n=300, d=3, n_groups=3, seed=0):
    """Clusters of unequal groups, some scattered rows; no ties."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(n_groups, size=n, p=np.array([6, 3, 1][:n_groups]) / sum([6, 3, 1][:n_groups]))
    X = rng.normal(size=(n, d)) * (1 + groups[:, None]) + groups[:, None]
    X[::15] *= 3
    return X, np.array(["a", "b", "c"])[groups]


def with_copies(X, groups, n, seed=1):
    """Append copies of rows, each with a group drawn anew: locations of mixed groups."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(X) // 4, size=n)
    return np.concatenate([X, X[rows]]), np.concatenate([groups, rng.permutation(groups)[:n]])


def nearest_rows(x, others, k):
    """Distances and rows of the k nearest of ``others``, (row number, point) pairs."""
    return sorted((math.dist(x, point), j) for j, point in others)[:k]


def literal_fairlof(X, groups, k, strength, steer):
    """FairLOF by loops over rows, word by word; also what is needed to score new rows."""
    n = len(X)
    share = {g: np.mean(groups == g) for g in set(groups)}
    near = [nearest_rows(X[i], [(j, X[j]) for j in range(n) if j != i], k) for i in range(n)]
    k_distance = []
    for i in range(n):
        diversity = sum(groups[j] != groups[i] for _, j in near[i]) / k
        scale = max(0.01, 1 - strength * steer * share[groups[i]] * diversity)
        k_distance.append(near[i][-1][0] * scale)

    def density(found, group):
        across = max(0.01, 1 - strength * steer * share[group])
        reach = [max(d, k_distance[j]) * (1 if groups[j] == group else across) for d, j in found]
        return 1 / (sum(reach) / k + 1e-10)

    densities = [density(near[i], groups[i]) for i in range(n)]

    def score(x, group):
        found = nearest_rows(x, list(enumerate(X)), k)
        return sum(densities[j] for _, j in found) / k / density(found, group)

    return [sum(densities[j] for _, j in near[i]) / k / densities[i] for i in range(n)], score


def literal_steer(groups, plain):
    t = max(1, min(500, int(0.05 * len(plain))))
    names, counts = np.unique(groups, return_counts=True)
    major = names[counts.argmax()]
    in_top = np.mean(groups[np.argsort(-plain)[:t]] == major)
    in_data = np.mean(groups == major)
    return (1 if in_data > in_top else -1) * (1 + abs(in_data - in_top))


@pytest.mark.parametrize("k", [5, 20])
@pytest.mark.parametrize("name", ["pima", "mammography"])
def test_lambda_zero_is_lof_with_ties_and_duplicates(name, k):
    data = load_dataset(name)
    X, groups = data.X.to_numpy(float)[:3000], data.sensitive[:3000]
    ours = FairLOF(k, lambda_=0.0).fit(X, sensitive_features=groups).outlier_scores_
    assert_allclose(ours, Neighbours.fit(X, lof=[k], knn=[])[1][:, 0], rtol=1e-12)


def test_lambda_zero_is_scikit_learns_lof():
    X, groups = simulated()
    expected = -LocalOutlierFactor(7).fit(X).negative_outlier_factor_
    model = FairLOF(7, lambda_=0.0).fit(X, sensitive_features=groups)
    assert_allclose(model.outlier_scores_, expected, rtol=1e-10)
    Q, asked = simulated(seed=5)
    expected = -LocalOutlierFactor(7, novelty=True).fit(X).score_samples(Q)
    assert_allclose(model.outlier_scores(Q, sensitive_features=asked), expected, rtol=1e-10)


@pytest.mark.parametrize("strength", [0.3, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_scores_equal_the_formulas_by_loops(strength, seed):
    X, groups = simulated(n=120, seed=seed)
    plain = np.array(literal_fairlof(X, groups, 4, 0.0, 0.0)[0])
    steer = literal_steer(groups, plain)
    expected, score = literal_fairlof(X, groups, 4, strength, steer)
    model = FairLOF(4, lambda_=strength, direction="printed").fit(X, sensitive_features=groups)
    assert_allclose(model.outlier_scores_, expected, rtol=1e-9)
    assert (model.strength_, model.sign_) == (strength, np.sign(steer))
    assert np.abs(model.outlier_scores_ - plain).max() > 0.01
    Q, asked = simulated(n=30, seed=seed + 10)
    expected = [score(x, g) for x, g in zip(Q, asked, strict=True)]
    assert_allclose(model.outlier_scores(Q, sensitive_features=asked), expected, rtol=1e-9)


@pytest.mark.parametrize("strength", [0.1, 0.5])
def test_even_takes_the_sign_that_brings_the_groups_closest(strength):
    signs = set()
    for seed in range(6):
        X, groups = simulated(n=120, seed=seed)
        if seed % 2:  # a small group of its own: every neighbour across groups is far away
            X[groups == "c"] += 30.0
        plain = np.array(literal_fairlof(X, groups, 4, 0.0, 0.0)[0])
        steer = abs(literal_steer(groups, plain))
        scores = {s: literal_fairlof(X, groups, 4, strength, s * steer)[0] for s in (0, 1, -1)}
        far = {s: kruskal(*(np.array(y)[groups == g] for g in "abc")).statistic for s, y in scores.items()}
        sign = min(far, key=far.__getitem__)
        model = FairLOF(4, lambda_=strength).fit(X, sensitive_features=groups)
        assert model.sign_ == sign
        assert model.strength_ == (strength if sign else 0.0)
        assert_allclose(model.outlier_scores_, scores[sign], rtol=1e-9)
        signs.add(sign)
    assert len(signs) > 1


def halves(name, split):
    """A table and its groups, cut at random into rows to fit on and rows to judge."""
    if name in list_scenarios():
        data = make_biased_outliers(name, 3000, random_state=split)
    else:
        data = load_dataset(name, random_state=split)
    X, groups = data.X.to_numpy(float), np.asarray(data.sensitive)
    first = np.random.default_rng(split).random(len(X)) < 0.5
    return X[first], groups[first], X[~first], groups[~first]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "worst"),  # what is left of the gap, at most
    [
        pytest.param("communities", 0.8, marks=pytest.mark.long),
        ("under_representation", 0.8),
        pytest.param("variance", 1.0, marks=pytest.mark.long),
        pytest.param("measurement_noise", 1.0, marks=pytest.mark.long),
        pytest.param("base_rate", 1.0, marks=pytest.mark.long),
    ],
)
def test_even_does_not_widen_the_gap_of_lof_on_unseen_rows(name, worst):
    def gap(**settings):
        model = FairLOF(20, n_jobs=2, **settings).fit(X, sensitive_features=groups)
        scores = model.outlier_scores(new, sensitive_features=asked)
        return demographic_parity(scores, sensitive_features=asked, scale_free=True, corrected=True)

    gaps = []
    for split in range(8):
        X, groups, new, asked = halves(name, split)
        gaps.append([gap(lambda_=0.0), gap(), gap(direction="printed")])
    plain, even, printed = np.mean(gaps, axis=0)
    assert plain > 0.02
    assert even <= worst * plain
    if worst < 1.0:
        assert printed > 1.2 * plain  # here the sign of the paper widens it


def test_copies_within_a_group_count_as_rows_of_their_own():
    X, groups = simulated(n=60)
    X, groups = np.concatenate([X, X[:12], X[:5]]), np.concatenate([groups, groups[:12], groups[:5]])
    plain = np.array(literal_fairlof(X, groups, 4, 0.0, 0.0)[0])
    model = FairLOF(4, lambda_=0.5, direction="printed").fit(X, sensitive_features=groups)
    expected, _ = literal_fairlof(X, groups, 4, 0.5, literal_steer(groups, plain))
    assert_allclose(model.outlier_scores_, expected, rtol=1e-9)


def test_tied_copies_of_other_groups_count_by_their_share():
    # With k = 1, row 0 has one neighbour among three copies at distance 1: two of group a, one of group b.
    # All other rows have a copy at distance 0, and so the density 1e10.
    X = np.array([[0.0], [1.0], [1.0], [1.0], [9.0], [9.0]])
    groups = np.array(["a", "a", "a", "b", "b", "b"])
    model = FairLOF(1, lambda_=1.0, direction="printed").fit(X, sensitive_features=groups)
    # Row 0 is the top of plain LOF. Group a, the first of two equally large ones, has half of the rows and all of
    # the top: s W = -1.5.
    across = 1 + 1.5 * 0.5
    reach = 2 / 3 * 1.0 + 1 / 3 * across
    assert_allclose(model.outlier_scores_[0], 1e10 * (reach + 1e-10), rtol=1e-9)
    assert_allclose(model.outlier_scores_[1:], 1.0, rtol=1e-9)


@pytest.mark.parametrize("direction", ["even", "printed"])
@pytest.mark.parametrize("lambda_", ["auto", 0.7])
def test_order_of_the_rows_changes_nothing(lambda_, direction):
    X, groups = with_copies(*simulated(), n=150)
    order = np.random.default_rng(2).permutation(len(X))
    settings = {"lambda_": lambda_, "direction": direction}
    one = FairLOF(**settings).fit(X, sensitive_features=groups)
    two = FairLOF(**settings, n_jobs=2).fit(X[order], sensitive_features=groups[order])
    assert (one.strength_, one.sign_) == (two.strength_, two.sign_)
    assert_allclose(two.outlier_scores_, one.outlier_scores_[order], rtol=1e-12)


def test_training_rows_score_the_same_again():
    X, groups = with_copies(*simulated(), n=150)
    model = FairLOF(lambda_=0.8, direction="printed").fit(X, sensitive_features=groups)
    assert_array_equal(model.outlier_scores(X, sensitive_features=groups), model.outlier_scores_)


def test_a_training_point_of_another_group_is_a_new_row():
    X, groups = simulated()
    model = FairLOF(lambda_=0.8, direction="printed").fit(X, sensitive_features=groups)
    other = np.where(groups == "a", "b", "a")
    scores = model.outlier_scores(X, sensitive_features=other)
    nudged = model.outlier_scores(X + 1e-9, sensitive_features=other)
    assert_allclose(scores, nudged, rtol=1e-5)
    assert np.abs(scores - model.outlier_scores_).max() > 0.01


def test_auto_takes_the_strength_nearest_to_the_wanted_agreement():
    X, groups = simulated(n=800)
    plain = FairLOF(10, lambda_=0.0).fit(X, sensitive_features=groups).outlier_scores_
    top = set(np.argsort(-plain)[:40])
    agreement = {}
    for strength in np.arange(1, 11) / 10:
        model = FairLOF(10, lambda_=strength, direction="printed").fit(X, sensitive_features=groups)
        fair = model.outlier_scores_
        mine = set(np.argsort(-fair)[:40])
        agreement[strength] = len(top & mine) / len(top | mine)
    best = min(agreement, key=lambda strength: (abs(agreement[strength] - 0.9), strength))
    assert len(set(agreement.values())) > 3
    chosen = FairLOF(10, direction="printed").fit(X, sensitive_features=groups)
    assert chosen.strength_ == best


def test_scaling_and_moving_the_features_changes_nothing():
    X, groups = simulated()
    one = FairLOF().fit(X, sensitive_features=groups).outlier_scores_
    two = FairLOF().fit(8.0 * X + 3.0, sensitive_features=groups).outlier_scores_
    assert_allclose(one, two, rtol=1e-8)


def test_one_group_is_plain_lof():
    X, _ = simulated()
    model = FairLOF(6, lambda_=1.0).fit(X, sensitive_features=["x"] * len(X))
    assert_allclose(model.outlier_scores_, Neighbours.fit(X, lof=[6], knn=[])[1][:, 0], rtol=1e-12)


def test_frames_and_intersectional_groups_are_read():
    X, groups = simulated()
    old = np.arange(len(X)) % 2
    table = pd.DataFrame({"group": groups, "old": old})
    joined = [f"group={g}, old={o}" for g, o in zip(groups, old, strict=True)]
    one = FairLOF().fit(pd.DataFrame(X, columns=list("pqr")), sensitive_features=table)
    two = FairLOF().fit(X, sensitive_features=joined)
    assert one.group_names_ == two.group_names_ == tuple(sorted(set(joined)))
    assert_array_equal(one.outlier_scores_, two.outlier_scores_)
    assert list(one.feature_names_in_) == ["p", "q", "r"]


def test_groups_are_asked_for_when_fitting_and_when_scoring():
    X, groups = simulated()
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        FairLOF().fit(X)
    model = FairLOF().fit(X, sensitive_features=groups)
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        model.outlier_scores(X)
    with pytest.raises(ValueError, match=r"not there in fit: 'd'; known are 'a', 'b', 'c'"):
        model.outlier_scores(X[:2], sensitive_features=["a", "d"])
    with pytest.raises(ValueError, match=r"missing values in 1 of 2 rows \(first: row 1\)"):
        model.outlier_scores(X[:2], sensitive_features=["a", None])
    assert model.outlier_scores(X[:1], sensitive_features=["c"]).shape == (1,)


@pytest.mark.parametrize(
    "bad",
    [
        {"n_neighbors": 0},
        {"lambda_": -0.1},
        {"lambda_": 1.5},
        {"lambda_": "best"},
        {"direction": "up"},
        {"contamination": 0.7},
        {"n_jobs": 0},
    ],
)
def test_bad_parameters_are_refused_at_fit(bad):
    X, groups = simulated()
    with pytest.raises(ValueError, match=rf"{next(iter(bad))}=.*is not allowed"):
        FairLOF(**bad).fit(X, sensitive_features=groups)


def test_scikit_learns_methods_follow_from_the_scores():
    X, groups = simulated()
    asked = {"sensitive_features": groups}
    model = FairLOF(contamination=20).fit(X, **asked)
    scores, flags = model.outlier_scores(X, **asked), model.predict(X, **asked)
    assert_array_equal(model.score_samples(X, **asked), -scores)
    assert_array_equal(model.decision_function(X, **asked), -scores - model.offset_)
    assert_array_equal(np.flatnonzero(flags == -1), np.sort(np.argsort(-scores)[:20]))
    assert_array_equal(FairLOF(contamination=20).fit_predict(X, **asked), flags)


def test_unfitted_and_cloned_models():
    X, groups = simulated()
    model = FairLOF(7, lambda_=0.2)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    with pytest.raises(NotFittedError, match="not fitted"):
        model.predict(X, sensitive_features=groups)
    assert clone(model.fit(X, sensitive_features=groups)).get_params() == model.get_params()
    assert FairLOF.needs_groups


def test_too_many_neighbours_are_capped_with_a_warning():
    X, groups = simulated(n=12)
    with pytest.warns(UserWarning, match="n_neighbors"):
        capped = FairLOF(50, lambda_=0.5, direction="printed").fit(X, sensitive_features=groups)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        full = FairLOF(11, lambda_=0.5, direction="printed").fit(X, sensitive_features=groups)
    assert_array_equal(capped.outlier_scores_, full.outlier_scores_)


def test_rows_that_are_all_equal_have_no_outlier():
    model = FairLOF(3, lambda_=0.5).fit(np.zeros((8, 2)), sensitive_features=list("aaaaabbb"))
    assert_allclose(model.outlier_scores_, 1.0)
    assert model.outlier_scores([[1.0, 0.0]], sensitive_features=["a"])[0] > 1e6
