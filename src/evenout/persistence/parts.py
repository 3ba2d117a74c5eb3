"""The parts of a fitted ensemble, out of a model file: each is checked so that no later step can leave its arrays."""

from collections.abc import Callable

import numpy as np

from evenout.core.cells import Cells, CrossFit, Pairs
from evenout.core.combine import COMBINATIONS, Combination
from evenout.core.notions import NAMED_NOTIONS
from evenout.core.path import TradeoffPath
from evenout.core.problem import METHODS, WEIGHTS
from evenout.core.scaling import SCALINGS, Scaling
from evenout.detectors.forest import Forest
from evenout.detectors.nearness import Nearness
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.parts import Part
from evenout.detectors.pool import FittedPool, Precomputed
from evenout.detectors.tails import Tails
from evenout.detectors.units import Units
from evenout.persistence.archive import ModelFileError
from evenout.persistence.fields import Fields
from evenout.scores import ScoreModel


def read_scores(data: Fields, n_rows: int, n_features: int) -> ScoreModel:
    """Detectors, scalings and base ensemble of a model of ``n_rows`` training rows with ``n_features`` features."""
    pool = _read_pool(data.fields("pool"), n_rows, n_features)
    k = len(pool.names)
    return ScoreModel(
        pool,
        _read_scaling(data.fields("scaling"), n_rows, k),
        _read_combination(data.fields("combination"), k),
        _read_scaling(data.fields("base_scaling"), n_rows, 1),
    )


def read_path(data: Fields, n_groups: int, k: int) -> TradeoffPath:
    """The trade-off path of ``k`` detectors, solved again from its sums."""
    fairness = data.fields("fairness")
    notions = {name: fairness.number(name) for name in fairness.names()}
    allowed = notions and set(notions) <= set(NAMED_NOTIONS) and min(notions.values()) > 0
    data.require(allowed, "fairness", "is of no known kind")
    cross = _read_cross(data.fields("cross"), n_groups, k)
    needs_pairs = "individual" in notions and n_groups >= 2
    data.require(not needs_pairs or cross.whole.pairs is not None, "cross", "has no sums over pairs")
    method = next(name for name in METHODS if name == data.text("method", METHODS))
    constraint = next(name for name in WEIGHTS if name == data.text("constraint", WEIGHTS))
    noise_aware = data.flag("noise_aware")
    try:
        with np.errstate(all="ignore"):
            return TradeoffPath(cross, notions, method=method, noise_aware=noise_aware, constraint=constraint)
    except Exception as error:  # whatever sums that no rows can have make the solvers say
        raise ModelFileError(f"its path has no solution ({type(error).__name__})") from error


def _read_pool(data: Fields, n_rows: int, n_features: int) -> FittedPool:
    parts, columns = [], 0
    units = _read_units(data.fields("units"), n_features) if "units" in data else None
    inside = n_features if units is None else len(units.kept)
    for part in data.parts("parts"):
        found, width = _READERS[part.text("kind", _READERS)](part, n_rows, inside)
        parts.append(found)
        columns += width
    data.require(columns > 0, "parts", "is empty")
    by_family = "families" in data and len(data.items("families")) > 0
    families = data.texts("families", columns) if by_family else ()
    return FittedPool(data.texts("names", columns), tuple(parts), families, units)


def _read_units(data: Fields, n_features: int) -> Units:
    kept = data.integers("kept", None, low=0, high=n_features - 1)
    data.require(len(kept) and (np.diff(kept) > 0).all(), "kept", "is out of order")
    centre, spread = (data.floats(name, len(kept)) for name in ("centre", "spread"))
    data.require((spread > 0).all(), "spread", "is out of range")
    return Units(kept, centre, spread)


def _read_nearness(data: Fields, n_rows: int, n_features: int) -> tuple[Part, int]:
    turn = data.floats("turn", n_features, None) if "turn" in data else None
    inside = n_features if turn is None else turn.shape[1]
    neighbours, width = _read_neighbours(data.fields("neighbours"), n_rows, inside)
    return Nearness(neighbours, turn), width


def _read_neighbours(data: Fields, n_rows: int, n_features: int) -> tuple[Neighbours, int]:
    locations = data.floats("locations", None, n_features)
    u = len(locations)
    counts = data.integers("counts", u, low=1, high=n_rows)
    data.require(counts.sum() == n_rows, "counts", "is out of range")
    lof = data.integers("lof", None, low=1, high=n_rows - 1)
    knn = data.integers("knn", None, low=1, high=n_rows - 1)
    width = len(lof) + len(knn)
    data.require(width > 0, "lof", "is empty")
    k_distance, density = (data.floats(name, u, len(lof)) for name in ("k_distance", "density"))
    scores = data.floats("scores", u, width)
    return Neighbours(locations, counts, lof, knn, k_distance, density, scores), width


