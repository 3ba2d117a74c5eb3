"""Pools of detectors: names and objects in, one n x k matrix of raw scores out, ready to score new rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evenout.core.types import FloatArray, IntArray
from evenout.detectors.adapt import (
    GroupAware,
    cross_fit_foreign,
    cross_fit_group_aware,
    fit_foreign,
    fit_group_aware,
)
from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.parts import Family, Part, Without, by_refitting
from evenout.detectors.tails import Tails
from evenout.storage.fields import Fields

POOLS = ("paper", "diverse", "precomputed")

_LOF = (5, 10, 15, 20, 25, 30)
_KNN = (2, 4, 6, 8, 10)
_TREES = (25, 50, 75, 100, 125, 150, 175)


@dataclass(frozen=True)
class Precomputed:
    """Scores that come ready: X is the score matrix."""

    width: int
    kind: ClassVar[str] = "precomputed"

    @classmethod
    def read(cls, data: Fields, n_rows: int, n_features: int) -> "Precomputed":  # noqa: ARG003
        """Out of a model file."""
        return cls(n_features)

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:  # noqa: ARG002
        """X itself."""
        return X


# The families whose state is plain arrays, so that a model file can hold them.
FAMILIES: dict[str, type[Family]] = {family.kind: family for family in (Neighbours, Forest, Tails, Precomputed)}


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
                from evenout import gpu

                columns.append(gpu.score(part, X, n_threads=n_threads, device=device))
        return np.hstack(columns)


class _Fitted(NamedTuple):
    """One `Part`, or `GroupAware`, with its columns; ``without`` only where folds were given."""

    names: Sequence[str]
    part: Any
    scores: FloatArray
    without: Without | None = None


@dataclass(frozen=True)
class _Task:
    """What to fit on, and how; see `cross_fit_pool`."""

    X: FloatArray
    folds: IntArray | None
    seed: int
    n_threads: int
    sensitive_features: Any
    device: str

    def fit(
        self, names: Sequence[str], plain: Callable[..., Any], crossed: Callable[..., Any], **settings: Any
    ) -> _Fitted:
        """Fit with ``plain`` or, where there are folds, with its twin that can leave them out."""
        if self.folds is None:
            return _Fitted(names, *plain(X=self.X, **settings))
        return _Fitted(names, *crossed(X=self.X, folds=self.folds, **settings))


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
    pool, scores, _ = _fit(detectors, _Task(X, None, seed, n_threads, sensitive_features, device))
    return pool, scores


def cross_fit_pool(
    detectors: Any,
    X: FloatArray,
    folds: IntArray,
    *,
    seed: int,
    n_threads: int = 1,
    sensitive_features: Any = None,
    device: str = "cpu",
) -> tuple[FittedPool, FloatArray, Without]:
    """Fit a pool on the training rows, and be ready to score them by detectors that have not seen a fold.

    Parameters
    ----------
    detectors, X, seed, n_threads, sensitive_features, device
        As in `fit_pool`.
    folds : array of int, shape (n,)
        The fold of each row.

    Returns
    -------
    FittedPool, and array of shape (n, k)
        What `fit_pool` returns, bit for bit.
    function of a fold
        The raw scores of all rows, shape (n, k), by detectors that were fitted without the rows of the fold: those are
        scored as new rows, the others as training rows. The forests of the named pools are spared this from 1000 rows
        on: a row of the fold is scored by the trees that have not drawn it.
    """
    return _fit(detectors, _Task(X, np.asarray(folds), seed, n_threads, sensitive_features, device))


def _fit(detectors: Any, task: _Task) -> tuple[FittedPool, FloatArray, Without]:
    if isinstance(detectors, str) and detectors == "precomputed":
        names = tuple(f"score_{j}" for j in range(task.X.shape[1]))
        return FittedPool(names, (Precomputed(len(names)),)), task.X, lambda fold: task.X  # noqa: ARG005
    fitted: list[_Fitted] = []
    for entry in [detectors] if isinstance(detectors, str) else _entries(detectors):
        taken = [name for part in fitted for name in part.names]
        fitted += _fit_named(entry, task) if isinstance(entry, str) else [_fit_given(entry, taken, task)]
    pool = FittedPool(tuple(name for part in fitted for name in part.names), tuple(part.part for part in fitted))
    each = [part.without for part in fitted if part.without is not None]
    return (
        pool,
        np.hstack([part.scores for part in fitted]),
        lambda fold: np.hstack([without(fold) for without in each]),
    )


def _fit_given(entry: Any, taken: Sequence[str], task: _Task) -> _Fitted:
    name, detector = entry if isinstance(entry, tuple) else (_name_of(entry), entry)
    unique, copies = name, 1
    while unique in taken:
        copies += 1
        unique = f"{name}_{copies}"
    if hasattr(detector, "fit_columns"):
        return _fit_columns(unique, detector, task)
    given = {"name": unique, "detector": detector}
    if getattr(detector, "needs_groups", False) and not isinstance(detector, type):
        groups = task.sensitive_features
        return task.fit([unique], fit_group_aware, cross_fit_group_aware, **given, sensitive_features=groups)
    return task.fit([unique], fit_foreign, cross_fit_foreign, **given, seed=task.seed)


def _fit_columns(name: str, family: Any, task: _Task) -> _Fitted:
    """A family of the user's own: several columns at once; folds are left out by fitting again."""

    def fit(rows: FloatArray, fold: int = -1) -> tuple[Part, FloatArray]:  # noqa: ARG001
        part, scores = family.fit_columns(rows, seed=task.seed, n_threads=task.n_threads)
        return part, np.asarray(scores, dtype=float)

    part, scores = fit(task.X)
    if scores.ndim != 2 or len(scores) != len(task.X) or not np.isfinite(scores).all():
        raise ValueError(
            f"detector {name!r} returned scores of shape {scores.shape}; finite scores of shape ({len(task.X)}, "
            "number of columns) are needed"
        )
    names = [f"{name}:{column}" for column in getattr(part, "names", range(scores.shape[1]))]
    return _Fitted(names, part, scores, None if task.folds is None else by_refitting(task.X, task.folds, fit))


def _fit_named(name: str, task: _Task) -> list[_Fitted]:
    """The pool of the paper, and with ``"diverse"`` the tails of each feature."""
    if name not in ("paper", "diverse"):
        raise ValueError(
            f"detectors={name!r} is unknown; known names: {', '.join(map(repr, POOLS))}, or pass a list of detectors"
        )
    near: dict[str, Any] = {"lof": _LOF, "knn": _KNN, "n_threads": task.n_threads}
    trees: dict[str, Any] = {"sizes": _TREES, "random_state": task.seed, "n_threads": task.n_threads}
    near_names = [f"lof_{k}" for k in _LOF] + [f"knn_{k}" for k in _KNN]
    tree_names = [f"iforest_{size}" for size in _TREES]
    if task.device == "cpu":
        neighbours = task.fit(near_names, Neighbours.fit, Neighbours.cross_fit, **near)
        forest = task.fit(tree_names, Forest.fit, Forest.cross_fit, **trees)
    else:
        from evenout import gpu

        near["device"] = trees["device"] = task.device
        neighbours = task.fit(near_names, gpu.fit_neighbours, gpu.cross_fit_neighbours, **near)
        forest = task.fit(tree_names, gpu.fit_forest, gpu.cross_fit_forest, **trees)
    if name == "paper":
        return [neighbours, forest]
    tails = task.fit([], Tails.fit, Tails.cross_fit)
    return [neighbours, forest, tails._replace(names=[f"tail_{feature}" for feature in tails.part.features])]


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
