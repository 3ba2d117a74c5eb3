"""Fair outlier detection: one score from many detectors that treats protected groups evenly."""

from evenout.core.exceptions import ConstantScoreWarning, NoGapWarning, TargetNotReachedWarning
from evenout.core.path import TradeoffPath
from evenout.estimator import FairOutlierEnsemble

__version__ = "0.1.0"

__all__ = [
    "ConstantScoreWarning",
    "FairOutlierEnsemble",
    "NoGapWarning",
    "TargetNotReachedWarning",
    "TradeoffPath",
    "__version__",
]
