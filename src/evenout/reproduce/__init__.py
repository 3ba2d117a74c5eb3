"""The paper's experiments, from the data to a page with a verdict on each claim."""

from evenout.reproduce.claims import Claim
from evenout.reproduce.page import Results, reproduce

__all__ = ["Claim", "Results", "reproduce"]
