"""Pools of detectors: the named ones, and lists of a user's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from evenout.core.checks import MOST_ROWS, Within, entries_of, require
from evenout.core.parallel import side_by_side
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.adapt import GroupAware, cross_fit_foreign, cross_fit_group_aware, fit_foreign, fit_group_aware
from evenout.detectors.family import Family, Part, Without, by_refitting
from evenout.detectors.forest import Forest
from evenout.detectors.nearness import Nearness
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.tails import Sides, Tails
from evenout.detectors.units import Units, feature_labels

NAMED = ("paper", "diverse", "default")
BY_FAMILY = ("diverse", "default")  # whose average is taken family by family

_LOF = (5, 10, 15, 20, 25, 30)
_KNN = (2, 4, 6, 8, 10)
_TREES = (25, 50, 75, 100, 125, 150, 175)
# The default pool's. More columns of a kind hardly change its mean, and near-equal ones give wild fair weights.
_DEFAULT_LOF = (10, 20, 30)
_DEFAULT_KNN = (5, 10, 20, 30)
_DEFAULT_TREES = (200,)
OWN = (Neighbours, Forest, Tails, Sides, Nearness)  # the parts of the named pools


class Fitted(NamedTuple):
    """One `Part`, or `GroupAware`, with its columns; ``without`` only where folds were given."""

    names: Sequence[str]
    part: Any
    scores: FloatArray
    without: Without | None = None

    def families(self, *, by_family: bool = True) -> list[str]:
        """Of the columns: what stands before the first ``_`` or ``:``; a given detector is a family of its own.

        Without ``by_family`` each column is one, but for `Sides`.
        """
        if not isinstance(self.part, OWN if by_family else Sides):
            return list(self.names)
        return [name.replace(":", "_").partition("_")[0] for name in self.names]


@dataclass(frozen=True)
class Task:
    """What to fit on, and how; see `cross_fit_pool`. ``features`` names the columns of X."""

    X: FloatArray
    folds: IntArray | None
    seed: int
    n_threads: int
    sensitive_features: Any
    device: str
    units: Units | None
    features: Sequence[str]
    sides: bool = False
    content: FloatArray | None = None

    def inside(self) -> "Task":
        """The same in the units of the named pools."""
        if self.units is None:
            return self
        features = [self.features[j] for j in self.units.kept]
        content = self.units.apply(self.X, n_threads=self.n_threads) if self.content is None else self.content
        return replace(self, X=content, features=features)

    def fit(
        self, names: Sequence[str], plain: Callable[..., Any], crossed: Callable[..., Any], **settings: Any
    ) -> Fitted:
        """Fit with ``plain`` or, where there are folds, with its twin that can leave them out."""
        if self.folds is None:
            return Fitted(names, *plain(X=self.X, **settings))
        return Fitted(names, *crossed(X=self.X, folds=self.folds, **settings))


def fit_named(name: str, task: Task) -> list[Fitted]:
    """The pool of the paper, with ``"diverse"`` also the tails of each feature, or the default pool."""
    if name not in NAMED:
        known = ", ".join(map(repr, (*NAMED, "precomputed")))
        raise ValueError(f"detectors={name!r} is unknown; known names: {known}, or pass a list of detectors")
    found = _fit_default(task) if name == "default" else _fit_paper(name, task)
    return [*found, _fit_by_feature(task, Sides, "side")] if task.sides else found


def _fit_paper(name: str, task: Task) -> list[Fitted]:
    """The 18 detectors of the paper, with scikit-learn's own trees, and for ``"diverse"`` the tails."""
    near: dict[str, Any] = {"lof": _LOF, "knn": _KNN, "n_threads": task.n_threads}
    trees: dict[str, Any] = {"sizes": _TREES, "random_state": task.seed, "n_threads": task.n_threads}
    near_names = [f"lof_{k}" for k in _LOF] + [f"knn_{k}" for k in _KNN]
    trees["scikit_learn"] = name == "paper"
    tree_names = [f"iforest_{size}" for size in _TREES]
    ways = _ways(task.device)
    neighbours = task.fit(near_names, ways.neighbours, ways.cross_neighbours, **near)
    forest = task.fit(tree_names, ways.forest, ways.cross_forest, **trees)
    return [neighbours, forest] if name == "paper" else [neighbours, forest, _fit_by_feature(task, Tails, "tail")]


