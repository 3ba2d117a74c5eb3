"""Parameters of an estimator as typed settings: read and checked once, at the door."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from evenout.core.base_score import LINEAR
from evenout.core.individual import Individual
from evenout.core.notions import Notion, pairs_notion
from evenout.core.parity import Own
from evenout.core.path import Target
from evenout.core.problem import Correction, Method, Weights
from evenout.core.registry import NOTIONS, weighted_notions
from evenout.core.types import FloatArray
from evenout.exceptions import InputError
from evenout.groups.rules import Groups, Resemblance
from evenout.tables.parameters import ENSEMBLE, INDIVIDUAL, check_parameters, number


@dataclass(frozen=True)
class Settings:
    """Parameters of `FairOutlierEnsemble`, checked against each other; defaults are those of a given score.

    ``fairness`` maps notions to weights. The parameter ``correction`` becomes four fields: ``correction``, the columns
    that may move the score, the constraint on their ``weights``, the ``method``, the ``classifier`` of resemblance.
    """

    fairness: dict[Notion, float]
    bias_reduction: float | None = None
    flag_rate_ratio: float | None = None
    alpha: float | None = None
    confidence: float | None = None
    judged_on: Target = "unseen"
    correction: Correction = "weights"
    weights: Weights = "free"
    method: Method = "anchored"
    classifier: Any = None
    contamination: float = 0.1
    groups: Groups = field(default_factory=Groups)
    detectors: Any = "precomputed"
    standardize: bool = False
    combination: str | Callable[[FloatArray], FloatArray] = "average"
    scaling: str = "minmax"
    weighting: str = "rank"
    learn: bool = False
    reference_size: int = 100_000
    device: str = "cpu"
    n_threads: int = 1
    seed: int = 0

    @classmethod
    def read(cls, parameters: dict[str, Any], *, seed: int = 0) -> "Settings":
        """Check the parameters of an estimator; contradictions are refused."""
        check_parameters(parameters, ENSEMBLE)
        groups = Groups.read(parameters["groups"])
        asked = [name for name in ("bias_reduction", "flag_rate_ratio", "alpha") if parameters[name] is not None]
        if len(asked) > 1:
            named = " and ".join(f"{{@{name}}}" for name in asked)
            raise InputError(
                named + " were given; give at most one of {@bias_reduction}, {@flag_rate_ratio} and {@alpha}"
            )
        if parameters["confidence"] is not None and asked and asked[0] != "bias_reduction":
            raise InputError(
                "{@confidence} goes with {@bias_reduction}, but {$given} was given; leave one of them out",
                given=asked[0],
            )
        if parameters["confidence"] is not None and parameters["judged_on"] == "training":
            raise InputError(
                "{@confidence} is about unseen rows, but {judged_on='training'} was given; leave one of them out"
            )
        corrected = _correction(parameters["correction"])
        n_threads = effective_n_jobs(parameters["n_jobs"])
        read = {"fairness": _notions(parameters, corrected), "groups": groups, "seed": seed, "n_threads": n_threads}
        as_given = {name: value for name, value in parameters.items() if name in cls.__dataclass_fields__}
        return cls(**(as_given | corrected | read))


_CORRECTIONS: dict[str, dict[str, str]] = {  # how each word departs from the default
    "weights": {},
    "nonnegative": {"weights": "nonnegative"},
    "simplex": {"weights": "simplex"},
    "resemblance": {"correction": "resemblance"},
    "both": {"correction": "both"},
    "published": {"method": "published"},
}
CORRECTIONS = tuple(_CORRECTIONS)


def _correction(asked: Any) -> dict[str, Any]:
    """The four settings that ``correction`` stands for."""
    plain = {"correction": "weights", "weights": "free", "method": "anchored", "classifier": None}
    if isinstance(asked, Resemblance):
        asked.check()
        by = (
            {"correction": "resemblance"} if asked.weights is None else {"correction": "both", "weights": asked.weights}
        )
        return plain | by | {"classifier": asked.classifier}
    if not isinstance(asked, str) or asked not in _CORRECTIONS:
        words = f"{', '.join(map(repr, CORRECTIONS))} or evenout.Resemblance(...)"
        raise InputError("{correction=} is not allowed; use {words}", correction=asked, words=words)
    return plain | _CORRECTIONS[asked]


def _notions(parameters: Mapping[str, Any], corrected: Mapping[str, Any]) -> dict[Notion, float]:
    """The notions asked for, with their weights."""
    asked, detectors = parameters["fairness"], parameters["detectors"]
    if isinstance(asked, np.ndarray) or (callable(asked) and not isinstance(asked, Notion)):
        base, published = parameters["combination"], corrected["method"] == "published"
        if corrected["correction"] != "weights":
            raise InputError(
                "{correction=} adds columns beside the target, which a form of your own in {@fairness} has no place "
                "for; leave one of them out",
                correction=parameters["correction"],
            )
        if published and parameters["alpha"] is None and parameters["flag_rate_ratio"] is None:
            raise InputError(
                "{@fairness} is a form of your own, which has no target to compare with in {correction='published'}; "
                "give {@alpha} or {@flag_rate_ratio}"
            )
        if not published and not (isinstance(base, str) and base in LINEAR):
            raise InputError(
                "{@fairness} is a form of your own, over detector weights, but {combination=} is no weighted mean of "
                "the detectors, which it could measure; use 'average' or 'greedy', or {correction='published'}",
                combination=base,
            )
        return {Own(asked): 1.0}
    given = asked if isinstance(asked, Mapping) else {asked: 1.0} if isinstance(asked, str | Notion) else {}
    if not given or not all(isinstance(notion, Notion) or notion in NOTIONS for notion in given):
        known = ", ".join(map(repr, NOTIONS))
        raise ValueError(
            f"fairness={asked!r} is not allowed; use {known}, Individual(...), a Notion of your own, or a dict of "
            "these and their weights"
        )
    for notion, weight in given.items():
        if not number(0, np.inf, open_low=True).allows(weight):
            raise InputError(
                "{@fairness} has the weight {weight!r} for {name!r}; weights must be numbers above 0",
                weight=weight, name=getattr(notion, "name", notion),
            )  # fmt: skip
    notions = dict(weighted_notions(given))
    for notion in notions:
        if isinstance(notion, Individual):
            check_parameters(notion.get_params(deep=False), INDIVIDUAL)
    if len({notion.name for notion in notions}) < len(notions):
        raise InputError("{@fairness} has two notions of one name; give each its own")
    if (name := pairs_notion(notions)) and isinstance(detectors, str) and detectors == "precomputed":
        raise InputError(
            "{fairness=} compares feature rows, but {detectors='precomputed'} has scores alone; "
            "use {fairness='demographic_parity'}, or detectors that score features",
            fairness=name,
        )
    return notions
