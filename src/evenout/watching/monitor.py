"""A watch over a score in use: whether the promise of the day of fitting is still kept.

The state is one file of plain data, in the format of models: settings, the start, and sums of each batch. It holds no
single score and no person, and a kill at any moment leaves the old file or the new one.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import pandas as pd
from scipy.special import ndtri
from scipy.stats import rankdata

import evenout
from evenout.auditing.sample import aligned
from evenout.core.flags import flag_threshold, flagged_share
from evenout.core.intervals import SIGNS
from evenout.core.types import MOST_ROWS, BoolArray, FloatArray, IntArray, Within, require
from evenout.exceptions import InputError, Message
from evenout.groups.read import Codes, match_groups, read_groups
from evenout.groups.rules import Groups
from evenout.pages import html_table
from evenout.storage.archive import ModelFileError, read_plain, write_plain
from evenout.storage.output import atomic_file, finite
from evenout.storage.walker import describe, read, sound
from evenout.tables.parameters import (
    NONE,
    SHARE_OR_COUNT,
    Allowed,
    RefusesOldNames,
    check_parameters,
    number,
    one_of,
    without_old_names,
)
from evenout.tables.rows import read_numbers
from evenout.watching import text
from evenout.watching.ledger import (
    FEWEST,
    SUMS,
    Alarm,
    Baseline,
    Findings,
    Ledger,
    Persons,
    WatchSettings,
    rank_among,
    sum_rows,
    summarise,
)

if TYPE_CHECKING:
    from evenout.fitting.result import FitResult

FORMAT = 2

_RULES = {
    "tolerance": number(0, 1)
    | one_of(("start",))
    | Allowed(
        lambda value: isinstance(value, Mapping) and all(number(0, 1).allows(v) for v in value.values()),
        "a dict with such a number for each group",
    ),
    "flag_rate_ratio": NONE | number(0, 1, open_low=True),
    "false_alarms": number(0, 0.5, open_low=True),
    "contamination": SHARE_OR_COUNT,
}


@dataclass(frozen=True, eq=False)
class WatchFile:
    """All of a watch: its settings, its start, and B batches one behind the other (`Ledger`)."""

    watch: int
    evenout: str
    settings: WatchSettings
    columns: dict[str, tuple[str, ...]]
    looks: Annotated[int, Within(0, 2**31)]
    start: Baseline
    names: tuple[str, ...]
    places: Annotated[IntArray, "B", Within(1, 2**31)]
    sums: Annotated[FloatArray, f"B {len(SUMS)} G"]
    signed: Annotated[FloatArray, "B 2 G S"]
    others: tuple[dict[str, Annotated[int, Within(0, MOST_ROWS)]], ...]
    alarms: tuple[Alarm, ...]

    def check(self) -> None:
        """Batches have a name each, and sums that rows can have."""
        B, n, *parts = len(self.names), *np.moveaxis(self.sums, 1, 0)
        require(len({*self.names}) == B == len(self.places), "names", "is no list of names")
        require(len(self.others) == B, "others", "has the wrong length")
        require(self.sums.shape[-1] == len(self.start.labels), "sums", "has the wrong shape")
        sizes = (n >= 0) & (n <= MOST_ROWS) & np.all([(part >= 0) & (part <= n) for part in parts], axis=0)
        require(sizes.all() and ((n == 0) | (n >= FEWEST)).all(), "sums", "are those of no rows")
        require(self.signed.shape[-1] == (SIGNS if parts[-1].any() else 0), "signed", "has the wrong shape")
        require((np.abs(self.signed) <= 2.0 * n[:, None, :, None]).all(), "signed", "are those of no rows")


class FairnessMonitor(RefusesOldNames):
    """Watches a score in use: one batch after another, an alarm when a gap is larger than was promised.

    Scores become ranks among those of a start: the rows on which a model was fitted (`of`), rows given to `start`, or
    else the first batch, which is then not counted. The *gap* of two groups is the difference of their mean ranks,
    within batches, and added up over them: 0.05 means that one stands 5 of 100 places higher. Any two groups are
    compared. Intervals and alarms hold at all times at once, so that one may look after every batch, for ever.

    Parameters
    ----------
    tolerance : float in [0, 1], "start" or dict of str to float, default=0.0
        The gap of mean ranks between two groups that is within the promise. A number holds for every two groups; 0
        promises that there is none. "start" promises no more than the start shows: each gap may be as large as there,
        on the same side, with its sampling noise, or smaller. A dict has a number for each group, 0 for a name
        that it lacks; two groups may be as far apart as the larger of theirs. 1 promises nothing about ranks.
    flag_rate_ratio : float in (0, 1], optional
        Promise this ratio of flag rates as well, the lowest group's to the highest's.
    false_alarms : float in (0, 0.5], default=0.05
        The chance that there ever is an alarm while all promises are kept.
    contamination : float in (0, 0.5] or int, default=0.1
        Share of the start, or so many of its rows, that score above the threshold for being flagged.
    groups : Groups, optional
        Which groups are compared, as in `FairOutlierEnsemble`: those with ``min_size`` people at the start; columns are
        crossed, and small groups cannot be merged. By default ``Groups(min_size=5)``: batches add up.

    Attributes
    ----------
    alarm : bool
        Whether there has been an alarm. It stays.
    alarms : tuple of Alarm
        The first of each promise; later ones are of pairs of groups neither of which an earlier one names.
    kept : bool
        Whether everything promised is known to be kept, on average over all batches, and there was no alarm.
    interval : tuple of float
        Ends of the largest gap between two groups, on average over all batches.
    reference : Baseline or None
        What is kept of the start.
    columns : dict of str to list of str
        Names of columns that the command line reads; saved with the watch, and not used here.

    Notes
    -----
    The false-alarm rate is shared out evenly over pairs of groups, both directions and, if there are two, both promises
    (Bonferroni), then over the batch since which the gap is taken: one half to all batches, the rest to every later
    start. A gap that comes late is so found without the even years before it. With ``tolerance="start"`` one half of
    the rate is for the noise of the start. Intervals of flag rates, and what is said about scores and mix, have
    the same rate once more, each.

    Without ``person``, all this needs **new people in each batch**, drawn independently within a group. Where the same
    people come again, give ``person`` to every `update`: each look is then a test with a variance by person, and the
    k-th look spends ``1 / (k (k + 1))`` of the rate. It is made once the smaller group of a pair has 20 people.

    A group with fewer than 5 people in a batch is not counted in it, and none with fewer at the start is ever compared:
    so nothing that is saved is about fewer people.

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
    >>> monitor.alarm, monitor.alarms[0].earliest, monitor.alarms[0].latest
    (True, 'week 21', 'week 21')
    """

    def __init__(
        self,
        tolerance: float | str | Mapping[str, float] = 0.0,
        *,
        flag_rate_ratio: float | None = None,
        false_alarms: float = 0.05,
        contamination: float | int = 0.1,
        groups: Groups | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "tolerance": dict(tolerance) if isinstance(tolerance, Mapping) else tolerance,
            "flag_rate_ratio": flag_rate_ratio,
            "false_alarms": false_alarms,
            "contamination": contamination,
        }
        check_parameters(given, _RULES)
        rules = Groups.read(Groups(min_size=FEWEST) if groups is None else groups)
        rules.refuse({"continuous": (), "cross": True}, "a watch, which compares crossed groups")
        if rules.small == "merge":
            raise InputError("{small='merge'} does not go with a watch, to which every batch brings other groups")
        self.settings = WatchSettings(**given, min_size=rules.min_size, small=rules.small, unknown=rules.unknown)
        self.reference: Baseline | None = None
        self.alarms: tuple[Alarm, ...] = ()
        self.columns: dict[str, list[str]] = {}
        self._findings: Findings | None = None

    @classmethod
    @without_old_names
    def of(cls, model: Any, *, false_alarms: float = 0.05, groups: Groups | None = None) -> Self:
        """Watch what a fitted `FairOutlierEnsemble` promised: no larger gaps than it left on rows it had not seen.

        The fit is the start (``tolerance="start"``): the gap of ranks of each pair of groups among held-out rows, up to
        its sampling noise, is what later batches are held to. Asked for a ratio of flag rates, the model promised that
        too, and the lower end of the ratio on such rows is watched. Its own threshold says who is flagged.
        """
        check_parameters({"false_alarms": false_alarms}, {"false_alarms": _RULES["false_alarms"]})
        ensemble, result = _fitted(model)
        ranks, asked = _unseen_ranks(result, ensemble.judged_on), ensemble.flag_rate_ratio
        rules = Groups.read(Groups(min_size=FEWEST) if groups is None else groups)
        codes, labels, left_out = _large_enough(result.groups, result.counts, rules.min_size)
        known, n_pairs = codes >= 0, len(labels) * (len(labels) - 1) // 2
        flagged, ratio = ranks > 1.0 - flagged_share(ensemble.contamination, len(ranks)), None
        level = 0.25 * false_alarms / (n_pairs * (1 if asked is None else 2))
        if asked is not None:
            ratio = _least_ratio(flagged[known], codes[known], float(-ndtri(level)))
        monitor = cls(
            "start",
            flag_rate_ratio=ratio,
            false_alarms=false_alarms,
            contamination=ensemble.contamination,
            groups=Groups(min_size=rules.min_size, unknown=rules.unknown),
        )
        knots = summarise(result.mixture.apply(result.seen.S, result.seen.t))
        start = Baseline.of(knots, result.threshold, labels, left_out, ranks, flagged, codes, None, level)
        counts = result.counts[[result.groups.labels.index(label) for label in labels]] * (len(ranks) / result.n_rows)
        return monitor._begin(replace(start, counts=np.maximum(counts.round().astype(np.int64), FEWEST)))

    def start(
        self,
        scores: Any,
        *,
        sensitive_features: Any,
        threshold: float | None = None,
        batch: str | None = None,
        person: Any = None,
    ) -> Self:
        """Take rows as the start, and their groups as those to compare; needs no model.

        Parameters
        ----------
        scores : array of shape (n,)
            Higher = more outlying.
        sensitive_features : array, series or frame of shape (n,) or (n, c)
        threshold : float, optional
            Rows that score above are flagged; by default the top ``contamination``.
        batch : str, optional
            A name, which no later batch may have.
        person : array of shape (n,), optional
            Who each row is of, where a person may have several of these rows.
        """
        if self.reference is not None:
            raise InputError("the watch has begun already; begin another one to change what rows are held against")
        values = _read_scores(scores, sensitive_features)
        who = None if person is None else _read_persons(person, scores, len(values))[0]
        groups = read_groups(sensitive_features, len(values), Groups(min_size=1, unknown=self.settings.unknown))
        each = range(len(groups.labels))
        people = groups.counts if who is None else np.array([len(np.unique(who[groups.codes == g])) for g in each])
        codes, labels, left_out = _large_enough(groups, people, self.settings.min_size, self.settings.small)
        tolerance = self.settings.tolerance
        wrong = [name for name in tolerance if name not in labels] if isinstance(tolerance, dict) else []
        if wrong:
            raise InputError("{@tolerance} names {name!r}, which is no group of the start", name=wrong[0])
        above = float(flag_threshold(values, self.settings.contamination) if threshold is None else threshold)
        flagged = values > above
        if threshold is None and flagged.any():  # half-way between the last row that is not flagged and the first
            above = float(values[~flagged].max() + values[flagged].min()) / 2.0
        knots, level = summarise(values), 0.25 * self.settings.false_alarms / (len(labels) * (len(labels) - 1) // 2)
        start = above, labels, left_out, rank_among(knots, values), values > above, codes, who, level
        return self._begin(Baseline.of(knots, *start, name=str(batch or "")))

    def update(self, scores: Any, *, sensitive_features: Any, batch: str | None = None, person: Any = None) -> Self:
        """Count one batch, and see whether there is an alarm.

        Parameters
        ----------
        scores : array of shape (n,)
            Higher = more outlying.
        sensitive_features : array, series or frame of shape (n,) or (n, c)
            Groups that the start does not have are counted, but not compared.
        batch : str, optional
            A name of its own, such as the week. A name that was counted is refused: see `batches`.
        person : array of shape (n,), optional
            Who each row is of, such as a customer number: needed where the same people come again. Kept are sums over
            all people of a group, with signs from a salted hash of each; no person and no hash.
        """
        if self.reference is None:
            return self.start(scores, sensitive_features=sensitive_features, batch=batch, person=person)
        ledger = self.findings.ledger
        free = (f"batch {n}" for n in count(len(ledger.names) + 1) if f"batch {n}" not in self)
        name = next(free) if batch is None else str(batch)
        if name in self:
            raise InputError(
                "batch {name!r} has been counted already; leave it out, or give it another name", name=name
            )
        if ledger.names and (person is not None) != ledger.by_person:
            has, had = ("has", "had none") if person is not None else ("has no", "had one")
            raise InputError(
                "this batch {has} {@person}, and earlier ones {had}; give it for every batch of a watch or for none",
                has=has, had=had,
            )  # fmt: skip
        values = _read_scores(scores, sensitive_features)
        labels, counts, total = self.reference.labels, self.reference.counts, ledger.total
        matched = match_groups(sensitive_features, len(values), labels, unknown=self.settings.unknown, unseen="ignore")
        missing = int((matched.codes < 0).sum()) - sum(matched.left_out.values())
        others = ({"": missing} if missing else {}) | matched.left_out
        persons = None if person is None else _read_persons(person, scores, len(values))
        # Mean rank and flag rate of each group before this batch: those of all batches, with one row of the start.
        share = float(self.reference.flagged @ counts / counts.sum())
        guesses = np.array([total["ranks"] + 0.5, total["flagged"] + share]) / (total["counts"] + 1.0)
        sums, signed, few = sum_rows(values, matched.codes, persons, self.reference, guesses)
        place = np.array([ledger.places.max(initial=0) + 1])
        return self._look(ledger.joined(Ledger((name,), place, sums[None], signed[None], (others | few,))))

    def merge(self, *others: "FairnessMonitor") -> Self:
        """Take in the batches of other watches, such as those of other machines; returns itself.

        The watches must have begun alike, from one model, one file or one start. A batch that both have is counted
        once, so that merging twice changes nothing. All is as if the batches had come here, and the false-alarm rate
        is that of this one watch; alarms of the others stay theirs.
        """
        for other in others:
            digests = {watch.reference and watch.reference.digest for watch in (self, other)}
            if None in digests or len(digests) > 1:
                raise InputError(
                    "two watches can be merged only if they began alike; begin both from one model, or from copies of "
                    "one file, or call start() with the same rows"
                )
            if other.settings != self.settings:
                raise InputError("two watches can be merged only if they promise the same; begin both with one setting")
        merged = reduce(Ledger.joined, [other.findings.ledger for other in others], self.findings.ledger)
        return self if merged.names == self.batches else self._look(merged)

    def save(self, path: str | Path) -> None:
        """Write the whole state to one small file: it appears whole or not at all."""
        if self.reference is None:
            raise InputError("the watch has not begun, so there is nothing to save; call start() or update() first")
        ledger = self.findings.ledger
        state = WatchFile(
            watch=FORMAT,
            evenout=evenout.__version__,
            settings=self.settings,
            columns={name: tuple(columns) for name, columns in self.columns.items()},
            looks=self.findings.look,
            start=self.reference,
            names=ledger.names,
            places=ledger.places,
            sums=ledger.sums,
            signed=ledger.signed,
            others=ledger.others,
            alarms=self.alarms,
        )
        with atomic_file(Path(path)) as file:
            write_plain(describe(state), file)

    @classmethod
    def load(cls, path: str | Path) -> "FairnessMonitor":
        """Read what `save` wrote; no code from the file is run, and every bound is checked."""
        try:
            data = read_plain(Path(path))
            written = data.get("watch") if isinstance(data, dict) else None
            if not isinstance(written, int) or isinstance(written, bool):
                raise ModelFileError("its watch is missing: it is no watch")
            if written < FORMAT:
                raise ModelFileError(f"its watch is format {written}, of evenout 0.2: begin another watch")
            if written > FORMAT:
                raise ModelFileError("its watch is of a later version: update evenout")
            state = read(WatchFile, data, "watch")
            given = dict(vars(state.settings))
            rules = {name: given.pop(name) for name in ("min_size", "small", "unknown")}
            monitor = sound("watch.settings", lambda: cls(**given, groups=Groups(**rules)))
        except ModelFileError as error:
            words = str(error).replace("model file", "file of a watch").replace("model", "watch")
            raise ModelFileError(f"{path} cannot be loaded: {words}") from None
        monitor.alarms, monitor.columns = state.alarms, {name: [*columns] for name, columns in state.columns.items()}
        return monitor._begin(
            state.start, Ledger(state.names, state.places, state.sums, state.signed, state.others), state.looks
        )

    @property
    def batches(self) -> tuple[str, ...]:
        """Names of the batches that were counted, in their order."""
        return self.findings.ledger.names

    def __contains__(self, batch: str) -> bool:
        """Whether the watch began with a batch of this name, or has counted it."""
        return self.reference is not None and batch in (*self.findings.ledger.names, self.reference.name)

    @property
    def alarm(self) -> bool:
        """Whether there has been an alarm."""
        return bool(self.alarms)

    @property
    def kept(self) -> bool:
        """Whether everything promised is known to be kept, on average over all batches, and there was no alarm."""
        flags = self.settings.flag_rate_ratio is None or self.findings.kept("flags")
        return not self.alarm and flags and self.findings.kept("ranks")

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the largest gap of ranks, on average over all batches; of the start before there is any."""
        _, low, high = self.findings.gaps
        return float(np.maximum(np.maximum(low, -high), 0.0).max()), float(np.maximum(-low, high).max())

    @property
    def verdict(self) -> tuple[str, ...]:
        """Findings, in sentences: on the promise, then on other changes."""
        return text.verdict(self)

    @property
    def findings(self) -> Findings:
        """All figures of the watch, made anew after each batch."""
        if self._findings is None:
            raise InputError("the watch has not begun; call start() or update() first")
        return self._findings

    def to_frame(self) -> pd.DataFrame:
        """One row per group: rows, share and flag rate; the gap of ranks to the group that is furthest away.

        Gap, flag rate and their intervals are of all batches, or of the start before there is any.
        """
        findings = self.findings
        counts, n, labels = findings.reference.counts, findings.ledger.total["counts"], findings.reference.labels
        now = n if findings.ledger.names else counts.astype(float)
        (gap, low, high), (least, most) = findings.gaps, findings.promised
        rate, rate_low, rate_high = findings.flag_rates
        turned = [
            (s * gap[q], *sorted((s * low[q], s * high[q])), *sorted((s * least[q], s * most[q])))
            for _, q, s in findings.farthest
        ]
        names = ("gap", "low", "high", "promised_low", "promised_high")
        return pd.DataFrame({
            "group": labels,
            "rows": n.astype(int),
            "share_at_start": counts / counts.sum(),
            "share": now / max(now.sum(), 1.0),
            "against": [labels[h] for h, _, _ in findings.farthest],
            **dict(zip(names, np.array(turned).T + 0.0, strict=True)),  # no -0.0
            "flag_rate": rate, "flag_low": rate_low, "flag_high": rate_high,
        })  # fmt: skip

    def history(self) -> pd.DataFrame:
        """One row per batch and group: its mean rank and flag rate; gap and interval of all batches until then.

        The gap is to the group that is furthest away now.
        """
        findings = self.findings
        labels, ledger, rows = findings.reference.labels, findings.ledger, []
        until = ledger.contrast("ranks").until()
        low, high = until.interval(0.5 * findings.level)
        n, ranks, flagged = (ledger.by_place(ledger.columns[name]) for name in ("counts", "ranks", "flagged"))
        for p in range(len(ledger.distinct)):
            for g, (h, q, s) in enumerate(findings.farthest):
                size, ends = n[p, g] or np.nan, sorted((s * low[p, q], s * high[p, q]))
                rows.append({
                    "batch": ledger.names_at(p), "group": labels[g], "rows": int(n[p, g]),
                    "mean_rank": ranks[p, g] / size, "flag_rate": flagged[p, g] / size,
                    "against": labels[h], "gap": s * until.mean[p, q], "low": ends[0], "high": ends[1],
                })  # fmt: skip
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the history, of types that JSON has."""
        return {
            "settings": asdict(self.settings),
            "batches": len(self.batches),
            "alarm": self.alarm,
            "kept": self.kept,
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "interval": list(self.interval),
            "verdict": list(self.verdict),
            "groups": finite(self.to_frame().to_dict("records")),
        }

    def __repr__(self) -> str:
        return text.watch_text(self) if self.reference is not None else "FairnessMonitor(), not begun"

    def _repr_html_(self) -> str:
        if self.reference is None:
            return html_table(["fairness monitor"], [["not begun"]])
        table = self.to_frame()[["group", "rows", "against", "gap", "low", "high", "flag_rate"]].head(text.MOST)
        rows = table.map(lambda cell: f"{cell:.3g}" if isinstance(cell, float) else str(cell)).to_numpy()
        return html_table([*table], rows, "fairness monitor") + html_table(
            ["so far"], [[line] for line in self.verdict]
        )

    def _begin(self, start: Baseline, ledger: Ledger | None = None, look: int = 0) -> Self:
        """Set the start, with batches that were counted before."""
        G = len(start.labels)
        none = Ledger((), np.zeros(0, dtype=np.int64), np.zeros((0, len(SUMS), G)), np.zeros((0, 2, G, 0)), ())
        self.reference, self._findings = start, Findings(start, ledger or none, self.settings, look)
        return self

    def _look(self, ledger: Ledger) -> Self:
        """Make the figures of all batches; an alarm stays."""
        self._findings = Findings(self.findings.reference, ledger, self.settings, self.findings.look + 1)
        for alarm in self._findings.alarms():
            named = {name for a in self.alarms if a.promise == alarm.promise for name in (a.group, a.than)}
            self.alarms += () if {alarm.group, alarm.than} & named else (alarm,)
        return self


def _read_scores(scores: Any, sensitive_features: Any) -> FloatArray:
    """One finite number per row, with a group for each."""
    values = read_numbers(scores, "scores")
    if sensitive_features is None:
        raise InputError("{@sensitive_features} is missing: a watch needs the group of every row")
    aligned(sensitive_features, "sensitive_features", scores, len(values))
    return values


def _read_persons(person: Any, scores: Any, n_rows: int) -> Persons:
    """Persons of the rows: codes, and names as text."""
    column = pd.Series(aligned(person, "person", scores, n_rows)).reset_index(drop=True)
    if column.isna().any():
        raise InputError(
            "{@person} is missing in {n} of {n_rows} rows (first: {#row}); fill it in, or leave these rows out",
            n=int(column.isna().sum()), n_rows=n_rows, row=int(column.isna().argmax()),
        )  # fmt: skip
    codes, names = pd.factorize(np.array([str(value) for value in column], dtype=object))
    return codes, list(names)


def _large_enough(
    groups: Codes, people: IntArray, min_size: int, rule: str = "leave_out"
) -> tuple[IntArray, tuple[str, ...], dict[str, int]]:
    """Codes and labels of groups with ``min_size`` people or more, and the rows of those that are left out."""
    least = max(min_size, FEWEST)
    small, names = people < least, np.array(groups.labels, dtype=object)
    if (~small).sum() < 2 or (small.any() and rule == "error"):
        which = f"group {names[small][0]!r} has fewer than" if rule == "error" else "fewer than two groups have"
        raise InputError(
            "{which} {least} people to begin with; begin with more rows, or with larger groups",
            which=which, least=least,
        )  # fmt: skip
    codes = np.append(np.where(small, -1, np.cumsum(~small) - 1), -1)[groups.codes]
    return codes, tuple(names[~small]), dict(zip(names[small], groups.counts[small].tolist(), strict=True))


def _fitted(model: Any) -> "tuple[Any, FitResult]":
    """The ensemble and its fit, if it compares crossed groups; else the line says what does not go with a watch."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import check_is_fitted

    from evenout.estimator import FairOutlierEnsemble

    ensemble = model.steps[-1][1] if isinstance(model, Pipeline) else model
    otherwise = "use FairnessMonitor(tolerance=...) and start()"
    if not isinstance(ensemble, FairOutlierEnsemble):
        raise InputError(
            "{kind} makes no promise that can be read; {otherwise}", kind=type(model).__name__, otherwise=otherwise
        )
    check_is_fitted(ensemble)
    result: FitResult = ensemble._result
    result.require_rows(Message("{@model}"))
    if result.beyond_crossed:
        raise InputError(
            f"FairnessMonitor.of and a model with {result.beyond_crossed} do not go together: what it left to crossed "
            "groups is not known; {otherwise}",
            otherwise=otherwise,
        )
    if len(result.groups.labels) < 2:
        raise InputError("the model compares fewer than two groups, so it promises nothing that could be watched")
    return ensemble, result


