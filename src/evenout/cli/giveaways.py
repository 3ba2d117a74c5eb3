"""Features that nearly give the group away, by the names that they have in the file."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from evenout.core.exceptions import GroupGivenAwayWarning


class Giveaways:
    """What a fit has warned of; the ensemble itself sees encoded columns, which have no names."""

    def __init__(self) -> None:
        self.names: Sequence[str] = ()
        self.found: dict[str, float] = {}

    def name(self, features: Sequence[str]) -> None:
        """Name the features of the fit."""
        self.names = features


@contextmanager
def noticed_giveaways() -> Iterator[Giveaways]:
    """Keep what the fit inside warns of, and warn by name; other warnings pass."""
    from evenout.inputs.giveaways import warn_giveaways

    giveaways = Giveaways()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield giveaways
        finally:
            said = list(caught)
    for each in said:
        if isinstance(each.message, GroupGivenAwayWarning):
            found = each.message.fields["found"]
            giveaways.found = {str(giveaways.names[one.feature]): one.share for one in found}
            warn_giveaways(found, giveaways.names)
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
