"""Every kind of groups in a population with known truth: unseen bias is right, and no gap is found where none is."""

import warnings

import numpy as np
import pandas as pd
import pytest

from evenout import GroupProbabilities, Groups
from evenout.core.cells import CrossFit, collect_cells
from evenout.core.path import TradeoffPath
from evenout.core.registry import PARITY
from evenout.groups.model import count_rows, read_crossed, settle_grouping

PLAIN = Groups(bands=4, min_size=10)
KINDS = {
    "bands": (["age"], {"continuous": ("age",)}, False),
    "bands and sex": (["age", "sex"], {"continuous": ("age",), "bands": 3}, False),
    "each": (["age", "sex", "town"], {"continuous": ("age",), "cross": False}, False),
    "both": (["sex", "town"], {"cross": "both"}, False),
    "strata": (["sex"], {}, True),
    "bands in strata": (["age"], {"continuous": ("age",)}, True),
    "probable": (None, {}, False),
}


def people(n, rng, gap):
    """Columns, and scores that rise with age, for women and in one town by ``gap``, and with the product by much."""
    age, sex, town = rng.random(n), rng.integers(0, 2, n), rng.integers(0, 3, n)
    product = rng.integers(0, 3, n)
    nuisance = rng.normal(size=n) + gap * (2 * age + sex + (town == 2))
    signal = rng.normal(size=n) + product
    S = np.column_stack([signal, nuisance, signal + nuisance + rng.normal(size=n)])
    columns = pd.DataFrame({"age": age, "sex": sex, "town": town, "product": product})
    return S, S.mean(axis=1), columns


def members_of(kind, columns, rng):
    names, changes, given = KINDS[kind]
    sure = np.clip(0.2 + 0.6 * columns["sex"] + 0.1 * rng.normal(size=len(columns)), 0, 1)
    sensitive = (
        GroupProbabilities(np.column_stack([sure, 1 - sure]), sufficient=True) if names is None else columns[names]
    )
    rules = PLAIN.but(**changes)
    crossed = read_crossed(sensitive, rules, len(columns), given=columns[["product"]] if given else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return settle_grouping(crossed.coder, count_rows(crossed.coder, crossed.numbers), ("all",), rules).members(
            crossed.numbers
        )


def cross_of(kind, n, rng, gap):
    S, t, columns = people(n, rng, gap)
    members = members_of(kind, columns, rng)
    args = {"n_groups": members.n_groups, "n_sets": 5}
    return CrossFit.of_folds(collect_cells(S, t, np.ones(n), members, rng.permutation(n) % 5, **args))


QUICK = ("bands", "each", "strata", "probable")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind not in QUICK)) for kind in KINDS])
def test_unseen_bias_is_that_of_fresh_people(kind):
    rng, fits = np.random.default_rng(0), 30
    S, t, columns = people(100_000, np.random.default_rng(1), 0.5)
    members, one = members_of(kind, columns, np.random.default_rng(2)), np.zeros(100_000, dtype=int)
    fresh = collect_cells(S, t, np.ones(100_000), members, one, n_groups=members.n_groups, n_sets=1)
    truth = float(PARITY.training_bias(fresh, np.eye(4)[3:])[0])
    alpha = 1000.0 / truth
    base, said, got = [], [], []
    for _ in range(fits):
        path = TradeoffPath(cross_of(kind, 600, rng, 0.5), {PARITY: 1.0}, noise_aware=True)
        base.append(path.target_bias())
        said.append(float(path.bias(alpha)))
        got.append(PARITY.training_bias(fresh, path.fold_weights(np.array([alpha]), "training")[0])[0])
    off, slack = np.array(said) - got, 0.03 * truth  # knots, cuts and shares of the rows are learnt too
    assert abs(np.mean(base) - truth) < 3.5 * np.std(base) / np.sqrt(fits) + slack
    assert abs(np.mean(off)) < 3.5 * np.std(off) / np.sqrt(fits) + slack
    assert np.mean(got) < 0.5 * truth


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_no_gap_is_found_where_there_is_none(kind):
    rng = np.random.default_rng(3)
    found = [PARITY.gap_p_value(cross_of(kind, 500, rng, 0.0).whole) for _ in range(400)]
    assert 0.015 < np.mean(np.array(found) < 0.05) < 0.09
