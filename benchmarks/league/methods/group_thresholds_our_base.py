"""A threshold for each group, after the base score of evenout instead of an isolation forest."""

from functools import partial

from league.contract import Method
from league.methods.evenout_weights import base_of
from league.methods.group_thresholds import scores

METHOD = Method(
    "thresholds per group, our base",
    "common practice; Feldman et al. (2015); after the base score of `evenout`",
    partial(scores, detector=base_of),
    uses_group=True,
)
