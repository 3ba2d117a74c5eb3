"""A watch in words: whether the promise is kept, and other changes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from evenout.auditing.text import between, joined, number, shown
from evenout.watching.ledger import FEWEST, Alarm, Shift

if TYPE_CHECKING:
    from evenout.watching.monitor import FairnessMonitor

_NAME = 40  # of a group's name
_KEPT = ("no alarm; whether the promise is kept cannot be told yet", "no alarm, and the promise is kept")
_WIDTH = 24  # of the same in the table
MOST = 12  # groups in the table; all are in to_frame()


def watch_text(monitor: "FairnessMonitor") -> str:
    """The whole text: groups, then what is known."""
    findings = monitor.findings
    n, batches, start = int(findings.ledger.total["counts"].sum()), len(monitor.batches), findings.reference
    over = f"over {batches:,} batches, {n:,} rows in {len(start.labels)} groups"
    begun = f"begun with {start.rows:,} rows in {len(start.labels)} groups, which the table shows"
    rate = f"at most {100 * monitor.settings.false_alarms:.3g}% false alarms, ever"
    return joined([f"Watch {over if batches else begun}; {rate}"], _groups(monitor), verdict=monitor.verdict)


def verdict(monitor: "FairnessMonitor") -> tuple[str, ...]:
    """Sentences: the promises about ranks and flags, scores, mix, rows that are not compared, what the rate needs."""
    findings, ratio = monitor.findings, monitor.settings.flag_rate_ratio
    if not monitor.batches:
        said = [f"No batch has been counted yet. Promised is {_promised(monitor)}."]
        said += [] if ratio is None else [f"Promised is a ratio of flag rates of {number(ratio)}, too."]
        if monitor.settings.tolerance == 0:
            said.append('To hold later batches to the gaps of the start, begin with a tolerance of "start".')
        return (*said, *_closing(monitor, findings.reference.left_out))
    alarmed = {alarm.promise for alarm in monitor.alarms}
    said = [_alarm(alarm, monitor) for alarm in monitor.alarms]
    if "ranks" not in alarmed and monitor.settings.tolerance != 1:
        said.append(
            f"Ranks: {_KEPT[findings.kept('ranks')]}. The largest gap of mean ranks, over all batches, is "
            f"between {' and '.join(map(number, monitor.interval))}; promised is {_promised(monitor)}."
        )
    said += [] if ratio is None or "flags" in alarmed else [_flags(monitor, ratio)]
    said.append(_scores(findings.shifts("ranks"), even="ranks" not in alarmed))
    if flagged := _often(findings.shifts("flagged"), figures=True):
        said.append(f"Flagged since the start: {flagged}.")
    if mixed := _often(findings.mix):
        said.append(f"The mix of groups has changed, which is no gap between them: {mixed}.")
    elif findings.mix:
        said.append("No change in the mix of groups can be told from noise.")
    return (*said, *_closing(monitor, sum(map(Counter, findings.ledger.others), Counter())))


def _promised(monitor: "FairnessMonitor") -> str:
    """The promise about ranks."""
    given, (low, high) = monitor.settings.tolerance, monitor.findings.promised
    if given == "start":
        return f"no larger gap than at the start, up to its sampling noise ({number(max(-low.min(), high.max()))})"
    if isinstance(given, Mapping):
        return f"a gap of at most {number(high.min())} to {number(high.max())}, by group"
    if given == 1:
        return "nothing about ranks"
    return "no gap between groups at all" if given == 0 else f"a gap of at most {number(float(given))}"


def _alarm(alarm: Alarm, monitor: "FairnessMonitor") -> str:
    group, than, since, earliest, latest, raised = (
        f"'{shown(name, _NAME)}'"
        for name in (alarm.group, alarm.than, alarm.since, alarm.earliest, alarm.latest, alarm.raised)
    )
    began = f"with {earliest}" if earliest == latest else f"between {earliest} and {latest}"
    if alarm.promise == "ranks":
        what, promised = "is ranked higher", _promised(monitor)
    else:
        what, promised = "is flagged more often", f"a ratio of flag rates of {monitor.settings.flag_rate_ratio:.3g}"
    return (
        f"ALARM: {group} {what} than {than}, by {number(alarm.low)} to {number(alarm.high)} on average since {since}. "
        f"It began {began}, and is known since {raised}. Promised was {promised}."
    )


def _flags(monitor: "FairnessMonitor", ratio: float) -> str:
    rates = monitor.findings.flag_rates[0]
    lowest, highest = np.nanmin(rates), np.nanmax(rates)
    so_far = (
        f"The lowest rate is {number(lowest / highest)} of the highest so far" if highest > 0 else "Nobody is flagged"
    )
    return f"Flag rates: {_KEPT[monitor.findings.kept('flags')]}. {so_far}; promised is {number(ratio)}."


def _scores(shifts: Mapping[str, Shift], *, even: bool) -> str:
    moved = {name: shift for name, shift in shifts.items() if shift.moved}
    if not moved:
        return "No drift of scores can be told from noise."
    said = _listed(
        f"{'higher' if shift.moved > 0 else 'lower'} in '{shown(name, _NAME)}' (mean rank {between(*shift.since)}, was "
        f"{number(sum(shift.before) / 2)})"
        for name, shift in moved.items()
    )
    if len(moved) == len(shifts) and len({shift.moved for shift in moved.values()}) == 1 and even:
        return f"Drift of all groups together, which is no gap between them: scores are {said}."
    return f"Scores have changed since the start: {said}" + (
        "." if len(moved) == len(shifts) else "; in the other groups no change can be told from noise."
    )


def _often(shifts: Mapping[str, Shift], *, figures: bool = False) -> str:
    """Groups that come, or are flagged, more or less often than at the start."""
    return _listed(
        f"'{shown(name, _NAME)}' {'more' if shift.moved > 0 else 'less'} often"
        + (
            f" ({between(100 * shift.since[0], 100 * shift.since[1])}%, was {number(50 * sum(shift.before))}%)"
            if figures
            else ""
        )
        for name, shift in shifts.items()
        if shift.moved
    )


def _closing(monitor: "FairnessMonitor", others: Mapping[str, int]) -> list[str]:
    """Rows that are not compared, and what the false-alarm rate needs."""
    known, said = monitor.findings.reference.labels, []
    few = [f"'{shown(name, _NAME)}' ({n:,} rows)" for name, n in others.items() if name in known]
    named = [f"'{shown(name, _NAME)}' ({n:,} rows)" for name, n in others.items() if name and name not in known]
    named += [f"{others['']:,} rows without a group"] if "" in others else []
    if few:
        said.append(f"Not counted, in batches with fewer than {FEWEST} people of the group: {_listed(few)}.")
    if named:
        said.append(f"Not compared, because the start has fewer than {FEWEST} people of them: {_listed(named)}.")
    return [
        *said,
        "The same people may come again: each look is a test by person, and looks share the false-alarm rate."
        if monitor.findings.ledger.by_person
        else "The false-alarm rate holds if every batch has new people; where people come again, say who is who "
        "(person).",
    ]


def _groups(monitor: "FairnessMonitor") -> list[str]:
    frame = monitor.to_frame()
    frame = frame.assign(rows=frame["rows"] if monitor.batches else monitor.findings.reference.counts)
    frame = frame.sort_values("rows", ascending=False, kind="stable")
    width = min(max(len(shown(name)) for name in (*frame["group"], "against")), _WIDTH)
    lines = [
        f"{'group':<{width}} {'rows':>10} {'gap':>7}  {'interval':<16} {'against':<{width}} {'promised':<16} "
        f"{'flag rate':>9}  interval"
    ]
    for row in frame[:MOST].itertuples():
        ends = "-" if np.isnan(row.gap) else between(row.low, row.high, ".3f")
        least, most = row.promised_low, row.promised_high
        promised = "0" if least == most else between(least, most, ".3f")
        line = (
            f"{shown(row.group, width):<{width}} {row.rows:>10,} {number(row.gap, '.3f'):>7}  {ends:<16} "
            f"{shown(row.against, width):<{width}} {promised:<16} {number(row.flag_rate, '.1%'):>9}  "
            f"{between(row.flag_low, row.flag_high, '.1%')}"
        )
        lines.append(line.rstrip())
    return [*lines, f"... {len(frame) - MOST} smaller groups"] if len(frame) > MOST else lines


def _listed(parts: Iterable[str]) -> str:
    every = list(parts)
    more = f" and {len(every) - MOST} more" if len(every) > MOST else ""
    return f"{', '.join(every[:MOST])}{more}"
