"""Pools of detectors: names and objects in, one n x k matrix of raw scores out, ready to score new rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from evenout.core.types import FloatArray
from evenout.detectors.adapt import GroupAware, fit_foreign, fit_group_aware
from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.tails import Tails

POOLS = ("paper", "diverse", "precomputed")

_LOF = (5, 10, 15, 20, 25, 30)
_KNN = (2, 4, 6, 8, 10)
_TREES = (25, 50, 75, 100, 125, 150, 175)


class Part(Protocol):
    """A fitted source of one or more score columns."""

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Raw scores of shape (m, columns)."""


@dataclass(frozen=True)
class Precomputed:
    """Scores that come ready: X is the score matrix."""

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:  # noqa: ARG002
        """X itself."""
        return X


@dataclass(frozen=True)
class FittedPool:
    """A pool after fitting: ``names`` of the k columns and the parts that make them, in this order."""

    names: tuple[str, ...]
    parts: tuple[Part | GroupAware, ...]

    def score(
        self, X: FloatArray, *, n_threads: int = 1, sensitive_features: Any = None, device: str = "cpu"
    ) -> FloatArray:
        """Raw scores of shape (m, k), higher = more outlying; only a `GroupAware` part uses the groups."""
        grouped = [part.name for part in self.parts if isinstance(part, GroupAware)]
        if grouped and sensitive_features is None:
            raise ValueError(
                f"sensitive_features is missing: these detectors use the group of every row: {', '.join(grouped)}; "
                "pass sensitive_features=<array, Series or DataFrame>, or leave these detectors out"
            )
        columns = []
        for part in self.parts:
            if isinstance(part, GroupAware):
                columns.append(part.score(X, n_threads=n_threads, sensitive_features=sensitive_features))
            elif device == "cpu":
                columns.append(part.score(X, n_threads=n_threads))
            else:
                from evenout.backends import gpu

                columns.append(gpu.score(part, X, n_threads=n_threads, device=device))
        return np.hstack(columns)


def fit_pool(
    detectors: Any,
    X: FloatArray,
    *,
    seed: int,
    n_threads: int = 1,
    sensitive_features: Any = None,
    device: str = "cpu",
) -> tuple[FittedPool, FloatArray]:
    """Fit a pool on the training rows.

    Parameters
    ----------
    detectors : str or sequence
        A name of `POOLS`, or a list of detectors, functions, ``(name, detector)`` pairs and the name
        ``"paper"``, mixed freely.
    X : array of shape (n, d)
    seed : int
        For the forests, and for every detector whose random state was left open.
    n_threads : int
    sensitive_features : array, series or frame
        For detectors that say ``needs_groups``, such as `FairLOF`.
    device : {"cpu", "cuda"}
        Where the named pools are fitted; given detectors run where they always do.

    Returns
    -------
    the fitted pool, and the raw training scores of shape (n, k)
    """
    if isinstance(detectors, str) and detectors == "precomputed":
        return FittedPool(tuple(f"score_{j}" for j in range(X.shape[1])), (Precomputed(),)), X
    entries = [detectors] if isinstance(detectors, str) else _entries(detectors)
    names: list[str] = []
    parts: list[Part | GroupAware] = []
    scores: list[FloatArray] = []
    for entry in entries:
        fitted = (
            _fit_named(entry, X, seed, n_threads, device)
            if isinstance(entry, str)
            else _fit_given(entry, names, X, seed, sensitive_features)
        )
        for part_names, part, columns in fitted:
            names += part_names
            parts.append(part)
            scores.append(columns)
    return FittedPool(tuple(names), tuple(parts)), np.hstack(scores)


def _fit_given(
    entry: Any, taken: Sequence[str], X: FloatArray, seed: int, sensitive_features: Any
) -> Sequence[tuple[list[str], Part | GroupAware, FloatArray]]:
    name, detector = entry if isinstance(entry, tuple) else (_name_of(entry), entry)
    unique, copies = name, 1
    while unique in taken:
        copies += 1
        unique = f"{name}_{copies}"
    if getattr(detector, "needs_groups", False) and not isinstance(detector, type):
        aware, column = fit_group_aware(unique, detector, X, sensitive_features)
        return [([unique], aware, column)]
    part, column = fit_foreign(unique, detector, X, seed)
    return [([unique], part, column)]


def _fit_named(
    name: str, X: FloatArray, seed: int, n_threads: int, device: str
) -> Sequence[tuple[list[str], Part | GroupAware, FloatArray]]:
    """The pool of the paper, and with ``"diverse"`` the tails of each feature."""
    if name not in ("paper", "diverse"):
        raise ValueError(
            f"detectors={name!r} is unknown; known names: {', '.join(map(repr, POOLS))}, or pass a list of detectors"
        )
    if device == "cpu":
        neighbours, near = Neighbours.fit(X, lof=_LOF, knn=_KNN, n_threads=n_threads)
        forest, isolation = Forest.fit(X, sizes=_TREES, random_state=seed, n_threads=n_threads)
    else:
        from evenout.backends import gpu

        neighbours, near = gpu.fit_neighbours(X, lof=_LOF, knn=_KNN, n_threads=n_threads, device=device)
        forest, isolation = gpu.fit_forest(X, sizes=_TREES, random_state=seed, device=device)
    near_names = [f"lof_{k}" for k in _LOF] + [f"knn_{k}" for k in _KNN]
    parts: list[tuple[list[str], Part | GroupAware, FloatArray]] = [
        (near_names, neighbours, near),
        ([f"iforest_{size}" for size in _TREES], forest, isolation),
    ]
    if name == "diverse":
        tails, columns = Tails.fit(X)
        parts.append(([f"tail_{feature}" for feature in tails.features], tails, columns))
    return parts


def _entries(detectors: Any) -> list[Any]:
    if not isinstance(detectors, list | tuple):
        raise ValueError(
            f"detectors must be a name ({', '.join(map(repr, POOLS))}) or a list of detectors, "
            f"got {type(detectors).__name__}; put a single detector into a list"
        )
    if len(detectors) == 0:
        raise ValueError("detectors is an empty list; give at least one detector")
    for entry in detectors:
        if isinstance(entry, tuple) and not (len(entry) == 2 and isinstance(entry[0], str)):
            raise ValueError(f"detectors has the entry {entry!r}; a tuple must be (name, detector)")
    return list(detectors)


def _name_of(detector: Any) -> str:
    return getattr(detector, "__name__", type(detector).__name__).lower().strip("<>")
