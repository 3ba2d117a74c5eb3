"""The built-in fairness notions, by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from evenout.core.individual import Individual
from evenout.core.notions import Notion
from evenout.core.parity import DemographicParity, EqualFalseAlarms, EqualizedOdds, EqualOpportunity, Own

PARITY = DemographicParity()
_BUILT_IN = PARITY, Individual(), EqualOpportunity(), EqualizedOdds(), EqualFalseAlarms()
NOTIONS: dict[str, Notion] = {notion.name: notion for notion in _BUILT_IN}
GROUP_NOTIONS = tuple(name for name, notion in NOTIONS.items() if isinstance(notion, DemographicParity))


def weighted_notions(fairness: Mapping[Any, float] | Sequence[tuple[Any, float]]) -> tuple[tuple[Notion, float], ...]:
    """Notions, given by name or as objects, with their weights; ``"own"`` is a form that was collected already."""
    known = {**NOTIONS, "own": Own()}
    return tuple((known[n] if isinstance(n, str) else n, float(weight)) for n, weight in dict(fairness).items())


def needs_labels(fairness: Any) -> bool:
    """Whether a notion, or one of several, compares rows of known outcome."""
    notions: Any = [fairness] if isinstance(fairness, str | Notion) else fairness
    return any(getattr(NOTIONS.get(notion, notion), "needs_labels", False) for notion in notions)
