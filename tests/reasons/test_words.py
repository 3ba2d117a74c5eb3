"""Every number in a reason can be checked against the training rows."""

import numpy as np
import pytest

from evenout.fitting.background import Background
from evenout.reasons.features import Features
from evenout.reasons.words import Words


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return np.column_stack([rng.lognormal(size=1000), rng.integers(0, 4, 1000)])


@pytest.fixture(scope="module")
def words(rows):
    background = Background.of(rows, np.zeros(1000, dtype=int), np.arange(1000) % 5, 1)
    return Words(background, Features.of_rows(["amount", "count"], 2), rows="clients")


@pytest.mark.parametrize("column", [0, 1])
def test_shares_are_true_and_tight(words, rows, column):
    for value in [*np.quantile(rows[:, column], [0, 0.003, 0.1, 0.5, 0.77, 0.991, 1]).tolist(), -1.0, 99.0, 1.5]:
        below, above = words.beyond(value, column)
        true_below, true_above = (rows[:, column] < value).mean(), (rows[:, column] > value).mean()
        assert true_below - 0.0101 <= below <= true_below + 1e-12
        assert true_above - 0.0101 <= above <= true_above + 1e-12


@pytest.mark.parametrize(
    ("value", "beside", "said"),
    [
        (1e3, None, "amount: 1,000, higher than in any training row (80% of clients: "),
        (-1.0, None, "amount: -1, lower than in any training row (80% of clients: "),
        (4.0, 1.25, "; those most similar: 1.25)"),
        (1.05, 2.0, "amount: 1.05, common by itself (80% of clients: "),
    ],
)
def test_what_is_said_of_a_value(words, value, beside, said):
    row = np.array([value, 1.0])
    company = None if beside is None else np.array([beside, 1.0])
    assert said in words.value(0, value, row, company)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((0.2, 0.1), ["counts 50% less after fairness"]),
        ((0.2, 0.3), ["counts 50% more after fairness"]),
        ((0.2, -0.1), ["no longer counts after fairness"]),
        ((0.2, 0.19), []),
        ((0.02, 0.1), ["counts mostly because of fairness"]),
        ((-0.1, 0.1), ["counts mostly because of fairness"]),
        ((0.0, 0.0), []),
    ],
)
def test_what_fairness_did_is_said_where_it_matters(words, parts, said):
    assert words.notes(0, np.array(parts), []) == said
