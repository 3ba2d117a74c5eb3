"""The state in which each example starts.

Pictures have light backgrounds and labels that can be read on a phone. A warning of the library is an error: an example
that needs an excuse is no example.
"""

import warnings
from typing import Any

from evenout.exceptions import (
    ConstantScoreWarning,
    FewPairsWarning,
    NoGapWarning,
    SmallGroupWarning,
    TargetNotReachedWarning,
)

_EXCUSES = (
    ConstantScoreWarning,
    FewPairsWarning,
    NoGapWarning,
    SmallGroupWarning,
    TargetNotReachedWarning,
)


def prepare(_gallery: Any, _file: Any) -> None:
    """Set matplotlib's defaults and the warnings before each example."""
    import matplotlib as mpl

    for category in _EXCUSES:
        warnings.simplefilter("error", category)

    mpl.rcParams.update(
        {
            "axes.grid": True,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "figure.dpi": 110,
            "figure.figsize": (7.0, 4.2),
            "font.size": 11,
            "grid.alpha": 0.25,
            "savefig.facecolor": "white",
        }
    )
