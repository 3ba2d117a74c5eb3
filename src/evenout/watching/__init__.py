"""A score in use, watched: bounds that hold however often one looks, and an alarm at a stated rate."""

from evenout.watching.ledger import Alarm
from evenout.watching.monitor import FairnessMonitor

__all__ = ["Alarm", "FairnessMonitor"]
