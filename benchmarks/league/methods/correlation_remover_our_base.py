"""fairlearn's CorrelationRemover, before the base score of evenout instead of an isolation forest."""

from functools import partial

from league.contract import Method
from league.methods.correlation_remover import scores
from league.methods.evenout_weights import base_of

METHOD = Method(
    "correlation remover, our base",
    "fairlearn (Weerts et al. 2023), preprocessing.CorrelationRemover; before the base score of `evenout`",
    partial(scores, detector=base_of),
    uses_group=True,
)
