"""Everything a report shows, as plain numbers and strings: computed once, read by the renderer, ready for JSON.

Where a number of people must not be shown, a `Range` holds the lowest and the highest value that the page gives
away; exact values have two equal ends.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from evenout.outcome import Outcome
from evenout.report.privacy import Range

Labels: TypeAlias = Literal["absent", "too few", "shown"]


@dataclass(frozen=True)
class Group:
    """A protected group and its number of people."""

    name: str
    size: Range


@dataclass(frozen=True)
class Flags:
    """Flagged people of each group, their share of the group, and the lowest share over the highest.

    ``unflagged`` is the lowest over the highest share of people who are not flagged.
    """

    counts: tuple[Range, ...]
    rates: tuple[Range, ...]
    ratio: Range
    unflagged: Range


@dataclass(frozen=True)
class Spread:
    """Scores in standard deviations from the mean of all people.

    ``means`` by group; ``heights`` by group, a density over the report's bins; people above ``threshold`` are flagged.
    None for groups too small to show.
    """

    means: tuple[float | None, ...]
    heights: tuple[tuple[float, ...] | None, ...]
    threshold: float


@dataclass(frozen=True)
class Moves:
    """People who cross the line between flagged and not flagged, against the base ensemble.

    ``listed`` holds places in the report's ``people``, ``ranks`` the rank that each of them has now.
    """

    enter: Range
    leave: Range
    listed: tuple[int, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Person:
    """Someone who enters or leaves the flagged list at some alpha; rank 1 is the most outlying."""

    id: str
    rank: int
    leaves: bool
    group: str | None


@dataclass(frozen=True)
class Score:
    """One score: its bias on unseen rows (95 % interval) and on training rows, detection, flags, distribution.

    ``precision`` is the share of known outliers among the flagged, where that may be shown. ``apart`` is the largest
    difference of two groups' averages in standard deviations, ``beyond`` the number of flagged people beyond what equal
    rates would give; None where that would give small cells away.
    """

    bias: float
    interval: tuple[float, float]
    training_bias: float
    apart: float | None
    beyond: float | None
    auc: float | None
    average_precision: float | None
    precision: float | None
    flags: Flags
    spread: Spread


@dataclass(frozen=True)
class Step:
    """One trade-off parameter; ``distance``, the root of f1 per unit of row weight, is on the base score's scale.

    ``kept`` is the share of the base score's flagged list that is still flagged. Where a score is corrected by
    resemblance, ``prices`` is what is taken off for looking like each of the report's ``resembled`` groups, and
    ``taken`` what that takes off the people of each listed group, on average, in standard deviations of the base score.
    """

    alpha: float
    f1: float
    f2: float
    distance: float
    weights: tuple[float, ...]
    score: Score
    moves: Moves
    kept: Range
    prices: tuple[float, ...] = ()
    taken: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Origin of the page; ``versions`` and ``settings`` are pairs of name and value."""

    date: str
    versions: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    source: str | None = None
    input_sha256: str | None = None
    model_sha256: str | None = None


@dataclass(frozen=True)
class ReportData:
    """All that a report shows.

    ``steps`` ascend in alpha and start at 0; ``chosen`` is the place of the model's own alpha. ``base`` is the base
    ensemble, with which every step is compared. ``groups`` may end with the rows of unknown group, which ``n_groups``
    does not count. ``edges`` are the bins of every `Spread`. No count of 1 to ``smallest_cell - 1`` people is given
    away. ``unlisted_groups`` are counted in, but not shown one by one; ``left_out_groups`` are too small to compare.
    ``refitted`` tells whether unseen people are unseen by the detectors too, or by the weights alone.
    ``weights_of_sum`` tells whether a step's weights make up the whole score, or are added to the base score.
    ``resembled`` are the groups that people may look like, where the score is corrected by that, and how much of who
    belongs to each of them the features tell. ``solved`` tells whether the steps lead straight to a rule that was
    solved for even flags. ``label_gap`` is the base score's gap before and after it has learnt from labels, where it
    has. ``flag_ratio`` is the lowest over the highest flag rate on unseen rows, before and after, and
    ``flag_interval`` the 95 % interval of the latter. ``parts`` is what the sections of the page show beside, by name.
    """

    title: str
    origin: Origin
    rows: int
    n_groups: int
    groups: tuple[Group, ...]
    unlisted_groups: int
    left_out_groups: tuple[str, ...]
    contamination: float
    fairness: tuple[str, ...]
    outcome: Outcome
    flag_ratio: tuple[float, float]
    flag_interval: tuple[float, float]
    gap_detected: bool
    gap_p_value: float
    refitted: bool
    weights_of_sum: bool
    labels: Labels
    detectors: tuple[str, ...]
    edges: tuple[float, ...]
    base: Score
    steps: tuple[Step, ...]
    chosen: int
    people: tuple[Person, ...]
    id_name: str
    smallest_cell: int
    label_gap: tuple[float, float] | None = None
    resembled: tuple[tuple[str, float], ...] = ()
    solved: bool = False
    parts: dict[str, Any] = field(default_factory=dict)
