"""The parts of a fitted ensemble, out of a model file: each is checked so that no later step can leave its arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from evenout.core.base_score import COMBINATIONS, SCALINGS, Combination, Scaling
from evenout.core.cells import Cells, CrossFit
from evenout.core.exceptions import NoGapWarning, TargetNotReachedWarning, UnknownOutcomeWarning
from evenout.core.membership import AMONG, Block, Comparison, Membership
from evenout.core.notions import Notion
from evenout.core.path import Choice, TradeoffPath
from evenout.core.problem import CORRECTIONS, METHODS, WEIGHTS, Columns, Mixture, Rule
from evenout.core.registry import weighted_notions
from evenout.core.ruler import RatioEstimate, Sample
from evenout.core.sketch import QuantileSketch
from evenout.core.stacking import Stack
from evenout.detectors.pool import FAMILIES, FittedPool
from evenout.detectors.units import Units
from evenout.fitting.drift import Drift, Recent
from evenout.fitting.score_model import ScoreModel
from evenout.fitting.update import KNOTS, Maps
from evenout.persistence.resemblance import read_resemblance
from evenout.persistence.rows import with_rows
from evenout.storage.archive import ModelFileError
from evenout.storage.fields import Fields

_MOST = 2**53  # rows
_LEVELS = 50  # of a sketch, each with twice the weight of the one before

KINDS_OF_CHOICE = {"missed": TargetNotReachedWarning, "no_gap": NoGapWarning, "unknown": UnknownOutcomeWarning}


def read_scores(data: Fields, n_rows: int, n_features: int, objects: Sequence[Any]) -> ScoreModel:
    """Detectors, scalings and base ensemble of a model of ``n_rows`` training rows with ``n_features`` features."""
    pool = _read_pool(data.fields("pool"), n_rows, n_features, objects)
    k = len(pool.names)
    return ScoreModel(
        pool,
        _read_scaling(data.fields("scaling"), n_rows, k),
        _read_combination(data.fields("combination"), k, objects),
        _read_scaling(data.fields("base_scaling"), n_rows, 1),
        _read_stack(data.fields("stack"), k) if "stack" in data else None,
        read_resemblance(data.fields("resemblance"), n_features, objects) if "resemblance" in data else None,
    )


def read_maps(data: Fields, k: int, objects: Sequence[Any]) -> Maps:
    """What folds new rows into the sums of ``k`` detectors."""
    models = []
    for part in data.parts("models"):
        scaling = _read_scaling(part.fields("scaling"), part.whole("rows", 0, _MOST), k)
        base_scaling = _read_scaling(part.fields("base_scaling"), 0, 1)
        combination = _read_combination(part.fields("combination"), k, objects)
        stack = _read_stack(part.fields("stack"), k) if "stack" in part else None
        models.append(ScoreModel(FittedPool((), ()), scaling, combination, base_scaling, stack))
    data.require(models, "models", "is empty")
    ranks = tuple(_read_ranks(part) for part in data.parts("ranks")) if "ranks" in data else None
    data.require(ranks is None or len(ranks) == len(models), "ranks", "has the wrong length")
    q = data.whole("knots", 1, KNOTS)
    columns, fresh = data.floats("columns", q, k), data.floats("fresh_columns", q, k)
    data.require(all((np.diff(part, axis=0) >= 0).all() for part in (columns, fresh)), "columns", "are not in order")
    return Maps(tuple(models), ranks, columns, fresh, data.whole("rows", 1, 2**53), data.whole("seed", 0, 2**32 - 1))


def _read_ranks(data: Fields) -> QuantileSketch:
    levels = [Fields({"level": level}, "ranks").floats("level", None) for level in data.items("levels")]
    data.require(1 <= len(levels) <= _LEVELS, "levels", "has the wrong length")
    sketch = QuantileSketch(tuple(levels), None)
    data.require(sketch.count == data.whole("count", 1, _MOST), "levels", "has the wrong length")
    return sketch


def read_path(data: Fields, n_groups: int, k: int, objects: Sequence[Any]) -> TradeoffPath:
    """The trade-off path of ``k`` detectors, solved again from its sums."""
    notions: dict[Notion, float] = {}
    for item in data.parts("notions"):
        name, weight = item.text("name"), item.number("weight")
        item.require(weight > 0, "weight", "is out of range")
        if "object" in item:
            notion = _object(item, objects)
        else:
            try:
                ((notion, _),) = weighted_notions({name: weight})
            except KeyError:
                raise ModelFileError("its notion is of no known kind") from None
        notions[notion] = weight
    data.require(notions, "notions", "is empty")
    cross = _read_cross(data.fields("cross"), n_groups, k, list(notions))
    method = next(name for name in METHODS if name == data.text("method", METHODS))
    constraint = next(name for name in WEIGHTS if name == data.text("constraint", WEIGHTS))
    noise_aware = data.flag("noise_aware")
    columns, rule = _read_columns(data.fields("columns"), k), None
    if "rule" in data:
        own = data.fields("rule")
        rule = Rule(own.floats("own", k), own.floats("without", cross.n_folds, k))
    try:
        with np.errstate(all="ignore"):
            settings: dict[str, Any] = {"method": method, "noise_aware": noise_aware, "constraint": constraint}
            return TradeoffPath(cross, notions, **settings, columns=columns, rule=rule)
    except Exception as error:  # whatever sums that no rows can have make the solvers say
        raise ModelFileError(f"its path has no solution ({type(error).__name__})") from error


def _read_columns(data: Fields, k: int) -> Columns:
    correction = next(name for name in CORRECTIONS if name == data.text("correction", CORRECTIONS))
    resembling = data.whole("resembling", 0, k)
    data.require(correction == "weights" or resembling > 0, "resembling", "does not go with the rest")
    return Columns(correction, resembling)


def ratio_entries(ratio: RatioEstimate) -> dict[str, float]:
    """A ratio of flag rates as plain data."""
    return {"value": ratio.value, "error": ratio.error, "low": ratio.interval[0], "high": ratio.interval[1]}


def sample_entries(sample: Sample) -> dict[str, Any]:
    """How rows are measured, as plain data."""
    phi = sample.members.weights
    return {
        "entries": int(phi.nnz),
        "starts": phi.indptr.astype(np.int64),
        "rows": phi.indices.astype(np.int64),
        "share": phi.data,
        "weight": sample.weight,
        "doubt": sample.doubt,
        "clusters": None if sample.clusters is None else sample.clusters.astype(np.int64),
    }


def read_sample(data: Fields, n: int, compared: Comparison) -> Sample:
    """How n rows are measured."""
    n_groups = compared.n_groups
    entries = data.whole("entries", 0, n * max(n_groups, 1))
    starts = data.integers("starts", n_groups + 1, low=0, high=entries)
    rows, share = data.integers("rows", entries, low=0, high=n - 1), data.floats("share", entries)
    data.require(
        starts[0] == 0 and starts[-1] == entries and (np.diff(starts) >= 0).all(), "starts", "are not in order"
    )
    inside = np.diff(rows) > 0
    inside[starts[1:-1][(starts[1:-1] > 0) & (starts[1:-1] < entries)] - 1] = True
    data.require(inside.all(), "rows", "are not in order")
    data.require((share >= 0).all(), "share", "is out of range")
    weight = data.floats("weight", n) if "weight" in data else None
    data.require(weight is None or (weight >= 0).all(), "weight", "is out of range")
    clusters = data.integers("clusters", n, low=0, high=n - 1) if "clusters" in data else None
    phi = csc_array((share, rows, starts), shape=(n, n_groups))
    return Sample(Membership(phi, compared), weight, clusters, data.text("doubt", ("", "probable", "labels")))


def read_ratio(data: Fields) -> RatioEstimate:
    """A ratio of flag rates."""
    value, error, low, high = (data.number(name, finite=False) for name in ("value", "error", "low", "high"))
    return RatioEstimate(value, error, (low, high))


def read_choice(data: Fields, *, everywhere: bool = True) -> Choice:
    """What was chosen; ``everywhere``: a place on a path must be there."""
    numbers = {name: data.number(name, finite=False) for name in ("asked", "reached", "correlation")}
    kind = KINDS_OF_CHOICE[data.text("kind", KINDS_OF_CHOICE)]
    interval = data.number("low", finite=False), data.number("high", finite=False)
    given = {"alpha": data.number("alpha", finite=everywhere), "met": data.flag("met"), "message": data.text("message")}
    doubt = data.text("doubt", ("", "probable", "labels", "drift"))
    return Choice(**given, **numbers, interval=interval, kind=kind, doubt=doubt)  # type: ignore[arg-type]


def read_recent(data: Fields, cross: CrossFit, n: int) -> Recent:
    """Rows that updates have added to a fit with ``n`` rows in memory."""
    whole = cross.whole
    cells = _read_cells(data.fields("cells"), 2 * cross.n_folds + 2, whole.n_groups, whole.n_detectors, [])
    return Recent(cells, data.whole("kept", 0, n), data.whole("updates", 1, _MOST))


def read_drift(data: Fields) -> Drift:
    """How the latest rows differ from those before."""
    low, high = data.items("interval")
    ends = Fields({"low": low, "high": high}, "drift")
    return Drift(
        data.texts("groups"),
        data.whole("before", 0, _MOST),
        data.whole("now", 0, _MOST),
        data.flag("followed"),
        data.number("reached", finite=False),
        (ends.number("low", finite=False), ends.number("high", finite=False)),
    )


def read_mixture(data: Fields, k: int) -> Mixture:
    """The fair score."""
    return Mixture(data.floats("weights", k), data.floats("centre", k), data.number("target"))


def _object(data: Fields, objects: Sequence[Any]) -> Any:
    """One of the objects that are not plain data."""
    place = data.whole("object", 0, max(len(objects) - 1, 0))
    data.require(place < len(objects), "object", "is missing")
    return objects[place]


def _read_pool(data: Fields, n_rows: int, n_features: int, objects: Sequence[Any]) -> FittedPool:
    parts: list[Any] = []
    columns, units = 0, Units.read(data.fields("units"), n_features) if "units" in data else None
    inside = n_features if units is None else len(units.kept)
    for part in data.parts("parts"):
        if "object" in part:
            parts.append(_object(part, objects))
            columns += part.whole("width", 1, 2**31)
        else:
            family = FAMILIES[part.text("kind", FAMILIES)]
            parts.append(family.read(with_rows(part, parts, family), n_rows, inside))
            columns += parts[-1].width
    data.require(columns > 0, "parts", "is empty")
    by_family = "families" in data and len(data.items("families")) > 0
    families = data.texts("families", columns) if by_family else ()
    return FittedPool(data.texts("names", columns), tuple(parts), families, units)


def _read_scaling(data: Fields, n_rows: int, k: int) -> Scaling:
    kind = data.text("kind", SCALINGS)
    low, high, mean, std = (data.floats(name, k) for name in ("low", "high", "mean", "std"))
    kept = n_rows if kind == "rank" else 0
    return Scaling(kind, low, high, mean, std, data.flags("varies", k), data.floats("sorted_scores", kept, k))


def _read_stack(data: Fields, k: int) -> Stack:
    """Labels may be of more rows than the detectors were fitted on."""
    numbers = ("base_weight", "intercept", "label_weight", "agreement", "effective_labels", "propensity_power")
    counts: dict[str, Any] = {"n_labels": data.whole("n_labels", 0, 2**53)}
    counts["n_positive"] = data.whole("n_positive", 0, counts["n_labels"])
    counts |= {name: data.number(name) for name in numbers}
    return Stack(data.floats("weights", k), **counts)


def _read_combination(data: Fields, k: int, objects: Sequence[Any]) -> Combination:
    kind = _object(data, objects) if "object" in data else data.text("kind", COMBINATIONS)
    buckets = data.items("buckets")
    data.require(buckets, "buckets", "is empty")
    each = [Fields({"bucket": bucket}, "combination") for bucket in buckets]
    chosen = tuple(bucket.integers("bucket", None, low=0, high=k - 1) for bucket in each)
    shares = data.floats("shares", len(chosen[0])) if "shares" in data else None
    return Combination(kind, chosen, shares)


def _read_cross(data: Fields, n_groups: int, k: int, notions: list[Notion]) -> CrossFit:
    whole = _read_cells(data.fields("whole"), 1, None, k, notions)
    data.require(whole.compared is not None or whole.n_groups == n_groups, "whole", "has the wrong number of groups")
    n_groups = whole.n_groups
    training, held = (_read_cells(data.fields(name), None, n_groups, k, notions) for name in ("training", "held"))
    same = training.n_sets == held.n_sets and all(
        (getattr(part, name) is None) == (getattr(whole, name) is None)
        for part in (training, held)
        for name in ("spread", "base")
    )
    same = same and training.compared == held.compared == whole.compared
    data.require(same, "held", "does not go with the rest")
    return CrossFit(whole, training, held, data.flag("refitted"))


def _read_cells(data: Fields, n_sets: int | None, n_groups: int | None, k: int, notions: list[Notion]) -> Cells:
    plain = data.floats("plain", n_sets, None if n_groups is None else n_groups + 1, k + 2, k + 2)
    n, n_groups = len(plain), plain.shape[1] - 1
    data.require(n_groups >= 0, "plain", "has the wrong shape")
    weighted = data.floats("weighted", n, k + 2, k + 2)
    compared = _read_comparison(data.fields("compared"), n_groups) if "compared" in data else None
    pairs = len((compared or Comparison.of_all(n_groups)).joint[0])
    spread = data.floats("spread", n, pairs, k + 2, k + 2) if "spread" in data else None
    base = data.floats("base", n, k) if "base" in data else None
    sums: dict[str, Any] = {}
    for notion in notions if n_groups >= 2 else ():
        found = notion.read_sums(data.fields("sums"), n, n_groups, k)
        sums |= {f"{notion.name}.{name}": values for name, values in found.items()}
    return Cells(plain, weighted, spread, sums, base, compared)


def _read_comparison(data: Fields, n_groups: int) -> Comparison:
    blocks = []
    for block in data.parts("blocks"):
        groups = block.integers("groups", None, low=0, high=n_groups - 1)
        kind = block.text("among", AMONG), block.text("of")
        blocks.append(Block(tuple(groups.tolist()), block.number("weight"), block.flag("by_size"), *kind))
    overlaps = data.integers("overlaps", None, 2, low=0, high=n_groups - 1)
    return Comparison(n_groups, tuple(blocks), tuple((int(g), int(h)) for g, h in overlaps))