def _fit_default(task: Task) -> list[Fitted]:
    """Four families that see different things: isolation, distance, local density beside the joint pattern, tails.

    What each is worth is measured by `benchmarks/families.py`; `docs/target.md` says why all four are here.
    """
    ways = _ways(task.device)
    trees: dict[str, Any] = {"sizes": _DEFAULT_TREES, "random_state": task.seed, "n_threads": task.n_threads}
    far: dict[str, Any] = {"knn": _DEFAULT_KNN, "n_threads": task.n_threads}
    local: dict[str, Any] = {"lof": _DEFAULT_LOF, "decorrelate": True, "n_threads": task.n_threads}
    fit = partial(Nearness.fit, fit=ways.neighbours)
    cross = partial(Nearness.cross_fit, fit=ways.neighbours, cross_fit=ways.cross_neighbours)
    return [
        task.fit([f"iforest_{size}" for size in _DEFAULT_TREES], ways.forest, ways.cross_forest, **trees),
        task.fit([f"knn_{k}" for k in _DEFAULT_KNN], fit, cross, **far),
        task.fit([f"lof_{k}" for k in _DEFAULT_LOF], fit, cross, **local),
        _fit_by_feature(task, Tails, "tail"),
    ]


def _fit_by_feature(task: Task, family: type[Tails], name: str) -> Fitted:
    """A column for each feature that varies."""
    found = task.fit([], family.fit, family.cross_fit, n_threads=task.n_threads)
    return found._replace(names=[f"{name}:{task.features[j]}" for j in found.part.features])


class _Ways(NamedTuple):
    """How neighbours and forests are fitted on a device."""

    neighbours: Callable[..., Any]
    cross_neighbours: Callable[..., Any]
    forest: Callable[..., Any]
    cross_forest: Callable[..., Any]


def _ways(device: str) -> _Ways:
    if device == "cpu":
        return _Ways(Neighbours.fit, Neighbours.cross_fit, Forest.fit, Forest.cross_fit)
    from evenout import gpu

    there = (gpu.fit_neighbours, gpu.cross_fit_neighbours, gpu.fit_forest, gpu.cross_fit_forest)
    return _Ways(*(partial(way, device=device) for way in there))


POOLS = (*NAMED, "precomputed")


@dataclass(frozen=True)
class Precomputed:
    """Scores that come ready: X is the score matrix."""

    width: int
    kind: ClassVar[str] = "precomputed"

    def fits(self, n_rows: int, n_features: int) -> None:  # noqa: ARG002
        """A score in each column."""
        require(self.width == n_features, "width", "is out of range")

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:  # noqa: ARG002
        """X itself."""
        return X


# The families whose state is plain arrays, so that a model file can hold them.
FAMILIES: dict[str, type[Family]] = {family.kind: family for family in (*OWN, Precomputed)}