def _least_ratio(flagged: BoolArray, codes: IntArray, z: float) -> float:
    """The least ratio of flag rates within ``z`` standard errors, on the log scale, of one that was found."""
    n, k = np.bincount(codes), np.bincount(codes, weights=flagged) + 0.5  # half a row: a rate of 0 has no logarithm
    rate, noise = np.log(k / (n + 1.0)), 1.0 / k - 1.0 / (n + 1.0)
    first, second = np.triu_indices(len(n), 1)
    far = np.abs(rate[first] - rate[second]) + z * np.sqrt(noise[first] + noise[second])
    return float(np.exp(-far.max()))


def _unseen_ranks(result: "FitResult", target: Any) -> FloatArray:
    """The rank in (0, 1) of each row's score among those of its fold, which have weights of their own."""
    seen, V = result.seen, result.path.fold_weights(np.array([result.choice.alpha]), target)[:, 0]
    folds = seen.folds if len(V) > 1 else np.zeros_like(seen.folds)
    Z, ranks = np.column_stack([seen.S, seen.t]), np.zeros(len(seen.t))
    for fold, weights in enumerate(V):
        rows = np.flatnonzero(folds == fold)
        ranks[rows] = (rankdata(Z[rows] @ weights) - 0.5) / max(len(rows), 1)
    return ranks
