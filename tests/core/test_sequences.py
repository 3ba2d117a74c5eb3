"""Bounds that hold at all times: the closed form by quadrature, the promise by simulation."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from evenout.core.sequences import TIGHTEST, log_evidence, start_shares, upper_bound


@pytest.mark.parametrize(("s", "v", "level"), [(0.5, 0.1, 0.05), (10.0, 20.0, 0.025), (40.0, 300.0, 0.001)])
def test_evidence_is_the_average_over_all_slopes(s, v, level):
    asked = -2 * np.log(level)
    rho = TIGHTEST / (asked + np.log1p(asked))

    def density(slope):
        return (1 - slope) ** (rho - 1) * np.exp(slope * rho)

    def evidence(slope):
        return density(slope) * np.exp(slope * s + v * (np.log1p(-slope) + slope))

    expected = quad(evidence, 0, 1)[0] / quad(density, 0, 1)[0]
    assert log_evidence(np.array(s), np.array(v), np.array(level)) == pytest.approx(np.log(expected), abs=1e-8)


def test_the_bound_is_where_the_evidence_reaches_the_level():
    v = np.array([0.0, 0.3, 25.0, 1e4, 1e7])
    for level in (0.2, 0.025, 1e-6):
        found = upper_bound(v, level)
        np.testing.assert_allclose(log_evidence(found, v, np.full(5, level)), -np.log(level), rtol=1e-6)
        assert (np.diff(found) > 0).all()


def test_the_bound_is_wider_than_that_for_one_look_and_not_much():
    v = np.array([25.0, 100.0, 1000.0])
    once = norm.isf(0.025) * np.sqrt(v)
    assert (upper_bound(v, 0.025) > once).all()
    assert (upper_bound(v, 0.025) < 1.9 * once).all()


def test_a_single_row_can_never_be_enough():
    assert upper_bound(np.array([0.0]), 0.05)[0] > 1.0


@pytest.mark.parametrize("chance", [0.3, 0.5])
def test_the_bound_is_ever_crossed_no_more_often_than_promised(chance):
    """1,000 sequences of 3,000 flags: looking after every row, at 10 %."""
    rng = np.random.default_rng(1)
    x = (rng.random((1000, 3000)) < chance).astype(float)
    n = np.arange(1, 3001)
    guess = np.column_stack([np.full(1000, 0.5), (x.cumsum(axis=1)[:, :-1] + 0.5) / (n[:-1] + 1)])
    s, v = (x - chance).cumsum(axis=1), ((x - guess) ** 2).cumsum(axis=1)
    ever = (log_evidence(np.maximum(s, 0), v, np.array(0.1)) > -np.log(0.1)).any(axis=1).mean()
    assert 0.01 < ever <= 0.1 + 3 * np.sqrt(0.09 / 1000)


def test_starts_share_one_level():
    shares = start_shares(np.arange(1, 100_001))
    assert shares[0] == 0.5
    assert shares.sum() == pytest.approx(1.0, abs=1e-4)
    assert shares.sum() < 1.0
