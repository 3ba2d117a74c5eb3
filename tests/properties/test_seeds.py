"""What is random comes from the seed: the same seed gives the same bits, another seed another result."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenout import Groups, audit
from evenout.core.content import assign_folds
from evenout.core.pairwise import sampled_pair_sums
from evenout.datasets import make_biased_outliers, sample_groups
from evenout.datasets._scenarios import SCENARIOS
from evenout.repair import ScoreRepair

pytestmark = pytest.mark.usefixtures("few_trees")

SEEDS = st.integers(0, 2**31 - 1)


@pytest.fixture(scope="module")
def people(make_table):
    return make_table(300, 3)


def state_of(model):
    return [model.outlier_scores_, model.weights_, model.target_, model.alpha_, model.bias_reduction_]


@pytest.mark.parametrize("fairness", ["demographic_parity", "individual"])
def test_ensembles_follow_their_seed(fairness, people, fit):
    def fitted(random_state):
        return fit(people, "paper", fairness=fairness, random_state=random_state)

    one, two, other = fitted(7), fitted(7), fitted(8)
    for first, second in zip(state_of(one), state_of(two), strict=True):
        np.testing.assert_array_equal(first, second)
    assert (one.outlier_scores_ != other.outlier_scores_).any()


def test_ensembles_take_random_states(people, fit):
    one, two, other = (fit(people, "paper", alpha=1.0, random_state=np.random.RandomState(seed)) for seed in (7, 7, 8))
    np.testing.assert_array_equal(one.outlier_scores_, two.outlier_scores_)
    assert (one.outlier_scores_ != other.outlier_scores_).any()


def test_open_random_states_leave_numpys_global_one_alone(people, fit):
    before = np.random.get_state()[1].copy()  # noqa: NPY002 (the legacy state is what is looked at)
    fit(people, "paper", random_state=3)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@given(seed=SEEDS)
def test_folds_follow_their_seed(seed, people):
    one, two, other = (assign_folds(people.values, people.groups, 5, s) for s in (seed, seed, seed + 1))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_sampled_pairs_follow_their_seed(make_table):
    table = make_table(20_000, 2)

    def sums(seed):
        folds = np.zeros_like(table.groups)
        settings = {"n_groups": 2, "n_folds": 1, "tolerance": 0.1, "seed": seed}
        found, error = sampled_pair_sums(table.values, table.values, table.groups, folds, **settings)
        assert error > 0  # not all pairs were visited
        return found

    np.testing.assert_array_equal(sums(1).form, sums(1).form)
    assert (sums(1).form != sums(2).form).any()


@given(seed=SEEDS, scenario=st.sampled_from(list(SCENARIOS)))
def test_scenarios_follow_their_seed(seed, scenario):
    for kind in (int, np.random.RandomState, np.random.default_rng):
        one, two, other = (make_biased_outliers(scenario, 100, random_state=kind(s)) for s in (seed, seed, seed + 1))
        pd.testing.assert_frame_equal(one.X, two.X)
        pd.testing.assert_series_equal(one.sensitive, two.sensitive)
        pd.testing.assert_series_equal(one.y, two.y)
        assert not one.X.equals(other.X)


@given(seed=SEEDS)
def test_sampled_groups_follow_their_seed(seed):
    labels = np.arange(200) % 10 == 0
    for kind in (int, np.random.RandomState, np.random.default_rng):
        one, two, other = (sample_groups(labels, 3, random_state=kind(s)) for s in (seed, seed, seed + 1))
        pd.testing.assert_series_equal(one, two)
        assert not one.equals(other)


def test_audits_follow_their_seed(people):
    def table(random_state):
        settings = {"X": people.values, "resamples": 20, "random_state": random_state}
        return audit(people.values[:, 0], sensitive_features=people.names, **settings).to_frame()

    first = table(5)
    pd.testing.assert_frame_equal(first, table(5), check_exact=True)
    assert not first.equals(table(6))
    one, two = (table(np.random.RandomState(5)) for _ in range(2))
    pd.testing.assert_frame_equal(one, two, check_exact=True)


@given(data=st.data())
def test_repair_has_nothing_random(data, tame_tables):
    table = data.draw(tame_tables(max_width=1))
    groups = {"sensitive_features": table.names}
    one, two = (
        ScoreRepair(groups=Groups(min_size=2), strength=0.5).fit_transform(table.values[:, 0], **groups)
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)
