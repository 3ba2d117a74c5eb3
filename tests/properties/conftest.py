"""Generated data for statements that hold for every input, and how many inputs are tried.

Every run tries the same inputs. ``EVENOUT_DEEP=1 pytest tests/properties`` tries many more of them.
"""

import os
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.conftest import folded

from evenout import FairOutlierEnsemble, Groups
from evenout.core.base_score import learn_scaling, unit_range
from evenout.core.cells import Cells, CrossFit, collect_cells, rank_weights
from evenout.core.content import assign_folds, count_folds
from evenout.detectors import pool as named
from evenout.exceptions import (
    ConstantFeatureWarning,
    ConstantScoreWarning,
    FewPairsWarning,
    NoGapWarning,
    TargetNotReachedWarning,
)

settings.register_profile(
    "quick",
    max_examples=8,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("deep", settings.get_profile("quick"), max_examples=120)
settings.load_profile("deep" if os.environ.get("EVENOUT_DEEP") else "quick")

LEAST, LARGEST = 1e-300, 1e30  # magnitudes of numbers other than 0

_REMARKABLE = (0.0, 1.0, -1.0, 2.0, 1 + 1e-12, LEAST, -LEAST, 1e-160, 1e-30, 1e15, LARGEST, -LARGEST)


@dataclass(frozen=True)
class Table:
    """Raw scores or features of n rows, and their groups, coded 0, 1, ..."""

    values: np.ndarray
    groups: np.ndarray

    @property
    def names(self):
        return np.array(["men", "women", "others"])[self.groups]

    def __len__(self):
        return len(self.groups)

    def __getitem__(self, rows):
        return Table(self.values[rows], self.groups[rows])

    def of(self, values):
        return replace(self, values=values)


@dataclass(frozen=True)
class Problem:
    """Problem that the core solves: scaled scores, target, row weights, groups and folds, and their sums."""

    S: np.ndarray
    t: np.ndarray
    beta: np.ndarray
    groups: np.ndarray
    folds: np.ndarray

    def cells(self, rows=slice(None)) -> Cells:
        parts = (part[rows] for part in (self.S, self.t, self.beta, self.groups, self.folds))
        return collect_cells(*parts, n_groups=self.groups.max() + 1, n_sets=self.folds.max() + 1)

    def cross(self, **more) -> CrossFit:
        return folded(self.cells(), **more)

    @property
    def Z(self):  # noqa: N802
        return np.column_stack([self.S, self.t])

    @property
    def base(self):
        """Weights of the detectors in t, which is their mean, scaled."""
        mean = self.S.mean(axis=1)
        scaling = learn_scaling("minmax", mean[:, None])
        weight = 1.0 / (self.S.shape[1] * float(np.ptp(mean))) if scaling.varies[0] else 0.0
        return np.full(self.S.shape[1], weight)

    def rearranged(self, rows=slice(None), columns=slice(None)):
        return Problem(self.S[rows][:, columns], self.t[rows], self.beta[rows], self.groups[rows], self.folds[rows])


def _numbers(least=LEAST, largest=LARGEST):
    """0 and numbers of any magnitude in between, of both signs."""
    magnitude = st.floats(least, largest)
    remarkable = [x for x in _REMARKABLE if x == 0 or least <= abs(x) <= largest]
    return st.sampled_from(remarkable) | magnitude | magnitude.map(lambda x: -x)


def _columns(n, least=LEAST, largest=LARGEST):
    """n numbers: all alike, two that alternate at random, or anything, repeated or not."""
    number = _numbers(least, largest)
    pair = st.tuples(number, number)
    return (
        number.map(lambda x: np.full(n, x))
        | st.tuples(pair, st.lists(st.booleans(), min_size=n, max_size=n)).map(lambda x: np.where(x[1], *x[0]))
        | arrays(float, n, elements=number)
    )


@st.composite
def _groups(draw, least, most):
    sizes = draw(st.lists(st.integers(least, most), min_size=2, max_size=3))
    codes = np.repeat(np.arange(len(sizes)), sizes)
    return codes[np.array(draw(st.permutations(range(len(codes)))))]


@st.composite
def _wild_tables(draw, max_width=3, most=8, least=LEAST, largest=LARGEST):
    """Two rows of a group or more, constant columns, ties, every magnitude."""
    groups = draw(_groups(2, most))
    width = draw(st.integers(1, max_width))
    values = np.column_stack([draw(_columns(len(groups), least, largest)) for _ in range(width)])
    return Table(values, groups)


@st.composite
def _tame_tables(draw, max_width=4):
    """Random scores, all distinct, often with a gap between the groups: no decision hangs on a tie or on rounding."""
    gap, seed = draw(st.sampled_from([0.0, 1.0, 2.0])), draw(st.integers(0, 2**32 - 1))
    return _random_table(draw(_groups(7, 14)), draw(st.integers(1, max_width)), gap, seed)


def _random_table(groups, width, gap=1.0, seed=0):
    values = np.random.default_rng(seed).gamma(2.0, size=(len(groups), width)) + gap * groups[:, None]
    return Table(values, groups)


def _make_table(n, width, n_groups=2, seed=0):
    """One such table of n rows in groups of equal size."""
    return _random_table(np.arange(n) % n_groups, width, seed=seed)


def _pose(table, scaling="minmax", weighting="rank", seed=0):
    S = learn_scaling(scaling, table.values).transform(table.values)
    t = unit_range(S.mean(axis=1))
    beta = rank_weights(t) if weighting == "rank" else np.ones(len(t))
    return Problem(S, t, beta, table.groups, assign_folds(S, table.groups, count_folds(table.groups), seed=seed))


def _fit(table, detectors="precomputed", *, counted=None, **parameters):
    """Fit, rows ``counted`` by weight or cluster; what is said about the data is no fault, any other warning is."""
    with warnings.catch_warnings():
        said = (ConstantFeatureWarning, ConstantScoreWarning, FewPairsWarning, NoGapWarning)
        for category in (*said, TargetNotReachedWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", "n_neighbors", UserWarning)
        model = FairOutlierEnsemble(detectors, **{"random_state": 0, "groups": Groups(min_size=2), **parameters})
        return model.fit(table.values, sensitive_features=table.names, **(counted or {}))


# Hypothesis takes no fixture that is made anew for each test, and these are mere names.
@pytest.fixture(scope="session")
def numbers():
    return _numbers


@pytest.fixture(scope="session")
def wild_tables():
    return _wild_tables


@pytest.fixture(scope="session")
def tame_tables():
    return _tame_tables


@pytest.fixture(scope="session")
def make_table():
    return _make_table


@pytest.fixture(scope="session")
def pose():
    return _pose


@pytest.fixture(scope="session")
def fit():
    return _fit


@pytest.fixture(scope="module")
def few_trees():
    """The named pools with small forests, which are most of the work on small data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named, "_TREES", (3, 8))
        patch.setattr(named, "_DEFAULT_TREES", (8,))
        yield
