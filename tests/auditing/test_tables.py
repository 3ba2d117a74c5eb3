import numpy as np
import pytest

from evenout.core import resampling as tables
from evenout.core.resampling import class_table, level_table

SCORES = np.array([0.5, 0.1, 0.5, 0.9, 0.1, 0.3, 0.9, 0.2])
GROUPS = np.array([0, 0, 1, 1, 2, 2, 0, 1])
CLASSES = np.array([0, 1, 0, 1, 1, 0, 0, 1])


def draw(batches):
    return np.concatenate(list(batches))


def test_level_table_counts_rows_by_group_class_and_score():
    table = level_table(SCORES, GROUPS, 3, CLASSES, 2)
    counts = table.counts.reshape(3, 2, 5)
    levels = table.values[:5]
    assert levels.tolist() == [0.1, 0.2, 0.3, 0.5, 0.9]
    for score, group, label in zip(SCORES, GROUPS, CLASSES, strict=True):
        assert counts[group, label, levels.tolist().index(score)] == 1  # no two rows are alike here
    assert table.counts.sum() == len(SCORES)


def test_class_table_keeps_only_cells_with_rows():
    table = class_table(SCORES, GROUPS, 3, CLASSES, 2)
    assert table.edges.tolist() == [0, 3, 6]
    assert table.values.tolist() == [0.3, 0.5, 0.9, 0.1, 0.2, 0.9]
    assert table.counts.sum(axis=0).tolist() == [1, 2, 1, 2, 1, 1]


@pytest.fixture(params=["rows", "cells"])
def table(request, monkeypatch):
    if request.param == "cells":
        monkeypatch.setattr(tables, "_ROWS_DRAWN", 0)
    rng = np.random.default_rng(0)
    scores, groups = rng.integers(0, 6, 60) / 6, rng.choice(3, 60, p=[0.5, 0.3, 0.2])
    return level_table(scores, groups, 3, rng.integers(0, 2, 60), 2)


def test_bootstrap_draws_within_groups(table):
    n, size = table.counts, 4000
    drawn = draw(table.bootstrap(size, np.random.default_rng(1)))
    assert drawn.shape == (size, *n.shape)
    assert (drawn.sum(axis=2) == n.sum(axis=1)).all()
    share = n / n.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(drawn.mean(axis=0), n, atol=0.15)
    np.testing.assert_allclose(drawn.var(axis=0), n * (1 - share), atol=0.4)  # multinomial


def test_permutations_shuffle_groups_within_classes(table):
    n, size = table.counts.reshape(3, 2, -1), 4000
    drawn = draw(table.permutations(size, np.random.default_rng(1))).reshape(size, *n.shape)
    assert (drawn >= 0).all()
    assert (drawn.sum(axis=1) == n.sum(axis=0)).all()
    assert (drawn.sum(axis=3) == n.sum(axis=2)).all()
    in_cell, in_class, of_group = n.sum(axis=0), n.sum(axis=(0, 2))[:, None], n.sum(axis=2)[..., None]
    share = of_group / in_class
    np.testing.assert_allclose(drawn.mean(axis=0), in_cell * share, atol=0.12)
    variance = in_cell * share * (1 - share) * (in_class - in_cell) / (in_class - 1)  # hypergeometric
    np.testing.assert_allclose(drawn.var(axis=0), variance, atol=0.2)


def test_draws_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(0)
    scores, groups, order = rng.normal(size=50), rng.integers(0, 2, 50), rng.permutation(50)
    one, other = level_table(scores, groups, 2), level_table(scores[order], groups[order], 2)
    for draws in ("bootstrap", "permutations"):
        first, second = (draw(getattr(t, draws)(20, np.random.default_rng(3))) for t in (one, other))
        assert (first == second).all()


def test_rounding_keeps_mean_and_order_and_is_fine_on_top():
    rng = np.random.default_rng(0)
    scores, limit = rng.standard_t(3, size=20_000), 500
    exact = level_table(scores, np.zeros(20_000, dtype=int), 1)
    rounded = level_table(scores, np.zeros(20_000, dtype=int), 1, max_levels=limit)
    assert len(rounded.values) <= limit + 1
    assert (np.diff(rounded.values) > 0).all()
    assert rounded.counts @ rounded.values == pytest.approx(exact.counts @ exact.values)
    above = np.cumsum(rounded.counts[0][::-1])
    for share in (0.01, 0.1, 0.5):
        nearest = np.abs(above / (20_000 * share) - 1).min()
        assert nearest <= 2 / (limit * np.sqrt(share))


def test_rounding_never_splits_ties():
    scores = np.r_[np.zeros(500), np.linspace(1, 2, 500)]
    rounded = level_table(scores, np.zeros(1000, dtype=int), 1, max_levels=50)
    assert rounded.values[0] == 0
    assert rounded.counts[0, 0] == 500
