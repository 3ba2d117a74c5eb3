"""What a fit compares, in words for people who were not there."""

from collections.abc import Mapping, Sequence

from evenout.core.registry import NOTIONS
from evenout.groups.rules import Groups


def gap_words(notions: Sequence[str]) -> str:
    """What the bias of these notions measures."""
    if len(notions) > 1:
        return "unfairness"
    return NOTIONS[notions[0]].words if notions[0] in NOTIONS else f"bias by {notions[0]}"


def compared_words(notions: Sequence[str], rules: Groups, attributes: Sequence[str], given: Sequence[str]) -> list[str]:
    """Whom the fit holds against whom, where that is not simply each group against each other.

    Parameters
    ----------
    notions : names of the notions of fairness
    rules : which groups are compared
    attributes, given : names of the protected columns, and of those that may justify a difference
    """
    found = []
    if given:
        found.append(
            f"People are compared with others who have the same {listed(given)}: a difference that goes with "
            f"{'these columns' if len(given) > 1 else 'this column'} counts as justified."
        )
    numbers = [name for name in attributes if name in rules.continuous]
    if numbers:
        bands = f"overlapping bands of it are compared, at most {rules.bands}"
        counted = "where people are counted by band, each is in the nearest one"
        found.append(f"{listed(numbers).capitalize()} counts as a number: {bands}; {counted}.")
    if len(attributes) > 1 and rules.cross is not True:
        crossed = ", and once more crossed" if rules.cross == "both" else ""
        found.append(f"{listed(attributes).capitalize()} are compared each by itself{crossed}, and count alike.")
    among = [NOTIONS[name].whom for name in notions if name in NOTIONS and NOTIONS[name].whom]
    if among:
        found.append(f"Only {listed(among)} are compared; all others are scored.")
    return found


def probable_words(bound: Mapping[str, float]) -> str:
    """What it means that groups are known by probability; ``bound`` is `evenout.GroupProbabilities.bound`."""
    off = ", ".join(f"{name!r} {size:.2g}" for name, size in bound.items())
    return (
        "groups are known by probability: if these are calibrated (of people with 0.7, 70 % are members), mean scores "
        f"may be off by at most so many standard deviations: {off}; a gap may be understated"
    )


def listed(names: Sequence[str]) -> str:
    """``a, b and c``.

    >>> listed(["sex"]), listed(["sex", "age", "region"])
    ('sex', 'sex, age and region')
    """
    first, last = list(names[:-1]), names[-1]
    return f"{', '.join(first)} and {last}" if first else str(last)
