"""Reasons: why a row stands out, in its own features, and what fairness changed."""

from evenout.reasons.display import ReasonsDisplay
from evenout.reasons.explain import explain
from evenout.reasons.explanation import Explanation

__all__ = ["Explanation", "ReasonsDisplay", "explain"]
