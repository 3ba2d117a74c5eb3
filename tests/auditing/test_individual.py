from itertools import combinations

import numpy as np
import pytest

from evenout import FairOutlierEnsemble, Individual, metrics
from evenout.auditing import audit
from evenout.auditing.drivers import PairMeasures, pair_limit, sample_rows
from evenout.core.individual import DEFAULT_LENGTH, comparable_rows
from evenout.exceptions import FewPairsWarning


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    return rng.normal(size=40), rng.normal(size=(40, 3)), rng.permutation(np.repeat([0, 1, 2], [20, 12, 8]))


def slow(scores, X, groups, weights):
    """Sum over all weighted pairs, one at a time; the range of distances is that of the rows as they are."""
    distance = np.linalg.norm(X[:, None] - X, axis=2)
    across = distance[groups[:, None] != groups]
    M = np.exp(-(distance - across.min()) / (across.max() - across.min()))
    raw, free = [], []
    for p, q in combinations(range(3), 2):
        W = weights[p][:, None] * weights[q]
        squared = (W * M * (scores[:, None] - scores) ** 2).sum()
        raw.append(squared / (weights[p].sum() * weights[q].sum()))
        free.append(squared / (W * M).sum())
    total = weights.sum(axis=0)
    mean = total @ scores / total.sum()
    return np.mean(raw), np.mean(free) / (total @ (scores - mean) ** 2 / total.sum())


@pytest.mark.parametrize("length", [DEFAULT_LENGTH, 0.7, "minmax"])
def test_value_is_that_of_the_metrics(sample, length):
    scores, X, groups = sample
    features, scale = comparable_rows(X, groups, length)
    found = PairMeasures(scores, features, groups, 3, scale)()
    for name, scale_free in (("individual_unfairness_raw", False), ("individual_unfairness", True)):
        expected = metrics.individual_unfairness(
            scores, X, sensitive_features=groups, scale_free=scale_free, length_scale=length
        )
        assert found[name].item() == pytest.approx(expected, rel=1e-5)


def test_fit_audit_and_metrics_mean_the_same_likeness():
    """What a fit measures of its own target is what an audit finds."""
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b"], [200, 100])
    X = rng.normal(size=(300, 2)) + (groups == "b")[:, None]
    model = FairOutlierEnsemble(fairness=Individual(length_scale=DEFAULT_LENGTH), alpha=1.0, random_state=0)
    model.fit(X, sensitive_features=groups)
    found = audit(model.target_, sensitive_features=groups, X=X, resamples=0)
    assert found.get("individual_unfairness").value == pytest.approx(model.path_.target_bias("training"), rel=1e-4)


def test_few_similar_pairs_are_said():
    rng = np.random.default_rng(0)
    scores, X, groups = rng.normal(size=200), rng.normal(size=(200, 40)), np.arange(200) % 2
    arguments = {"sensitive_features": groups, "X": X, "resamples": 0}
    with pytest.warns(FewPairsWarning, match="pairs of similar rows"):
        few = audit(scores, **arguments, length_scale=("median", 0.02))
    assert few.get("effective_pairs").value < 100
    line = next(line for line in repr(few).splitlines() if line.startswith("pairs of similar rows"))
    assert line.split()[-1] == f"{few.get('effective_pairs').value:.0f}"
    every = audit(scores, **arguments, length_scale="minmax")
    assert every.get("effective_pairs").value == pytest.approx(100 * 100, rel=0.1)


def test_any_weights_by_slow_formula(sample):
    scores, X, groups = sample
    weights = np.random.default_rng(1).integers(0, 3, (2, 3, 40)).astype(float)
    found = PairMeasures(scores, X, groups, 3, "minmax")(weights)
    for b in range(2):
        raw, free = slow(scores, X, groups, weights[b])
        assert found["individual_unfairness_raw"][b, 0] == pytest.approx(raw)
        assert found["individual_unfairness"][b, 0] == pytest.approx(free)


def test_shuffled_groups_centre_on_all_pairs_and_a_gap_stands_out(sample):
    scores, X, groups = sample
    biased = PairMeasures(scores + 3.0 * (groups == 0), X, groups, 3, "minmax")
    permuted = biased.resampled(200, np.random.default_rng(0), shuffled=True)["individual_unfairness"]
    assert (biased()["individual_unfairness"] > permuted).all()
    bootstrap = biased.resampled(200, np.random.default_rng(0))["individual_unfairness"]
    low, high = np.quantile(bootstrap, [0.01, 0.99])
    assert low < biased()["individual_unfairness"].item() < high


def test_equal_rows_and_equal_scores_are_no_division_by_zero():
    groups = np.array([0, 0, 1, 1])
    found = PairMeasures(np.ones(4), np.ones((4, 2)), groups, 2, "minmax")()
    assert found["individual_unfairness_raw"].item() == 0
    assert np.isnan(found["individual_unfairness"].item())


def test_sampled_rows_keep_the_shares_of_groups():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [6000, 3990, 10])
    rows = sample_rows(groups, 3, 1000, rng)
    assert np.bincount(groups[rows]).tolist() == [600, 399, 2]
    assert len(np.unique(rows)) == len(rows)
    assert sample_rows(groups[:50], 3, 1000, rng).tolist() == list(range(50))
    assert len(sample_rows(groups, 3, pair_limit(3), rng, np.arange(10_000))) == pytest.approx(pair_limit(3), abs=3)
    whole = sample_rows(groups, 3, pair_limit(3), rng, np.arange(10_000) // 10)
    assert len(whole) == pytest.approx(pair_limit(3), abs=30)
    assert (np.bincount(whole // 10)[np.unique(whole // 10)] == 10).all()
