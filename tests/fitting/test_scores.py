"""Scaling and base ensemble, learnt on the rows outside of a fold and applied to all of them."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from evenout.core.base_score import COMBINATIONS, SCALINGS, learn_scaling
from evenout.detectors.pool import FittedPool, Precomputed
from evenout.fitting.score_model import learn_scores


@pytest.mark.parametrize("behind", [0, 2])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("combination", [*COMBINATIONS, lambda S: S.mean(axis=1)])
def test_rows_outside_teach_as_a_table_of_their_own(combination, scaling, behind):
    rng = np.random.default_rng(3)
    raw, outside = rng.lognormal(size=(1500, 7 + behind)), rng.random(1500) < 0.8
    raw[:, 2] = 1.0  # says nothing
    pool = FittedPool(tuple("abcdefg"), (Precomputed(7),))
    settings = {"scaling": scaling, "combination": combination, "seed": 5}
    alone = np.ones(int(outside.sum()), dtype=bool)
    expected, _, _ = learn_scores(pool, raw[outside], alone, **settings)
    S, t = expected.of_raw(raw)
    assert_array_equal(expected.scaling.low, learn_scaling(scaling, raw[outside, :7]).low)
    combined = expected.combination.apply(S[outside, :7])
    assert (expected.base_scaling.low, expected.base_scaling.high) == (combined.min(), combined.max())
    for n_threads in (1, 3):
        model, found, base = learn_scores(pool, raw, outside, **settings, n_threads=n_threads)
        assert_array_equal(found, S)
        assert_array_equal(base, t)
        assert [chosen.tolist() for chosen in model.combination.buckets] == [
            chosen.tolist() for chosen in expected.combination.buckets
        ]
        for name in ("low", "high", "mean", "std", "sorted_scores"):
            assert_array_equal(getattr(model.scaling, name), getattr(expected.scaling, name))
            assert_array_equal(getattr(model.base_scaling, name), getattr(expected.base_scaling, name))
