"""Rules on parameters as data, checked at fit; old names of parameters, refused."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np

from evenout.core.base_score import COMBINATIONS, SCALINGS
from evenout.core.pairwise import METHODS as PAIR_METHODS
from evenout.core.problem import WEIGHTS
from evenout.exceptions import InputError


@dataclass(frozen=True)
class Allowed:
    """The values that a parameter may have: a test, and its words."""

    allows: Callable[[Any], bool]
    words: str

    def __or__(self, other: "Allowed") -> "Allowed":
        return Allowed(lambda value: self.allows(value) or other.allows(value), f"{self.words} or {other.words}")


def one_of(names: Collection[str]) -> Allowed:
    """Allow the given names."""
    return Allowed(lambda value: isinstance(value, str) and value in names, ", ".join(map(repr, names)))


def number(low: float, high: float, *, open_low: bool = False) -> Allowed:
    """Allow a finite real number in [low, high], or (low, high] with ``open_low``."""

    def allows(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
            return False
        given = float(value)
        return (low < given if open_low else low <= given) and given <= high and bool(np.isfinite(given))

    top = "" if np.isinf(high) else f" and at most {high:g}"
    return Allowed(allows, f"a number {'above' if open_low else 'of at least'} {low:g}{top}")


def integer(low: float) -> Allowed:
    """Allow an integer of at least ``low``."""
    return Allowed(
        lambda value: isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low,
        f"an integer of at least {low}",
    )


SHARE_OR_COUNT = Allowed(
    lambda value: number(0, 0.5, open_low=True).allows(value) or integer(1).allows(value),
    "a share of the rows above 0 and at most 0.5, or a count of rows",
)
NONE = Allowed(lambda value: value is None, "None")
TRUTH = Allowed(lambda value: isinstance(value, bool | np.bool_), "True or False")
CONFIDENCE = Allowed(lambda c: number(0.5, 1).allows(c) and c < 1, "a number of at least 0.5 and below 1")
ANY_JOBS = NONE | Allowed(lambda value: integer(-np.inf).allows(value) and value != 0, "an integer other than 0")
CLASSIFIER = NONE | Allowed(
    lambda c: hasattr(c, "get_params") and hasattr(c, "predict_proba"), "a classifier with predict_proba"
)

CONSTRAINT = one_of(WEIGHTS)

GROUPS = {  # of `evenout.Groups`
    "continuous": Allowed(
        lambda value: isinstance(value, tuple | list) and all(isinstance(name, str) for name in value),
        "a tuple of column names",
    ),
    "bands": integer(2),
    "cross": Allowed(lambda value: isinstance(value, bool), "True, False") | one_of(("both",)),
    "min_size": integer(2),
    "small": one_of(("leave_out", "merge", "error")),
    "unknown": one_of(("error", "ignore")),
}
INDIVIDUAL = {  # of `evenout.Individual`
    "length_scale": one_of(("minmax",))
    | number(0, np.inf, open_low=True)
    | Allowed(
        lambda value: (
            isinstance(value, tuple)
            and len(value) == 2
            and value[0] == "median"
            and number(0, np.inf, open_low=True).allows(value[1])
        ),
        "('median', a number above 0)",
    ),
    "pairs": one_of(PAIR_METHODS),
}
ENSEMBLE = {  # of `evenout.FairOutlierEnsemble`
    "standardize": TRUTH,
    "combination": one_of(COMBINATIONS) | Allowed(callable, "a function"),
    "scaling": one_of(SCALINGS),
    "bias_reduction": NONE | number(0, 1),
    "flag_rate_ratio": NONE | number(0, 1, open_low=True),
    "alpha": NONE | number(0, np.inf),
    "confidence": NONE | CONFIDENCE,
    "judged_on": one_of(("unseen", "training")),
    "weighting": one_of(("rank", "uniform")),
    "contamination": SHARE_OR_COUNT,
    "reference_size": integer(2),
    "n_jobs": ANY_JOBS,
    "learn": TRUTH,
    "device": one_of(("cpu", "cuda")),
}


def check_parameters(values: dict[str, Any], rules: dict[str, Allowed]) -> None:
    """Raise a ValueError that names the first parameter that breaks its rule, its value and what is allowed."""
    for name, rule in rules.items():
        if not rule.allows(values[name]):
            raise InputError(f"{{{name}=}} is not allowed; use {{words}}", words=rule.words, **{name: values[name]})


P = ParamSpec("P")
R = TypeVar("R")

RENAMED = {  # the table of CHANGELOG.md
    "target": "judged_on",
    "method": 'correction="published"',
    "weights": 'correction="nonnegative" or "simplex"',
    "classifier": "correction=Resemblance(classifier=...)",
    "length_scale": "fairness=Individual(length_scale=...)",
    "pairs": "fairness=Individual(pairs=...)",
    "continuous": "groups=Groups(continuous=...)",
    "bands": "groups=Groups(bands=...)",
    "intersections": "groups=Groups(cross=...)",
    "min_group_size": "groups=Groups(min_size=...)",
    "small_groups": "groups=Groups(small=...)",
    "unknown_groups": "groups=Groups(unknown=...)",
    "y": "labels",
    "n_bootstrap": "resamples",
    "n_permutations": "resamples",
}


def refuse_old_names(function: Callable[..., object], given: Iterable[str]) -> None:
    """Refuse an old name of an argument that the function has under a new one."""
    known = signature(function).parameters
    for name in given:
        new = RENAMED.get(name, "")
        if name not in known and new.partition("=")[0] in known:
            raise TypeError(f"{name} is {'called ' if new.isidentifier() else ''}{new} since 0.3")


def without_old_names(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse the old names of its arguments; its signature stays as it is.

    >>> @without_old_names
    ... def audit(scores, *, labels=None): ...
    >>> audit([1.0, 2.0], y=[0, 1])
    Traceback (most recent call last):
        ...
    TypeError: y is called labels since 0.3
    """

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_old_names(function, kwargs)
        return function(*args, **kwargs)

    return checked


class RefusesOldNames:
    """A class whose constructor refuses the old names of its arguments."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ARG004, D102
        refuse_old_names(cls.__init__, kwargs)
        return super().__new__(cls)
