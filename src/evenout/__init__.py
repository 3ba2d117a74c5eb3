"""Fair outlier detection: one score from many detectors that treats protected groups evenly.

Warnings and errors are in `evenout.exceptions`. Names are loaded when first used, so that ``evenout --help`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenout.auditing.audit import audit
    from evenout.auditing.result import AuditResult
    from evenout.core.individual import Individual
    from evenout.detectors.fairlof import FairLOF
    from evenout.estimator import FairOutlierEnsemble
    from evenout.groups.read import GroupProbabilities
    from evenout.groups.rules import Groups, Resemblance
    from evenout.planning import InvestigationPlan
    from evenout.repair import BlindRepair, ScoreRepair
    from evenout.tables.encoder import TableEncoder
    from evenout.watching import FairnessMonitor

__version__ = "0.3.0"

__all__ = [
    "AuditResult",
    "BlindRepair",
    "FairLOF",
    "FairOutlierEnsemble",
    "FairnessMonitor",
    "GroupProbabilities",
    "Groups",
    "Individual",
    "InvestigationPlan",
    "Resemblance",
    "ScoreRepair",
    "TableEncoder",
    "__version__",
    "audit",
]

_HOMES = {
    "AuditResult": "auditing",
    "BlindRepair": "repair",
    "FairLOF": "detectors.fairlof",
    "FairOutlierEnsemble": "estimator",
    "FairnessMonitor": "watching",
    "GroupProbabilities": "groups.read",
    "Groups": "groups.rules",
    "Individual": "core.individual",
    "InvestigationPlan": "planning",
    "Resemblance": "groups.rules",
    "ScoreRepair": "repair",
    "TableEncoder": "tables.encoder",
    "audit": "auditing",
}
_MODULES = ("datasets", "displays", "exceptions", "metrics", "persistence", "reasons", "report")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"evenout.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'evenout' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"evenout.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
