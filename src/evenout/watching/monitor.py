"""A watch over a score in use: whether what was promised on the day of fitting is still kept."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from evenout.core.exceptions import InputError
from evenout.core.flags import flag_threshold
from evenout.core.types import FloatArray
from evenout.inputs.groups import read_groups
from evenout.inputs.parameters import NONE, SHARE_OR_COUNT, Rule, check_parameters, number, one_of
from evenout.storage.output import finite
from evenout.watching import text
from evenout.watching.findings import Alarm, Findings
from evenout.watching.inputs import read_codes, read_scores
from evenout.watching.ledger import BatchSums, Ledger, sum_batch
from evenout.watching.reference import Reference

if TYPE_CHECKING:
    import pandas as pd

_RULES = {
    "tolerance": number(0, 1)
    | Rule(
        lambda value: isinstance(value, Mapping) and all(number(0, 1).allows(v) for v in value.values()),
        "a dict with such a number for each group",
    ),
    "flag_rate_ratio": NONE | number(0, 1, open_low=True),
    "false_alarms": number(0, 0.5, open_low=True),
    "contamination": SHARE_OR_COUNT,
    "unknown_groups": one_of(("error", "ignore")),
}


@dataclass(frozen=True)
class Settings:
    """The arguments of `FairnessMonitor`, checked."""

    tolerance: float | dict[str, float]
    flag_rate_ratio: float | None
    false_alarms: float
    contamination: float
    unknown_groups: str


class FairnessMonitor:
    """Watches a score in use: one batch after another, an alarm when a gap is larger than was promised.

    Scores become ranks among those of a reference: the rows on which a model was fitted (`of`), rows given to `start`,
    or else the first batch, which is then not counted. The *gap* of a group is its mean rank less that of all others,
    these mixed as in the reference, within batches, and added up over them: 0.05 means that it stands 5 of 100 places
    higher. Intervals and alarms hold at all times at once, so that one may look after every batch, for ever.

    Parameters
    ----------
    tolerance : float in [0, 1] or dict of str to float, default=0.0
        The gap of ranks that is within the promise, of every group, or of each by its name. 0 promises that there is
        none; so does a name that the dict lacks.
    flag_rate_ratio : float in (0, 1], optional
        Promise this ratio of flag rates as well, the lowest group's to the highest's.
    false_alarms : float in (0, 0.5], default=0.05
        The chance that there ever is an alarm while all promises are kept.
    contamination : float in (0, 0.5] or int, default=0.1
        Share of the reference, or so many of its rows, that score above the threshold for being flagged.
    unknown_groups : {"error", "ignore"}, default="error"
        Rows without a group: refuse the batch, or do not compare them.

    Attributes
    ----------
    alarm : bool
        Whether there has been an alarm. It stays.
    alarms : tuple of Alarm
        The first of each group and promise.
    interval : tuple of float
        Ends of the largest gap of any group, on average over all batches.
    reference : Reference or None

    Notes
    -----
    Each group is held against all others; of two groups, one against the other. The false-alarm rate is shared out
    evenly over groups, over both directions and, if there are two, both promises (Bonferroni), then over the batch
    since which the gap is taken: one half to all batches, the rest to every later start. A gap that comes late is so
    found without the even years before it. Intervals of flag rates, and what is said about scores and mix, have the
    same rate once more, each.

    Needed for all this: rows are drawn independently within a group and a batch, and each person comes once in a batch.

    Examples
    --------
    >>> import numpy as np
    >>> from evenout import FairnessMonitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = FairnessMonitor()
    >>> for week in range(30):
    ...     groups = rng.choice(["a", "b"], size=300)
    ...     scores = rng.normal(size=300) + 0.5 * (groups == "b") * (week > 20)
    ...     monitor = monitor.update(scores, sensitive_features=groups, batch=f"week {week}")
    >>> monitor.alarm, monitor.alarms[0].since
    (True, 'week 21')
    """

    def __init__(
        self,
        tolerance: float | Mapping[str, float] = 0.0,
        *,
        flag_rate_ratio: float | None = None,
        false_alarms: float = 0.05,
        contamination: float | int = 0.1,
        unknown_groups: str = "error",
    ) -> None:
        given = {
            "tolerance": dict(tolerance) if isinstance(tolerance, Mapping) else tolerance,
            "flag_rate_ratio": flag_rate_ratio,
            "false_alarms": false_alarms,
            "contamination": contamination,
            "unknown_groups": unknown_groups,
        }
        check_parameters(given, _RULES)
        self.settings = Settings(**given)  # type: ignore[arg-type]
        self.reference: Reference | None = None
        self.alarms: tuple[Alarm, ...] = ()
        self._batches: dict[str, BatchSums] = {}

    @classmethod
    def of(cls, model: Any, *, false_alarms: float = 0.05, unknown_groups: str = "error") -> Self:
        """Watch what a fitted `FairOutlierEnsemble` promised: no larger gap than it left on rows it had not seen.

        The gap of ranks that it left to each group is known up to chance: the group's tolerance is the far end of its
        interval, and these ends take one half of ``false_alarms``. Asked for a ratio of flag rates, the model promised
        that too, and the lower end of the ratio on such rows is watched. Its own threshold says who is flagged.
        """
        from evenout.watching.promise import promise_of

        check_parameters({"false_alarms": false_alarms}, {"false_alarms": _RULES["false_alarms"]})
        promise = promise_of(model, false_alarms / 2.0)
        monitor = cls(
            promise.tolerance,
            flag_rate_ratio=promise.flag_rate_ratio,
            false_alarms=false_alarms / 2.0,
            contamination=promise.contamination,
            unknown_groups=unknown_groups,
        )
        monitor.reference = promise.reference
        return monitor

    def start(
        self, scores: Any, *, sensitive_features: Any, threshold: float | None = None, batch: str | None = None
    ) -> Self:
        """Take rows as the reference, and their groups as those to compare; needs no model.

        Parameters
        ----------
        scores : array of shape (n,)
            Higher = more outlying.
        sensitive_features : array, series or frame of shape (n,) or (n, c)
        threshold : float, optional
            Rows that score above are flagged; by default the top ``contamination``.
        batch : str, optional
            A name, which no later batch may have.
        """
        if self.reference is not None:
            raise InputError("the watch has begun already; begin another one to change what rows are held against")
        values = read_scores(scores, sensitive_features)
        groups = read_groups(
            sensitive_features, len(values), min_group_size=1, unknown_groups=self.settings.unknown_groups
        )
        tolerance = self.settings.tolerance
        wrong = [name for name in tolerance if name not in groups.labels] if isinstance(tolerance, dict) else []
        if wrong:
            raise InputError("{@tolerance} names {name!r}, which is no group of the reference", name=wrong[0])
        above = float(flag_threshold(values, self.settings.contamination)) if threshold is None else float(threshold)
        self.reference = Reference.of(values, above, groups.labels, groups.counts, batch or "")
        self._forget()
        return self

    def update(self, scores: Any, *, sensitive_features: Any, batch: str | None = None) -> Self:
        """Count one batch, and see whether there is an alarm.

        Parameters
        ----------
        scores : array of shape (n,)
            Higher = more outlying.
        sensitive_features : array, series or frame of shape (n,) or (n, c)
            Groups that the reference does not have are counted, but not compared.
        batch : str, optional
            A name of its own, such as the week. A name that was counted is refused: see `batches`.
        """
        if self.reference is None:
            return self.start(scores, sensitive_features=sensitive_features, batch=batch)
        name = self._next_name() if batch is None else str(batch)
        if name in self:
            raise InputError(
                "batch {name!r} has been counted already; leave it out, or give it another name", name=name
            )
        values = read_scores(scores, sensitive_features)
        labels, rule = self.reference.labels, self.settings.unknown_groups
        codes, others = read_codes(sensitive_features, len(values), labels, rule)
        known, place = codes >= 0, max((b.place for b in self._batches.values()), default=0) + 1
        ranks, flags = self.reference.ranks(values[known]), (values[known] > self.reference.threshold).astype(float)
        self._batches[name] = sum_batch(name, place, ranks, flags, codes[known], self._guesses(), others)
        return self._look()

    def merge(self, *others: "FairnessMonitor") -> Self:
        """Take in the batches of other watches, such as those of other machines; returns itself.

        The watches must have begun alike, from one model, one file or one reference. A batch that both have is counted
        once, so that merging twice changes nothing. All is as if the batches had come here, and the false-alarm rate
        is that of this one watch; alarms of the others stay theirs.
        """
        taken = dict(self._batches)
        for other in others:
            if self.reference is None or other.reference is None or self.reference.digest != other.reference.digest:
                raise InputError(
                    "two watches can be merged only if they began alike; begin both from one model, or from copies of "
                    "one file, or call start() with the same rows"
                )
            if other.settings != self.settings:
                raise InputError("two watches can be merged only if they promise the same; begin both with one setting")
            for name, batch in other._batches.items():
                if not taken.setdefault(name, batch).same(batch):
                    raise InputError(
                        "both watches have a batch {name!r}, with different rows; give each batch a name of its own",
                        name=name,
                    )
        self._batches = taken
        return self._look()

    def save(self, path: str | Path) -> None:
        """Write the whole state to one small file: it appears whole or not at all."""
        from evenout.watching.files import save_monitor

        save_monitor(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "FairnessMonitor":
        """Read what `save` wrote; no code from the file is run, and every bound is checked."""
        from evenout.watching.files import load_monitor

        return load_monitor(Path(path))

    @property
    def batches(self) -> tuple[str, ...]:
        """Names of the batches that were counted, in their order."""
        return tuple(batch.name for batch in self.findings.ledger.batches)

    def __contains__(self, batch: str) -> bool:
        """Whether the watch began with a batch of this name, or has counted it."""
        return batch in self._batches or (self.reference is not None and batch == self.reference.name)

    @property
    def alarm(self) -> bool:
        """Whether there has been an alarm."""
        return bool(self.alarms)

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the largest gap of ranks, on average over all batches; 0 and 1 before there is any."""
        return self.findings.interval

    @property
    def verdict(self) -> tuple[str, ...]:
        """What is known, in sentences: the promise, then what else has changed."""
        return text.verdict(self)

    @cached_property
    def findings(self) -> Findings:
        """All that follows from the sums; made anew after each batch."""
        if self.reference is None:
            raise InputError("the watch has not begun; call start() or update() first")
        return Findings(self.reference, Ledger(self._batches, len(self.reference.labels)), self.settings)

    def to_frame(self) -> "pd.DataFrame":
        """One row per group: rows, share and flag rate, at the start and since, and gap of ranks, with intervals."""
        return self.findings.groups()

    def history(self) -> "pd.DataFrame":
        """One row per batch and group: its mean rank and flag rate; gap and interval of all batches until then."""
        return self.findings.history()

    def to_dict(self) -> dict[str, Any]:
        """Everything but the history, of types that JSON has."""
        return {
            "settings": asdict(self.settings),
            "batches": len(self._batches),
            "alarm": self.alarm,
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "interval": list(self.interval),
            "verdict": list(self.verdict),
            "groups": finite(self.to_frame().to_dict("records")),
        }

    def __repr__(self) -> str:
        return text.watch_text(self) if self.reference is not None else "FairnessMonitor(), not begun"

    def _next_name(self) -> str:
        return next(name for n in count(len(self._batches) + 1) if (name := f"batch {n}") not in self)

    def _look(self) -> Self:
        """See what the sums say now; an alarm stays."""
        self._forget()
        known = {(alarm.promise, alarm.group) for alarm in self.alarms}
        self.alarms += tuple(a for a in self.findings.alarms() if (a.promise, a.group) not in known)
        return self

    def _forget(self) -> None:
        self.__dict__.pop("findings", None)

    def _guesses(self) -> tuple[FloatArray, FloatArray]:
        """Mean rank and flag rate of each group before the next batch: what was seen, with one row of the reference."""
        assert self.reference is not None
        n = self.findings.ledger.total("counts") + 1.0
        first = {"ranks": 0.5, "flagged": self.reference.flagged}
        ranks, flagged = ((self.findings.ledger.total(name) + prior) / n for name, prior in first.items())
        return ranks, flagged
