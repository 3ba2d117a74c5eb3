import dataclasses
from collections import Counter

import numpy as np
import pytest

from evenout import Groups
from evenout.core.sketch import FrequentValues
from evenout.groups.read import STRICT, read_groups
from evenout.out_of_core.survey import Survey, draw_reference, sampling_rates, settle_groups, survey_rows


def _draw(engine, size, seed=0):
    survey = survey_rows(engine, rules=Groups(), reference_size=size, seed=seed)
    groups, counts = settle_groups(survey, STRICT)
    return *draw_reference(engine, survey, groups.code_of, counts, reference_size=size, seed=seed), counts


def test_rates_add_up_to_the_reference_and_keep_small_groups():
    counts = np.array([20, 5_000, 200_000, 0])
    rates = sampling_rates(counts, 10_000)
    assert (rates * counts).sum() == pytest.approx(10_000)
    assert rates[0] == 1
    assert rates[1] * counts[1] >= 1000
    np.testing.assert_array_equal(sampling_rates(counts, 205_020), 1)


def test_all_rows_come_in_their_order_if_they_fit(table, engine):
    reference, complete, _ = _draw(engine(table, 7), 450)
    assert complete
    np.testing.assert_array_equal(reference.X, table.X)


def test_drawn_rows_do_not_depend_on_partitions_or_order(tables, engine):
    table = tables(3000)
    first, *_ = _draw(engine(table, 1), 200)
    for other in (engine(table, 13), engine(table.taken(np.arange(3000)[::-1]), 4)):
        again, *_ = _draw(other, 200)
        np.testing.assert_array_equal(again.X, first.X)
        np.testing.assert_array_equal(again.codes, first.codes)
    different, *_ = _draw(engine(table, 1), 200, seed=1)
    assert different.X.shape != first.X.shape or (different.X != first.X).any()


def test_each_group_is_drawn_at_its_rate(tables, engine):
    table = tables(6000)
    reference, _, counts = _draw(engine(table, 3), 900)
    wanted = sampling_rates(counts, 900) * counts
    drawn = np.bincount(reference.codes, minlength=3)
    assert (np.abs(drawn - wanted[:3]) < 5 * np.sqrt(wanted[:3]) + 1).all()


@pytest.mark.parametrize("cuts", [1, 8])
def test_rows_that_occur_often_are_drawn_in_proportion(tables, engine, cuts):
    table = tables(5000)
    X = table.X.copy()
    X.iloc[1000:2500] = 0.0  # three in ten rows are alike
    reference, *_ = _draw(engine(dataclasses.replace(table, X=X), cuts), 500)
    share = (reference.X == 0).all(axis=1).mean()
    assert abs(share - 0.3) < 0.06
    assert abs(len(reference.X) - 500) < 120


@pytest.mark.parametrize("seed", range(6))
def test_groups_settle_as_in_memory(seed):
    rng = np.random.default_rng(seed)
    counts = np.r_[rng.integers(1, 6, size=4), rng.integers(3, 40, size=4)]
    labels = np.repeat([f"g{i}" for i in rng.permutation(8)], counts)
    memory = read_groups(labels, len(labels), Groups(min_size=6, small="merge"))
    survey = Survey(Counter(labels.tolist()), 3, FrequentValues.of(np.empty(0, dtype=np.uint64), 1))
    settled, rows = settle_groups(survey, Groups(min_size=6, small="merge"))
    assert settled.labels == memory.labels
    assert rows.tolist() == [*memory.counts.tolist(), 3]
    assert [settled.code_of[label] for label in labels] == memory.codes.tolist()
