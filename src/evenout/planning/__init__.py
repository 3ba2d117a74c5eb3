"""Lists with chance in them: whom to look into next, and what the outcomes say about everybody else."""

from evenout.planning.plan import InvestigationPlan, PlanEstimate

__all__ = ["InvestigationPlan", "PlanEstimate"]
