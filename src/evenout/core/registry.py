"""The fairness notions that are known by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from evenout.core.individual import Individual
from evenout.core.notions import Notion
from evenout.core.parity import DemographicParity, EqualFalseAlarms, EqualizedOdds, EqualOpportunity, Own

PARITY = DemographicParity()
_OUTCOMES = EqualOpportunity(), EqualizedOdds(), EqualFalseAlarms()
NOTIONS: dict[str, Notion] = {notion.name: notion for notion in (PARITY, Individual(), *_OUTCOMES)}
GROUP_NOTIONS = (PARITY.name, *(notion.name for notion in _OUTCOMES))  # those that compare the means of groups


def weighted_notions(fairness: Mapping[Any, float] | Sequence[tuple[Any, float]]) -> list[tuple[Notion, float]]:
    """Notions, given by name or as they are, with their weights; ``"own"`` is a form that has been collected."""
    known = {**NOTIONS, "own": Own()}
    return [(known[n] if isinstance(n, str) else n, float(weight)) for n, weight in dict(fairness).items()]


def needs_labels(fairness: Any) -> bool:
    """Whether a notion, or one of several, compares rows of known outcome."""
    asked = [fairness] if isinstance(fairness, str | Notion) else fairness
    return any(getattr(notion, "name", notion) in {known.name for known in _OUTCOMES} for notion in asked)
