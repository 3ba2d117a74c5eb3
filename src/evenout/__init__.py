"""Fair outlier detection: one score from many detectors that treats protected groups evenly."""

from evenout.auditing import AuditResult, audit
from evenout.core.exceptions import (
    AgedDetectorsWarning,
    AttributeWarning,
    ConstantFeatureWarning,
    ConstantScoreWarning,
    ContinuousWarning,
    EvenoutWarning,
    FewPairsWarning,
    GroupGivenAwayWarning,
    InputError,
    LabelCoverageWarning,
    ManyColumnsWarning,
    NoGapWarning,
    ProxyWarning,
    SmallGroupWarning,
    TargetNotReachedWarning,
    UnknownCategoryWarning,
    UnknownOutcomeWarning,
)
from evenout.core.path import TradeoffPath
from evenout.detectors.fairlof import FairLOF
from evenout.estimator import FairOutlierEnsemble
from evenout.groups.read import GroupProbabilities
from evenout.planning import InvestigationPlan
from evenout.repair import BlindRepair, ScoreRepair
from evenout.tables.encoder import TableEncoder
from evenout.watching import FairnessMonitor

__version__ = "0.2.0"

__all__ = [
    "AgedDetectorsWarning",
    "AttributeWarning",
    "AuditResult",
    "BlindRepair",
    "ConstantFeatureWarning",
    "ConstantScoreWarning",
    "ContinuousWarning",
    "EvenoutWarning",
    "FairLOF",
    "FairOutlierEnsemble",
    "FairnessMonitor",
    "FewPairsWarning",
    "GroupGivenAwayWarning",
    "GroupProbabilities",
    "InputError",
    "InvestigationPlan",
    "LabelCoverageWarning",
    "ManyColumnsWarning",
    "NoGapWarning",
    "ProxyWarning",
    "ScoreRepair",
    "SmallGroupWarning",
    "TableEncoder",
    "TargetNotReachedWarning",
    "TradeoffPath",
    "UnknownCategoryWarning",
    "UnknownOutcomeWarning",
    "__version__",
    "audit",
]
