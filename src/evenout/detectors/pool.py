"""Pools of detectors: named ones, and lists of a user's own detectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from evenout.core.parallel import side_by_side
from evenout.core.types import MOST_ROWS, FloatArray, IntArray, Within, entries_of, require
from evenout.detectors.adapt import GroupAware, fit_foreign, fit_group_aware
from evenout.detectors.family import Family, ScoreColumns, Without, by_refitting
from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Nearness, Neighbours
from evenout.detectors.tails import Sides, Tails
from evenout.detectors.units import Units, feature_labels

NAMED = ("paper", "diverse", "default")
POOLS = (*NAMED, "precomputed")
BY_FAMILY = ("diverse", "default")  # whose average is taken family by family

_LOF = (5, 10, 15, 20, 25, 30)
_KNN = (2, 4, 6, 8, 10)
_TREES = (25, 50, 75, 100, 125, 150, 175)
# The default pool's. More columns of a kind hardly change its mean, and near-equal ones give wild fair weights.
_DEFAULT_LOF = (10, 20, 30)
_DEFAULT_KNN = (5, 10, 20, 30)
_DEFAULT_TREES = (200,)
OWN = (Neighbours, Forest, Tails, Sides, Nearness)  # the families of the named pools


class FittedColumns(NamedTuple):
    """`ScoreColumns`, or `GroupAware`, with their names and scores; ``without`` works only in fits with folds."""

    names: Sequence[str]
    part: Any
    scores: FloatArray
    without: Without


def _fit_named(
    name: str, rows: dict[str, Any], features: Sequence[str], seed: int, device: str, *, sides: bool
) -> list[FittedColumns]:
    """Fit the paper's 18 detectors, with scikit-learn's own trees ("paper"), those and tails, or the default pool.

    The default pool has four families that look for different outliers: isolation, distance, local density in the joint
    pattern of the features, tails. `benchmarks/families.py` measures what each is worth; `docs/target.md` says why all
    four are here. ``rows`` are the arguments that all families share: X, folds and threads.
    """
    if name not in NAMED:
        raise ValueError(
            f"detectors={name!r} is unknown; known names: {', '.join(map(repr, POOLS))}, or pass a list of detectors"
        )
    near: Callable[..., Any] = Neighbours.cross_fit
    isolate: Callable[..., Any] = Forest.cross_fit
    if device != "cpu":
        from evenout import gpu

        near, isolate = (partial(fit, device=device) for fit in (gpu.cross_fit_neighbours, gpu.cross_fit_forest))
    default = name == "default"
    lof, knn, sizes = (_DEFAULT_LOF, _DEFAULT_KNN, _DEFAULT_TREES) if default else (_LOF, _KNN, _TREES)
    lof_names, knn_names = [f"lof_{k}" for k in lof], [f"knn_{k}" for k in knn]
    trees = isolate(**rows, sizes=sizes, random_state=seed, scikit_learn=name == "paper")
    fitted = [FittedColumns([f"iforest_{size}" for size in sizes], *trees)]
    if default:
        by_log = partial(Nearness.cross_fit, **rows, cross_fit=near)
        fitted.append(FittedColumns(knn_names, *by_log(knn=knn)))
        fitted.append(FittedColumns(lof_names, *by_log(lof=lof, decorrelate=True)))
    else:
        fitted.insert(0, FittedColumns([*lof_names, *knn_names], *near(**rows, lof=lof, knn=knn)))
    for family, word, wanted in ((Tails, "tail", name != "paper"), (Sides, "side", sides)):
        if wanted:
            model, scores, without = family.cross_fit(**rows)
            fitted.append(FittedColumns([f"{word}:{features[j]}" for j in model.features], model, scores, without))
    return fitted


@dataclass(frozen=True)
class Precomputed(Family):
    """Scores that were computed elsewhere: X is the score matrix."""

    width: int
    kind: ClassVar[str] = "precomputed"

    def fits(self, n_rows: int, n_features: int) -> None:  # noqa: ARG002
        """Refuse rows with another number of scores."""
        require(self.width == n_features, "width", "is out of range")

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:  # noqa: ARG002
        """X itself."""
        return X


# Families whose state is plain arrays, so that a model file can hold them.
FAMILIES: dict[str, type[Family]] = {family.kind: family for family in (*OWN, Precomputed)}


@dataclass(frozen=True)
class FittedPool:
    """A pool after fitting."""

    names: tuple[str, ...]  # of the k columns
    parts: tuple[Annotated[ScoreColumns | GroupAware, FAMILIES], ...]  # their sources, in this order
    families: tuple[str, ...] = ()  # the family of each column, where averages are taken family by family; else empty
    units: Units | None = None  # of the rows for the named pools; given detectors get them as they are
    n_rows: Annotated[int, Within(0, MOST_ROWS)] = 0  # on which it was fitted

    def thinned(self) -> "FittedPool":
        """Drop, for a file, the state that follows from the training rows, if some part keeps those."""
        rows = self._rows()
        if rows is None:
            return self
        return replace(
            self,
            parts=tuple(one.without_rows(rows) if isinstance(one, Tails | Nearness) else one for one in self.parts),
        )

    def filled(self, n_features: int, most_rows: int) -> "FittedPool":
        """Restore a `thinned` pool from a file, and check every part against the rows and columns of the fit."""
        require(self.n_rows <= most_rows, "n_rows", "is out of range")
        width = n_features if self.units is None else len(self.units.kept)
        require(self.units is None or self.units.kept[-1] < n_features, "units.kept", "is out of range")
        rows, columns = self._rows(width), 0
        parts: list[Any] = list(self.parts)
        for index, one in enumerate(parts):
            if isinstance(one, tuple(FAMILIES.values())):
                with entries_of(f"parts[{index}]"):
                    if rows is not None and isinstance(one, Tails | Nearness):
                        parts[index] = one = one.with_rows(rows)
                    one.fits(self.n_rows, width)
                columns += one.width
            else:
                columns += len(getattr(one, "names", " "))
        require(columns == len(self.names) > 0, "parts", "do not go with the names")
        require(len(self.families) in (0, columns), "families", "has the wrong length")
        return replace(self, parts=tuple(parts))

    def _rows(self, width: int | None = None) -> FloatArray | None:
        """Training rows in the pool's units, (n, d), sorted, if some part keeps them."""
        for part in self.parts:
            known = part.neighbours if isinstance(part, Nearness) and part.turn is None else part
            if isinstance(known, Neighbours):
                if width is not None:
                    known.fits(self.n_rows, width)
                return np.repeat(known.locations, known.counts, axis=0)
        return None

    def inside(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Rows in the units of the named pools."""
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

        ``content`` is X in the units, if already computed.
        """
        grouped = [part.name for part in self.parts if isinstance(part, GroupAware)]
        if grouped and sensitive_features is None:
            raise ValueError(
                f"sensitive_features is missing: these detectors use the group of every row: {', '.join(grouped)}; "
                "pass sensitive_features=<array, Series or DataFrame>, or leave these detectors out"
            )
        content, columns = self.inside(X, n_threads=n_threads) if content is None else content, []
        for part in self.parts:
            rows = content if isinstance(part, OWN) else X
            if isinstance(part, GroupAware):
                columns.append(part.score(rows, n_threads=n_threads, sensitive_features=sensitive_features))
            elif device == "cpu":
                columns.append(part.score(rows, n_threads=n_threads))
            else:
                from evenout import gpu

                columns.append(gpu.score(part, rows, n_threads=n_threads, device=device))
        return side_by_side(columns, n_threads)


def fit_pool(detectors: Any, X: FloatArray, **settings: Any) -> tuple[FittedPool, FloatArray]:
    """Fit a pool on the training rows X (n, d); the fitted pool and the raw training scores of shape (n, k).

    ``detectors`` is a name of `POOLS`, or a list of detectors, functions, ``(name, detector)`` pairs and names of
    `NAMED` pools, mixed freely; ``settings`` are those of `cross_fit_pool`.
    """
    return cross_fit_pool(detectors, X, None, **settings)[:2]


def cross_fit_pool(
    detectors: Any,
    X: FloatArray,
    folds: IntArray | None,
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
    """Fit a pool on the training rows, and prepare to score them by detectors that were fitted without a fold.

    Parameters
    ----------
    detectors, X
        As in `fit_pool`.
    folds : array of int, shape (n,), or None
        The fold of each row, if scores without each fold are needed.
    seed : int
        For the forests, and for every detector whose random state was left open.
    n_threads : int
    sensitive_features : array, series or frame
        For detectors that say ``needs_groups``, such as `FairLOF`.
    device : str
        Where the named pools are fitted; given detectors run where they always do.
    units, content : Units and array of shape (n, m), optional
        Units of the rows for the named pools, which else get X as it is, like given detectors; and X in these, if
        already computed.
    feature_names : sequence of str, optional
        Of the d columns of X, for the names of score columns.
    sides : bool
        Add `Sides` to the named pools, for a target that learns from labels.

    Returns
    -------
    FittedPool, array of shape (n, k), and function of a fold
        Those of `fit_pool`, bit for bit; and the raw scores of all rows, shape (n, k), by detectors that were fitted
        without the rows of the fold. Those are scored as new rows, the others as training rows. From 1000 rows on the
        forests of the named pools are not grown again: a row of the fold is scored by the trees that have not drawn it.
    """
    if isinstance(detectors, str) and detectors == "precomputed":
        names = tuple(f"score_{j}" for j in range(X.shape[1]))
        return FittedPool(names, (Precomputed(len(names)),), n_rows=len(X)), X, lambda _: X
    entries = [detectors] if isinstance(detectors, str) else detectors
    if not isinstance(entries, list | tuple):
        raise ValueError(
            f"detectors must be a name ({', '.join(map(repr, POOLS))}) or a list of detectors, "
            f"got {type(detectors).__name__}; put a single detector into a list"
        )
    if len(entries) == 0:
        raise ValueError("detectors is an empty list; give at least one detector")
    for entry in entries:
        if isinstance(entry, tuple) and not (len(entry) == 2 and isinstance(entry[0], str)):
            raise ValueError(f"detectors has the entry {entry!r}; a tuple must be (name, detector)")
    features = feature_labels(feature_names, X.shape[1])
    rows: dict[str, Any] = {"X": X, "folds": None if folds is None else np.asarray(folds), "n_threads": n_threads}
    given, fitted = rows | {"seed": seed}, list[FittedColumns]()
    if units is not None:
        features = [features[j] for j in units.kept]
        rows["X"] = units.apply(X, n_threads=n_threads) if content is None else content
    for entry in entries:
        if isinstance(entry, str):
            fitted += _fit_named(entry, rows, features, seed, device, sides=sides)
        else:
            known = [name for part in fitted for name in part.names]
            fitted.append(_fit_given(entry, known, sensitive_features=sensitive_features, **given))
    by_family = any(isinstance(entry, str) and entry in BY_FAMILY for entry in entries)
    # A family is named by what stands before the first _ or : of its columns; a given detector is a family of its own,
    # and so is, without averages by family, every column but those of `Sides`.
    families = tuple(
        name.replace(":", "_").partition("_")[0] if isinstance(part, OWN if by_family else Sides) else name
        for names, part, *_ in fitted
        for name in names
    )
    names = tuple(name for part in fitted for name in part.names)
    return (
        FittedPool(names, tuple(part.part for part in fitted), families if by_family or sides else (), units, len(X)),
        side_by_side([part.scores for part in fitted], n_threads),
        lambda fold: side_by_side([part.without(fold) for part in fitted], n_threads),
    )


def _fit_given(
    entry: Any,
    known: Sequence[str],
    X: FloatArray,
    folds: IntArray | None,
    seed: int,
    n_threads: int,
    sensitive_features: Any,
) -> FittedColumns:
    """Fit a detector of the user's own, under a name that is not ``known`` yet."""
    unnamed = getattr(entry, "__name__", type(entry).__name__).lower().strip("<>"), entry
    name, detector = entry if isinstance(entry, tuple) else unnamed
    unique, copies = name, 1
    while unique in known:
        copies += 1
        unique = f"{name}_{copies}"
    family = hasattr(detector, "fit_columns")
    if not family and getattr(detector, "needs_groups", False) and not isinstance(detector, type):
        return FittedColumns([unique], *fit_group_aware(unique, detector, X, folds, sensitive_features))

    def fit(rows: FloatArray, fold: int = -1) -> tuple[ScoreColumns, FloatArray]:  # noqa: ARG001
        if not family:
            return fit_foreign(unique, detector, rows, seed)
        part, scores = detector.fit_columns(rows, seed=seed, n_threads=n_threads)
        return part, np.asarray(scores, dtype=float)

    (part, scores), names = fit(X), [unique]
    if family:
        if scores.ndim != 2 or len(scores) != len(X) or not np.isfinite(scores).all():
            raise ValueError(
                f"detector {unique!r} returned scores of shape {scores.shape}; finite scores of shape ({len(X)}, "
                "number of columns) are needed"
            )
        columns = list(getattr(part, "names", range(scores.shape[1])))
        if len(columns) != scores.shape[1]:
            raise ValueError(
                f"detector {unique!r} has {len(columns)} names for {scores.shape[1]} columns; give one for each"
            )
        names = [f"{unique}:{column}" for column in columns]
    elif not hasattr(detector, "fit"):  # a function of X learns nothing
        return FittedColumns(names, part, scores, lambda _: scores)
    return FittedColumns(names, part, scores, by_refitting(X, folds, fit))


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
