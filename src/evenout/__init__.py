"""Fair outlier detection: one score from many detectors that treats protected groups evenly.

Warnings and errors are in `evenout.exceptions`.
"""

from evenout.auditing import AuditResult, audit
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
