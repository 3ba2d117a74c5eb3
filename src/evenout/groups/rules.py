"""Small scikit-learn objects for settings that belong together, and what estimators that take them share."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from sklearn.base import BaseEstimator

from evenout.core.individual import Individual
from evenout.exceptions import InputError
from evenout.tables.parameters import (
    CLASSIFIER,
    CONSTRAINT,
    GROUPS,
    NONE,
    RefusesOldNames,
    check_parameters,
    refuse_old_names,
)


class Groups(BaseEstimator):
    """Which protected groups there are, and which are compared.

    Parameters
    ----------
    continuous : tuple of str, default=()
        Protected columns that are numbers, such as age: overlapping bands at their quantiles are compared, each two by
        the shares of their rows, so that the bias is the share of the score's variance between bands. A float column
        with fractions and more than 20 values is one by itself, with a warning; integers, text and categories never.
    bands : int, default=5
        How many bands a continuous attribute has.
    cross : True, False or "both", default=True
        Several protected columns: compare each combination of their values; or the values of each column by itself,
        where columns count alike; or both, where the crossing counts like one more column.
    min_size : int, default=30
        Groups with fewer rows are small.
    small : {"leave_out", "merge", "error"}, default="leave_out"
        Leave small groups out of the comparison, with a warning that names them: their rows are scored like all
        others. Or merge them into one group, or refuse them.
    unknown : {"error", "ignore"}, default="error"
        Rows whose group is missing: refuse them, or score them without comparing them.

    Examples
    --------
    >>> from evenout import BlindRepair, Groups
    >>> BlindRepair(groups=Groups(min_size=50)).set_params(groups__small="merge").groups
    Groups(min_size=50, small='merge')
    """

    def __init__(
        self,
        *,
        continuous: tuple[str, ...] = (),
        bands: int = 5,
        cross: bool | str = True,
        min_size: int = 30,
        small: str = "leave_out",
        unknown: str = "error",
    ) -> None:
        self.continuous = continuous
        self.bands = bands
        self.cross = cross
        self.min_size = min_size
        self.small = small
        self.unknown = unknown

    @classmethod
    def read(cls, groups: "Groups | None") -> "Groups":
        """The rules of an argument ``groups``, checked; None: the default ones."""
        if groups is None:
            return cls()
        if not isinstance(groups, cls):
            raise InputError("{groups=} is not allowed; use None or evenout.Groups(...)", groups=groups)
        check_parameters(groups.get_params(deep=False), GROUPS)
        return groups

    def but(self, **changes: Any) -> "Groups":
        """A copy with other values."""
        return Groups(**(self.get_params(deep=False) | changes))

    def refuse(self, allowed: Mapping[str, Any], reason: str) -> None:
        """Refuse a value that does not go with a class, which takes those in ``allowed`` alone."""
        for name, value in allowed.items():
            if getattr(self, name) != value:
                raise InputError(f"{{{name}=}} does not go with {reason}", **{name: getattr(self, name)})


class Resemblance(BaseEstimator):
    """Correct a score by how much a row resembles each group, ``P(g | x) / P(g)``.

    Parameters
    ----------
    classifier : scikit-learn classifier, optional
        Tells groups apart by ``predict_proba``; copies of it are fitted. By default a `HistGradientBoostingClassifier`
        of 50 small trees.
    weights : {"free", "nonnegative", "simplex"}, optional
        Correct the score by how much each detector counts as well, with this constraint on the weights of detectors;
        None: by resemblance alone.
    """

    def __init__(
        self, classifier: Any = None, weights: Literal["free", "nonnegative", "simplex"] | None = None
    ) -> None:
        self.classifier = classifier
        self.weights = weights

    def check(self) -> None:
        """Refuse what is not allowed."""
        check_parameters(self.get_params(deep=False), {"classifier": CLASSIFIER, "weights": NONE | CONSTRAINT})


_STANDS_FOR: dict[str, dict[Any, Callable[[], Any]]] = {  # of a short form: the object that it means
    "groups": {None: Groups},
    "fairness": {"individual": Individual},
    "correction": {"resemblance": Resemblance, "both": lambda: Resemblance(weights="free")},
}


class TakesSettings(RefusesOldNames):
    """An estimator whose parameters may be such objects: ``set_params(groups__min_size=50)``, grid search."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of nested objects too, such as ``groups__min_size=50``; old names are refused."""
        refuse_old_names(type(self).__init__, params)
        for name in {key.partition("__")[0] for key in params if "__" in key}:
            value = params.get(name, getattr(self, name, None))
            meant = _STANDS_FOR.get(name, {}).get(value) if value is None or isinstance(value, str) else None
            if meant is not None:
                params = {name: meant()} | {key: value for key, value in params.items() if key != name}
            elif name in _STANDS_FOR and not hasattr(value, "set_params"):
                raise InputError("{$name} is {value!r}, which has no settings of its own", name=name, value=value)
        return super().set_params(**params)  # type: ignore[misc]
