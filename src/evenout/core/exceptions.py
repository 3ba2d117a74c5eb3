"""Warnings of their own kind, so that a caller can silence or catch each one alone, and the one way to give them."""

import sys
import warnings

_INSIDE = ("evenout", "sklearn", "joblib")


class NoGapWarning(UserWarning):
    """The group gap of the base score cannot be told from sampling noise: there is nothing to remove."""


class TargetNotReachedWarning(UserWarning):
    """What was asked for is not reached; the message says what was, at which price, and what would reach more."""


class SmallGroupWarning(UserWarning):
    """Groups with too few rows to be measured are left out of the comparison."""


class FewPairsWarning(UserWarning):
    """Individual fairness rests on few pairs of similar rows."""


class ConstantScoreWarning(UserWarning):
    """A detector gives every training row the same score, so it takes no part in the ensemble."""


class ConstantFeatureWarning(UserWarning):
    """A column of X holds one value in all training rows, so it is dropped."""


def warn(message: str, category: type[Warning]) -> None:
    """Give a warning that points at the caller's own line: the first one outside this package and scikit-learn."""
    level, frame = 2, sys._getframe(1)  # 1 would be this function, 2 is its caller
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
