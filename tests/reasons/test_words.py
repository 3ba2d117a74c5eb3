"""Every number in a reason can be checked against the training rows."""

import re

import numpy as np
import pytest

from evenout.fitting.result import Background
from evenout.reasons.words import Features, ReasonWords
from evenout.tables.columns import NUMBER, Categories, Numbers
from evenout.tables.encoder import TableEncoder


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return np.column_stack([rng.lognormal(size=1000), rng.integers(0, 4, 1000)])


@pytest.fixture(scope="module")
def words(rows):
    background = Background.of(rows, np.zeros(1000, dtype=int), np.arange(1000) % 5, 1)
    return ReasonWords(background, Features.of(None, 2, ["amount", "count"]), rows="clients")


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


@pytest.fixture(scope="module")
def pairs():
    """Weight goes with height; a job goes with a home; the last column goes with nothing."""
    rng = np.random.default_rng(1)
    height = rng.normal(170, 10, 900)
    weight = height - 100 + rng.normal(0, 2, 900)
    clerk = (rng.random(900) < 0.5).astype(float)
    own = np.where(rng.random(900) < 0.99, clerk, 1 - clerk)
    rows = np.column_stack([height, weight, rng.normal(size=900), clerk, 1 - clerk, own, 1 - own])
    table = TableEncoder().take_columns(
        [Numbers(name, 0.0, NUMBER, "", "") for name in ("height", "weight", "noise")]
        + [Categories("job", ("clerk", "cook"), False, ""), Categories("home", ("own", "rent"), False, "")]
    )
    background = Background.of(rows, np.zeros(900, dtype=int), np.arange(900) % 5, 1)
    return ReasonWords(background, Features.of(table, rows.shape[1]))


def test_a_common_value_is_named_with_the_column_that_makes_it_rare(pairs):
    words = pairs
    row = np.array([174.0, 66.0, 0.1, 1.0, 0.0, 1.0, 0.0])  # neither is unusual, but 66 kg at 174 cm is
    text = words.value(1, 66.0, row, None)
    said = re.search(r"common by itself .*, but lower than in (\d+) of (\d+) training rows with a similar height", text)
    crowd = words.background.crowd
    near = np.argsort(np.abs(crowd[:, 0] - 174.0))[: int(said[2])]
    assert int(said[1]) >= 0.95 * int(said[2]) >= 0.95 * 20
    assert (crowd[near, 1] > 66.0).sum() == pytest.approx(int(said[1]), abs=2)
    assert words.stands_out(1, row, None)
    text = words.value(2, 0.1, row, None)
    assert text.endswith(", and in no pair with another column rare")
    assert not words.stands_out(2, row, None)


def test_a_common_category_is_named_with_the_column_that_makes_it_rare(pairs):
    words = pairs
    odd = np.array([170.0, 70.0, 0.1, 1.0, 0.0, 0.0, 1.0])  # a clerk who rents
    said = re.search(
        r"home: rent, as \d+% of rows .*but unlike (\d+) of (\d+) training rows with job clerk",
        words.value(4, "rent", odd, None),
    )
    clerks = words.background.crowd[words.background.crowd[:, 3] == 1.0]
    assert (int(said[1]), int(said[2])) == ((clerks[:, 6] == 0.0).sum(), len(clerks))
    usual = np.array([170.0, 70.0, 0.1, 1.0, 0.0, 1.0, 0.0])
    assert "but" not in words.value(4, "own", usual, None)


def test_a_value_that_is_rare_among_similar_rows_alone_says_so(pairs):
    words = pairs
    row = np.array([170.0, 70.0, 0.3, 1.0, 0.0, 1.0, 0.0])
    near = np.tile(row, (30, 1))
    near[:, 2] = np.linspace(-1.0, 0.0, 30)
    assert words.value(2, 0.3, row, near[0], near).endswith("but higher than in 30 of the 30 most similar rows")
