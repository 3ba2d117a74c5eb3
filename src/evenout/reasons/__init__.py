"""Reasons: why a row stands out, in its own features, and what fairness changed."""

from evenout.reasons.explain import explain, explain_collection, explain_partitions, reason_columns
from evenout.reasons.explanation import Explanation, ReasonsDisplay

__all__ = ["Explanation", "ReasonsDisplay", "explain", "explain_collection", "explain_partitions", "reason_columns"]
