"""The named pools: which detectors they are made of, and on what they are fitted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from evenout.core.types import FloatArray, IntArray
from evenout.detectors.forest import Forest
from evenout.detectors.nearness import Nearness
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.parts import Without
from evenout.detectors.tails import Sides, Tails
from evenout.detectors.units import Units

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
