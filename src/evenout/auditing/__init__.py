"""The audit: any outlier score, any groups, numbers with error bars.

`audit` measures one batch, `compare_batches` (or `AuditResult.compare`) holds it against an earlier one, and
`metric_functions` gives the measures per group to fairlearn's ``MetricFrame``.
"""

from evenout.auditing.audit import audit, metric_functions
from evenout.auditing.result import (
    AttributeAudits,
    AuditResult,
    Change,
    Curve,
    DriftResult,
    LeftOut,
    Measure,
    compare_batches,
)

__all__ = [
    "AttributeAudits",
    "AuditResult",
    "Change",
    "Curve",
    "DriftResult",
    "LeftOut",
    "Measure",
    "audit",
    "compare_batches",
    "metric_functions",
]
