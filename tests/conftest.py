"""Small score matrices with groups of unequal size, a table for the estimator, and a browser for the tests of pages."""

import os
import shutil
from dataclasses import dataclass, replace

# Tests share the cores already: threads of OpenMP would spin for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1" if "PYTEST_XDIST_WORKER" in os.environ else str(os.cpu_count()))

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_array, hstack

from evenout import FairOutlierEnsemble
from evenout.core import pairwise
from evenout.core.base_score import learn_scaling, unit_range
from evenout.core.cells import Cells, CrossFit, collect_cells, rank_weights
from evenout.core.content import assign_folds, count_folds
from evenout.core.membership import Block, Comparison, Membership
from evenout.core.pairwise import pair_sums

CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(frozen=True)
class Problem:
    """Rows, the sums over each of their folds, and all that these say with the weights alone left out."""

    X: np.ndarray
    S: np.ndarray
    t: np.ndarray
    beta: np.ndarray
    groups: np.ndarray
    folds: np.ndarray
    cells: Cells
    cross: CrossFit
    sample_weight: np.ndarray | None = None
    clusters: np.ndarray | None = None

    @property
    def n_groups(self):
        return int(self.groups.max()) + 1

    @property
    def Z(self):  # noqa: N802
        return np.column_stack([self.S, self.t])


def make_problem(sizes=(40, 25, 15), k=5, d=3, unknown=0, seed=0, gap=0.8, **more) -> Problem:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    groups = rng.permutation(np.concatenate([groups, np.full(unknown, -1)]))
    X = rng.normal(size=(len(groups), d)) + gap * np.maximum(groups, 0)[:, None] * (np.arange(d) == 0)
    raw = np.abs(X @ rng.normal(size=(d, k))) + 0.3 * rng.exponential(size=(len(groups), k))
    S = learn_scaling("minmax", raw).transform(raw)
    t = unit_range(S.max(axis=1))
    return problem_from(X, S, t, groups, seed=seed, **more)


def problem_from(
    X, S, t, groups, *, seed=0, pairs=True, own=None, base=None, sample_weight=None, clusters=None
) -> Problem:
    beta = rank_weights(t, sample_weight)
    n_folds, n_groups = count_folds(groups), int(groups.max()) + 1
    folds = assign_folds(S, groups, n_folds, seed, clusters)
    shape = {"n_groups": n_groups, "n_sets": n_folds}
    counted = {"sample_weight": sample_weight, "clusters": clusters}
    cells = collect_cells(S, t, beta, groups, folds, **shape, **counted)
    sums = None
    if pairs:
        sums = pair_sums(X, np.column_stack([S, t]), groups, folds, n_groups=n_groups, n_folds=n_folds)
    cross = with_sums(folded(cells, base), sums, own)
    return Problem(X, S, t, beta, groups, folds, cells, cross, sample_weight, clusters)


def folded(cells, base=None) -> CrossFit:
    """Sums of folds that one model scores, whose target has the weights ``base`` (k,)."""
    cross = CrossFit.of_folds(cells)
    if base is None:
        return cross
    parts = {name: getattr(cross, name) for name in ("whole", "training", "held")}
    return replace(cross, **{n: replace(p, base=np.repeat(base[None], p.n_sets, axis=0)) for n, p in parts.items()})


def pairs_among(pairs, sets):
    """Form and mass of the pairs with both rows in some of the folds, for each set of folds."""
    masks = [np.logical_and.outer(kept, kept) for kept in sets]
    form = np.stack([(pairs.form * mask[..., None, None]).sum(axis=(1, 2)) for mask in masks])
    return [form, np.stack([(pairs.mass * mask).sum(axis=(1, 2)) for mask in masks])]


def with_sums(cross, pairs=None, own=None) -> CrossFit:
    """The same with what individual fairness and a form of one's own have collected."""
    parts = {"whole": cross.whole, "training": cross.training, "held": cross.held}
    if pairs is not None:
        folds = np.arange(cross.n_folds)
        found = {
            "whole": [part[None] for part in pairs.total()],
            "training": pairs_among(pairs, [folds != fold for fold in folds]),
            "held": pairs_among(pairs, [folds == fold for fold in folds]),
        }
        for name, (form, mass) in found.items():
            parts[name] = replace(parts[name], sums={"individual.form": form, "individual.mass": mass})
    if own is not None:
        for name, part in parts.items():
            forms = np.repeat(own[None], part.n_sets, axis=0)
            parts[name] = replace(part, sums={**part.sums, "own.form": forms})
    return replace(cross, **parts)


@pytest.fixture
def make():
    return make_problem


@pytest.fixture
def summed():
    return with_sums


@pytest.fixture
def build():
    return problem_from


@pytest.fixture(scope="session")
def problem() -> Problem:
    return make_problem()


@pytest.fixture(scope="module")
def browser():
    """A real Chromium, from the system's packages."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("EVENOUT_REQUIRE_BROWSER"):
            pytest.fail("chromium is missing, and EVENOUT_REQUIRE_BROWSER asks for it")
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def data():
    """Three groups, the third three times as wide in one of four features."""
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b", "c"], size=800, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(800, 4))
    X[:, 0] *= 1 + 2 * (groups == "c")
    return pd.DataFrame(X, columns=list("wxyz")), pd.Series(groups)


@pytest.fixture(scope="module")
def fitted(data):
    return FairOutlierEnsemble(random_state=0).fit(data[0], sensitive_features=data[1])


def probable(weights):
    """Groups that are known by their probabilities, shape (n, G); a row of zeros is of none."""
    G = weights.shape[1]
    overlaps = tuple((g, h) for g in range(G) for h in range(g + 1, G))
    return Membership(csc_array(weights), Comparison(G, Comparison.of_all(G).blocks, overlaps))


def side_by_side(parts, weights):
    """Several groupings of the same rows, such as several attributes, each with the weight it counts by."""
    blocks, overlaps, start = [], [], 0
    for part, weight in zip(parts, weights, strict=True):
        for block in part.compared.blocks:
            groups = tuple(start + g for g in block.groups)
            blocks.append(Block(groups, weight * block.weight, block.by_size))
        overlaps += [(start + g, start + h) for g, h in part.compared.overlaps]
        overlaps += [(g, start + h) for g in range(start) for h in range(part.n_groups)]
        start += part.n_groups
    joined = csc_array(hstack([part.weights for part in parts]))
    return Membership(joined, Comparison(start, tuple(blocks), tuple(overlaps)))


def distance_range(X, groups, n_groups, *, n_threads=1):
    """Smallest and largest distance between rows of different groups, as `pair_sums` finds them; 0 without any."""
    order, bounds = pairwise._by_cell(groups, np.zeros_like(groups), n_groups, 1)
    points, unit = pairwise._standardised(X[order])
    return tuple(unit * end for end in pairwise._range(points, bounds, n_threads))


def within_folds(form):
    """Forms (N, K, q, q) of the pairs with both rows in one fold, of those of `PairSums`."""
    return np.einsum("nffab->nfab", form)
