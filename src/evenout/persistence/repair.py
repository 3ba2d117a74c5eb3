"""A fitted `BlindRepair` or `ScoreRepair` as plain data, and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from evenout.fitting.choose import FlagState, Prices, Repaired
from evenout.groups.read import Codes
from evenout.persistence.ensemble import choice_entries, parameter_entries, path_entries, unfitted
from evenout.persistence.parts import ratio_entries, read_choice, read_path, read_ratio
from evenout.persistence.resemblance import describe_resemblance, read_resemblance
from evenout.repair import BlindRepair, ScoreRepair, _Distribution
from evenout.storage.archive import plain
from evenout.storage.fields import Fields

_MOST = 2**31 - 1


def describe_blind(model: BlindRepair, objects: list[Any]) -> dict[str, Any]:
    """As plain data; what plain data cannot hold is put into ``objects``."""
    check_is_fitted(model)
    found, names = model._result, getattr(model, "feature_names_in_", None)
    flags = found.flags
    return plain(
        {
            "kind": "blind",
            "parameters": parameter_entries(model, objects),
            "score_name": model.score_name_,
            "n_features": model.n_features_in_,
            "feature_names": None if names is None else [*names],
            "groups": {
                "codes": found.groups.codes.astype(np.int64),
                "labels": found.groups.labels,
                "left_out": found.groups.left_out,
                "counts": model.group_counts_.astype(np.int64),
            },
            "told": [*model.lambda_],
            "known": np.array([*model.group_known_.values()], dtype=float),
            "resemblance": describe_resemblance(found.model, objects),
            "path": None if found.path is None else path_entries(found.path, objects),
            "prices": {"own": found.prices.own, "without": found.prices.without},
            "choice": choice_entries(found.prices.choice),
            "flags": None if flags is None else {"rates": flags.rates, **ratio_entries(flags.ratio)},
            "cost": {} if flags is None else flags.cost,
            "scores": model.scores_,
            "threshold": model.threshold_,
        }
    )


def read_blind(data: Fields, objects: Sequence[Any]) -> BlindRepair:
    """The repair; a `ModelFileError` if any of its parts does not fit the others."""
    model = unfitted(BlindRepair, data.fields("parameters"), objects)
    groups, d = data.fields("groups"), data.whole("n_features", 1, _MOST)
    labels = groups.texts("labels") if groups.items("labels") else ()
    scores = data.floats("scores", None)
    codes = groups.integers("codes", len(scores), low=-1, high=len(labels) - 1)
    left_out = groups.fields("left_out")
    small = {name: left_out.whole(name, 0, 2**53) for name in left_out.names()}
    told = data.texts("told") if data.items("told") else ()
    G, prices = len(told), data.fields("prices")
    resemblance = path = flags = None
    if "resemblance" in data:
        resemblance = read_resemblance(data.fields("resemblance"), d + 1, objects)
        data.require(resemblance.n_groups == G, "told", "has the wrong length")
        compared = data.fields("path").fields("cross").fields("whole").array("plain").shape[1] - 1
        path = read_path(data.fields("path"), compared, G, objects)
        flags = _read_flags(data, G)
    own = prices.floats("own", G)
    without = prices.floats("without", 0 if path is None else path.cross.n_folds, G)
    choice = read_choice(data.fields("choice"), everywhere=False)
    model.scores_, model.threshold_ = scores, data.number("threshold")
    model.group_counts_ = groups.integers("counts", G, low=0, high=2**53)
    known = data.raw("known")
    data.require(isinstance(known, np.ndarray) and known.shape == (G,), "known", "has the wrong shape")
    model.group_known_ = dict(zip(told, known.tolist(), strict=True))
    found = Codes(codes, labels, small)
    model._store(Repaired(resemblance, path, Prices(own, without, choice), flags, found), told)
    model.score_name_ = data.text("score_name") if "score_name" in data else None
    model.n_features_in_ = d
    if "feature_names" in data:
        model.feature_names_in_ = np.array(data.texts("feature_names", d), dtype=object)
    return model


def describe_aware(model: ScoreRepair) -> dict[str, Any]:
    """As plain data; scores of single rows are not in it, but the distinct scores of each group are."""
    check_is_fitted(model)
    return plain(
        {
            "kind": "aware",
            "parameters": parameter_entries(model, []),
            "score_name": model.score_name_,
            "sensitive_names": model.sensitive_names_,
            "groups": model.group_names_,
            "counts": model.group_counts_.astype(np.int64),
            "left_out": model.left_out_groups_,
            "places": model._places,
            "distributions": model._distributions,
            "shares": model._shares,
            "strength": model.strength_,
            "gap_detected": model.gap_detected_,
            "bias_reduction": model.bias_reduction_,
            "threshold": model.threshold_,
        }
    )


def read_aware(data: Fields) -> ScoreRepair:
    """The repair; a `ModelFileError` if any of its parts does not fit the others."""
    model: ScoreRepair = unfitted(ScoreRepair, data.fields("parameters"), ())
    model.group_names_ = data.texts("groups") if data.items("groups") else ()
    G, left_out, places = len(model.group_names_), data.fields("left_out"), data.fields("places")
    model.group_counts_ = data.integers("counts", G, low=0, high=2**53)
    model.left_out_groups_ = {name: left_out.whole(name, 0, 2**53) for name in left_out.names()}
    model._places = {name: places.whole(name, -1, G - 1) for name in places.names()}
    distributions = []
    for part in data.parts("distributions"):
        values = part.floats("values", None)
        levels = part.floats("levels", len(values))
        part.require(
            len(values) and (np.diff(values) > 0).all() and (np.diff(levels) > 0).all(), "values", "is no order"
        )
        distributions.append(_Distribution(values, levels))
    data.require(len(distributions) == G, "distributions", "has the wrong length")
    model._distributions, model._shares = tuple(distributions), data.floats("shares", G)
    model.strength_, model.gap_detected_ = data.number("strength"), data.flag("gap_detected")
    model.bias_reduction_, model.threshold_ = data.number("bias_reduction", finite=False), data.number("threshold")
    model.score_name_ = data.text("score_name") if "score_name" in data else None
    model.sensitive_names_ = data.texts("sensitive_names") if data.items("sensitive_names") else ()
    return model


def _read_flags(data: Fields, n_groups: int) -> FlagState:
    flags, cost = data.fields("flags"), data.fields("cost")
    costs = {name: cost.number(name, finite=False) for name in cost.names()}
    return FlagState(flags.floats("rates", n_groups, 2), read_ratio(flags), costs)
