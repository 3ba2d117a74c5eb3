"""Warnings of their own kind, so that a caller can silence or catch each one alone."""


class NoGapWarning(UserWarning):
    """The group gap of the base score cannot be told from sampling noise: there is nothing to remove."""


class TargetNotReachedWarning(UserWarning):
    """No trade-off parameter reaches what was asked for; the closest one was taken."""


class ConstantScoreWarning(UserWarning):
    """A detector gives every training row the same score, so it takes no part in the ensemble."""