@dataclass(frozen=True)
class FittedPool:
    """A pool after fitting.

    Parameters
    ----------
    names : tuple of str
        Of the k columns.
    parts : tuple
        What makes the columns, in this order.
    families : tuple of str
        The family of each column, where averages are taken family by family; else empty.
    units : Units or None
        In which the named pools see the rows; given detectors see them as they are.
    n_rows : int
        On which it was fitted.
    """

    names: tuple[str, ...]
    parts: tuple[Annotated[Part | GroupAware, FAMILIES], ...]
    families: tuple[str, ...] = ()
    units: Units | None = None
    n_rows: Annotated[int, Within(0, MOST_ROWS)] = 0

    def thinned(self) -> "FittedPool":
        """Without what follows from the training rows, where a part keeps them as the pool sees them: for a file."""
        rows = self._rows()
        if rows is None:
            return self
        thin = (one.without_rows(rows) if isinstance(one, Tails | Nearness) else one for one in self.parts)
        return replace(self, parts=tuple(thin))

    def filled(self, n_features: int, most_rows: int) -> "FittedPool":
        """What was `thinned`, out of a file, after every part was held against the rows and columns of a fit."""
        require(self.n_rows <= most_rows, "n_rows", "is out of range")
        width = n_features if self.units is None else len(self.units.kept)
        require(self.units is None or self.units.kept[-1] < n_features, "units.kept", "is out of range")
        rows, columns = self._rows(width), 0
        parts: list[Any] = list(self.parts)
        for place, one in enumerate(parts):
            if isinstance(one, tuple(FAMILIES.values())):
                with entries_of(f"parts[{place}]"):
                    if rows is not None and isinstance(one, Tails | Nearness):
                        parts[place] = one = one.with_rows(rows)
                    one.fits(self.n_rows, width)
                columns += one.width
            else:
                columns += len(getattr(one, "names", " "))
        require(columns == len(self.names) > 0, "parts", "do not go with the names")
        require(len(self.families) in (0, columns), "families", "has the wrong length")
        return replace(self, parts=tuple(parts))

    def _rows(self, width: int | None = None) -> FloatArray | None:
        """The training rows as the pool sees them, (n, d), in an order of their own, where a part keeps them."""
        for part in self.parts:
            known = part.neighbours if isinstance(part, Nearness) and part.turn is None else part
            if isinstance(known, Neighbours):
                if width is not None:
                    known.fits(self.n_rows, width)
                return np.repeat(known.locations, known.counts, axis=0)
        return None

    def inside(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Rows as the named pools see them."""
        return X if self.units is None else self.units.apply(X, n_threads=n_threads)

    def score(
        self,
        X: FloatArray,
        *,
        n_threads: int = 1,
        sensitive_features: Any = None,
        device: str = "cpu",
        content: FloatArray | None = None,
    ) -> FloatArray:
        """Raw scores of shape (m, k), higher = more outlying; only a `GroupAware` part uses the groups.

        ``content`` is X in the units, where it is at hand already.
        """
        grouped = [part.name for part in self.parts if isinstance(part, GroupAware)]
        if grouped and sensitive_features is None:
            raise ValueError(
                f"sensitive_features is missing: these detectors use the group of every row: {', '.join(grouped)}; "
                "pass sensitive_features=<array, Series or DataFrame>, or leave these detectors out"
            )
        columns, inside = [], self.inside(X, n_threads=n_threads) if content is None else content
        for part in self.parts:
            rows = inside if isinstance(part, OWN) else X
            if isinstance(part, GroupAware):
                columns.append(part.score(rows, n_threads=n_threads, sensitive_features=sensitive_features))
            elif device == "cpu":
                columns.append(part.score(rows, n_threads=n_threads))
            else:
                from evenout import gpu

                columns.append(gpu.score(part, rows, n_threads=n_threads, device=device))
        return side_by_side(columns, n_threads)


def fit_pool(
    detectors: Any,
    X: FloatArray,
    *,
    seed: int,
    n_threads: int = 1,
    sensitive_features: Any = None,
    device: str = "cpu",
    units: Units | None = None,
    feature_names: Sequence[str] | None = None,
    sides: bool = False,
    content: FloatArray | None = None,
) -> tuple[FittedPool, FloatArray]:
    """Fit a pool on the training rows.

    Parameters
    ----------
    detectors : str or sequence
        A name of `POOLS`, or a list of detectors, functions, ``(name, detector)`` pairs and names of
        `NAMED` pools, mixed freely.
    X : array of shape (n, d)
    seed : int
        For the forests, and for every detector whose random state was left open.
    n_threads : int
    sensitive_features : array, series or frame
        For detectors that say ``needs_groups``, such as `FairLOF`.
    device : {"cpu", "cuda"}
        Where the named pools are fitted; given detectors run where they always do.
    units : Units, optional
        In which the named pools see the rows; without them they see X as it is, like given detectors.
    feature_names : sequence of str, optional
        Of the d columns of X, for the names of score columns.
    sides : bool
        Add `Sides` to the named pools, for a target that learns from labels.
    content : array of shape (n, m), optional
        X in the units, where it is at hand already.

    Returns
    -------
    the fitted pool, and the raw training scores of shape (n, k)
    """
    features = feature_labels(feature_names, X.shape[1])
    task = Task(X, None, seed, n_threads, sensitive_features, device, units, features, sides, content)
    pool, scores, _ = _fit(detectors, task)
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
    units: Units | None = None,
    feature_names: Sequence[str] | None = None,
    sides: bool = False,
    content: FloatArray | None = None,
) -> tuple[FittedPool, FloatArray, Without]:
    """Fit a pool on the training rows, and be ready to score them by detectors that have not seen a fold.

    Parameters
    ----------
    detectors, X, seed, n_threads, sensitive_features, device, units, feature_names, sides, content
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
    features = feature_labels(feature_names, X.shape[1])
    task = Task(X, np.asarray(folds), seed, n_threads, sensitive_features, device, units, features, sides, content)
    return _fit(detectors, task)


def has_named(detectors: Any) -> bool:
    """Whether there are named pools among the detectors, which see rows in units."""
    entries = [detectors] if isinstance(detectors, str) else detectors
    return isinstance(entries, list | tuple) and any(isinstance(e, str) and e in NAMED for e in entries)


def standard_units(
    detectors: Any, X: FloatArray, feature_names: Sequence[str] | None = None, *, n_threads: int = 1
) -> Units | None:
    """Units for the named pools among ``detectors``, learnt on the training rows X (n, d); None if there are none.

    Columns that do not vary are named in a warning.
    """
    if not has_named(detectors):
        return None
    units = Units.fit(X, n_threads=n_threads)
    units.warn_dropped(feature_labels(feature_names, X.shape[1]))
    return units


def _fit(detectors: Any, task: Task) -> tuple[FittedPool, FloatArray, Without]:
    if isinstance(detectors, str) and detectors == "precomputed":
        names = tuple(f"score_{j}" for j in range(task.X.shape[1]))
        return FittedPool(names, (Precomputed(len(names)),), n_rows=len(task.X)), task.X, lambda fold: task.X  # noqa: ARG005
    fitted: list[Fitted] = []
    entries = [detectors] if isinstance(detectors, str) else _entries(detectors)
    inside = task.inside()
    for entry in entries:
        taken = [name for part in fitted for name in part.names]
        fitted += fit_named(entry, inside) if isinstance(entry, str) else [_fit_given(entry, taken, task)]
    by_family = any(isinstance(entry, str) and entry in BY_FAMILY for entry in entries)
    families = [family for part in fitted for family in part.families(by_family=by_family)]
    pool = FittedPool(
        tuple(name for part in fitted for name in part.names),
        tuple(part.part for part in fitted),
        tuple(families) if by_family or task.sides else (),
        task.units,
        len(task.X),
    )
    each = [part.without for part in fitted if part.without is not None]
    return (
        pool,
        side_by_side([part.scores for part in fitted], task.n_threads),
        lambda fold: side_by_side([without(fold) for without in each], task.n_threads),
    )


def _fit_given(entry: Any, taken: Sequence[str], task: Task) -> Fitted:
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


def _fit_columns(name: str, family: Any, task: Task) -> Fitted:
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
    columns = list(getattr(part, "names", range(scores.shape[1])))
    if len(columns) != scores.shape[1]:
        raise ValueError(f"detector {name!r} has {len(columns)} names for {scores.shape[1]} columns; give one for each")
    names = [f"{name}:{column}" for column in columns]
    return Fitted(names, part, scores, None if task.folds is None else by_refitting(task.X, task.folds, fit))


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
