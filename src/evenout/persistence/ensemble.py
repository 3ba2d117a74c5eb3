"""A fitted ensemble as plain data, and back."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from evenout.core.cells import Cells
from evenout.core.combine import COMBINATIONS
from evenout.core.problem import Mixture
from evenout.estimator import FairOutlierEnsemble
from evenout.persistence.archive import plain
from evenout.persistence.fields import Fields
from evenout.persistence.parts import KINDS, read_path, read_scores

_MACHINE = ("n_jobs", "device")  # parameters that belong to the machine, not to the model
_LEARNT = (
    "outlier_scores_",
    "target_",
    "weights_",
    "alpha_",
    "bias_reduction_",
    "request_met_",
    "gap_detected_",
    "pair_error_",
    "effective_pairs_",
    "offset_",
    "group_names_",
    "group_counts_",
    "left_out_groups_",
    "n_features_in_",
)
_ENDS = ("reduction_low", "reduction_high")
_MOST = 2**31 - 1  # rows and features are numbered in 32 bits


def describe_ensemble(model: FairOutlierEnsemble) -> dict[str, Any]:
    """A fitted ensemble as plain data; a ValueError that names what plain data cannot hold."""
    check_is_fitted(model)
    scores, path = model._scores, model.path_
    for part in scores.pool.parts:
        if type(part) not in KINDS:
            raise ValueError(
                f"detector {getattr(part, 'name', type(part).__name__)!r} is not one of evenout's and cannot be saved: "
                "a model file holds plain data alone; use 'default', 'paper' or 'diverse', or keep the model in Python"
            )
    if callable(scores.combination.kind):
        raise ValueError(
            "combination is a function of your own and cannot be saved: a model file holds plain data alone; "
            f"use one of {', '.join(map(repr, COMBINATIONS))}, or keep the model in Python"
        )
    if "own" in path.fairness:
        raise ValueError(
            "fairness is a form of your own and cannot be saved; use 'demographic_parity' or 'individual', "
            "or keep the model in Python"
        )
    names = getattr(model, "feature_names_in_", None)
    return plain(
        {
            "parameters": _parameters(model),
            "learnt": {name: getattr(model, name) for name in _LEARNT}
            | dict(zip(_ENDS, model.bias_reduction_interval_, strict=True)),
            "mixture": model._mixture,
            "feature_names": None if names is None else [*names],
            "scores": {
                "pool": {
                    "names": scores.pool.names,
                    "parts": [{"kind": KINDS[type(part)], **plain(part)} for part in scores.pool.parts],
                    "families": scores.pool.families,
                    "units": scores.pool.units,
                },
                "scaling": scores.scaling,
                "combination": scores.combination,
                "base_scaling": scores.base_scaling,
            },
            "path": {
                "cross": {
                    "whole": _cells(path.cross.whole),
                    "training": _cells(path.cross.training),
                    "held": _cells(path.cross.held),
                    "refitted": path.cross.refitted,
                },
                "fairness": path.fairness,
                "method": path.method,
                "noise_aware": path.noise_aware,
                "constraint": path.constraint,
            },
        }
    )


def read_ensemble(data: Fields) -> FairOutlierEnsemble:
    """The ensemble; a `ModelFileError` if any of its parts does not fit the others."""
    learnt = data.fields("learnt")
    n, d = len(learnt.floats("target_", None)), learnt.whole("n_features_in_", 1, _MOST)
    learnt.require(2 <= n <= _MOST, "target_", "is out of range")
    group_names = learnt.texts("group_names_") if learnt.items("group_names_") else ()
    model = _unfitted(data.fields("parameters"))
    model._scores = read_scores(data.fields("scores"), n, d)
    k = len(model._scores.pool.names)
    model.path_ = read_path(data.fields("path"), len(group_names), k)
    model.target_, model.outlier_scores_ = learnt.floats("target_", n), learnt.floats("outlier_scores_", n)
    model.weights_ = learnt.floats("weights_", k)
    model.alpha_, model.offset_ = learnt.number("alpha_"), learnt.number("offset_")
    model.bias_reduction_ = learnt.number("bias_reduction_", finite=False)
    model.gap_detected_, model.request_met_ = learnt.flag("gap_detected_"), learnt.flag("request_met_")
    low, high = (learnt.number(end, finite=False) for end in _ENDS)
    model.bias_reduction_interval_ = low, high
    score = data.fields(
        "mixture"
    )  # kept, so that scores are the same bit for bit wherever the path is solved again
    model._mixture = Mixture(score.floats("weights", k), score.floats("centre", k), score.number("target"))
    left_out = learnt.fields("left_out_groups_")
    model.left_out_groups_ = {name: left_out.whole(name, 0, 2**53) for name in left_out.names()}
    model.pair_error_ = learnt.number("pair_error_")
    model.effective_pairs_ = learnt.number("effective_pairs_", finite=False)
    model.detector_names_ = model._scores.pool.names
    model.group_names_ = group_names
    model.group_counts_ = learnt.integers("group_counts_", len(group_names), low=0, high=2**53)
    model.n_features_in_ = d
    if "feature_names" in data:
        model.feature_names_in_ = np.array(data.texts("feature_names", d), dtype=object)
    return model


def _cells(cells: Cells) -> dict[str, Any]:
    parts = {"plain": cells.plain, "weighted": cells.weighted, "spread": cells.spread, "base": cells.base}
    pairs = None if cells.pairs is None else {"form": cells.pairs.form, "mass": cells.pairs.mass}
    return {**parts, "pairs": pairs}


def _parameters(model: FairOutlierEnsemble) -> dict[str, Any]:
    values = {name: value for name, value in model.get_params(deep=False).items() if name not in _MACHINE}
    if not isinstance(values["random_state"], int | np.integer):
        values["random_state"] = None  # a generator that has moved on since
    return values


def _unfitted(data: Fields) -> FairOutlierEnsemble:
    known = set(FairOutlierEnsemble._get_param_names()) - set(_MACHINE)
    values: dict[str, Any] = {}
    for name in data.names():
        data.require(name in known, name, "is unknown: update evenout")
        value = data.raw(name)
        values[name] = tuple(value) if isinstance(value, list) else value
    return FairOutlierEnsemble(**values)