def _read_forest(data: Fields, n_rows: int, n_features: int) -> tuple[Part, int]:
    threshold = data.floats("threshold", None)
    v = len(threshold)
    root = data.integers("root", None, low=0, high=v - 1)
    data.require(len(root) and root[0] == 0 and (np.diff(root) > 0).all(), "root", "is out of order")
    size_of_tree = np.diff(root, append=v)
    first = np.repeat(root, size_of_tree)[:, None]  # of the tree that a node is in
    child = data.integers("child", v, 2, low=0, high=v - 1, dtype=np.int32)
    inside = (first <= child) & (child < first + np.repeat(size_of_tree, size_of_tree)[:, None])
    data.require(inside.all(), "child", "leaves its tree")
    sizes = data.integers("sizes", None, low=1, high=len(root))
    forest = Forest(
        feature=data.integers("feature", v, low=0, high=n_features - 1, dtype=np.int32).astype(np.int32),
        threshold=threshold,
        child=child.astype(np.int32),
        length=data.floats("length", v),
        root=root,
        sizes=sizes,
        depth=data.whole("depth", 0, int(size_of_tree.max())),
        max_samples=data.whole("max_samples", 1, n_rows),
    )
    return forest, len(sizes)


def _read_tails(data: Fields, n_rows: int, n_features: int) -> tuple[Part, int]:
    features = data.integers("features", None, low=0, high=n_features - 1)
    known = data.floats("known", n_rows, len(features))
    ordered = (np.diff(known, axis=0) >= 0).all() and (known[-1] > known[0]).all()
    data.require(ordered, "known", "is out of order")
    return Tails(features, known), len(features)


def _read_precomputed(data: Fields, n_rows: int, n_features: int) -> tuple[Part, int]:  # noqa: ARG001
    return Precomputed(), n_features


def _read_scaling(data: Fields, n_rows: int, k: int) -> Scaling:
    kind = data.text("kind", SCALINGS)
    low, high, mean, std = (data.floats(name, k) for name in ("low", "high", "mean", "std"))
    kept = n_rows if kind == "rank" else 0
    return Scaling(kind, low, high, mean, std, data.flags("varies", k), data.floats("sorted_scores", kept, k))


def _read_combination(data: Fields, k: int) -> Combination:
    kind = data.text("kind", COMBINATIONS)
    buckets = data.items("buckets")
    data.require(buckets, "buckets", "is empty")
    each = [Fields({"bucket": bucket}, "combination") for bucket in buckets]
    chosen = tuple(bucket.integers("bucket", None, low=0, high=k - 1) for bucket in each)
    shares = data.floats("shares", len(chosen[0])) if "shares" in data else None
    return Combination(kind, chosen, shares)


def _read_cross(data: Fields, n_groups: int, k: int) -> CrossFit:
    whole = _read_cells(data.fields("whole"), 1, n_groups, k)
    training, held = (_read_cells(data.fields(name), None, n_groups, k) for name in ("training", "held"))
    same = training.n_sets == held.n_sets and all(
        (getattr(part, name) is None) == (getattr(whole, name) is None)
        for part in (training, held)
        for name in ("spread", "base", "pairs")
    )
    data.require(same, "held", "does not go with the rest")
    return CrossFit(whole, training, held, data.flag("refitted"))


def _read_cells(data: Fields, n_sets: int | None, n_groups: int, k: int) -> Cells:
    plain = data.floats("plain", n_sets, n_groups + 1, k + 2, k + 2)
    n = len(plain)
    weighted = data.floats("weighted", n, k + 2, k + 2)
    spread = data.floats("spread", *plain.shape) if "spread" in data else None
    base = data.floats("base", n, k) if "base" in data else None
    pairs = None
    if "pairs" in data:
        sums, n_pairs = data.fields("pairs"), n_groups * (n_groups - 1) // 2
        pairs = Pairs(sums.floats("form", n, n_pairs, k + 1, k + 1), sums.floats("mass", n, n_pairs))
    return Cells(plain, weighted, spread, pairs, base=base)


_READERS: dict[str, Callable[[Fields, int, int], tuple[Part, int]]] = {
    "neighbours": _read_neighbours,
    "nearness": _read_nearness,
    "forest": _read_forest,
    "tails": _read_tails,
    "precomputed": _read_precomputed,
}

# The detectors that a model file may hold: their state is plain arrays.
KINDS: dict[type, str] = {
    Neighbours: "neighbours",
    Nearness: "nearness",
    Forest: "forest",
    Tails: "tails",
    Precomputed: "precomputed",
}
