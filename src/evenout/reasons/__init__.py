"""Reasons: why a row stands out, in its own features, and what fairness changed."""

from evenout.reasons.display import ReasonsDisplay
from evenout.reasons.explain import explain
from evenout.reasons.explanation import Explanation
from evenout.reasons.listed import explain_collection, explain_partitions, reason_columns

__all__ = ["Explanation", "ReasonsDisplay", "explain", "explain_collection", "explain_partitions", "reason_columns"]
