"""A watch in words: what is known about the promise, and what else has changed."""

from typing import TYPE_CHECKING

import numpy as np

from evenout.auditing.words import number, shown
from evenout.watching.findings import Alarm, Shift

if TYPE_CHECKING:
    from evenout.watching.monitor import FairnessMonitor

_NAME = 40  # of a group's name
_MOST = 12  # groups in the table; all are in to_frame()


def watch_text(monitor: "FairnessMonitor") -> str:
    """The whole text: groups, then what is known."""
    found = monitor.findings
    n, batches = int(found.ledger.total("counts").sum()), len(found.ledger.batches)
    rate = monitor.settings.false_alarms
    head = (
        f"Watch over {batches:,} batches, {n:,} rows in {len(found.reference.labels)} groups; "
        f"at most {100 * rate:.3g}% false alarms, ever"
    )
    return "\n\n".join("\n".join(part) for part in ([head], _groups(monitor), [f"* {s}" for s in monitor.verdict]))


def verdict(monitor: "FairnessMonitor") -> tuple[str, ...]:
    """Sentences: the promise about ranks, that about flags, scores, mix, rows that are not compared."""
    found = monitor.findings
    if not found.ledger.batches:
        return ("Nothing has been counted yet: the reference is there, and the next batch is the first.",)
    said = [*map(_alarm, monitor.alarms)]
    if not any(alarm.promise == "ranks" for alarm in monitor.alarms):
        said.append(_ranks(monitor))
    if monitor.settings.flag_rate_ratio is not None and not any(a.promise == "flags" for a in monitor.alarms):
        said.append(f"Flag rates: no alarm; promised is a ratio of {monitor.settings.flag_rate_ratio:.3g}.")
    said += [_scores(found.score_shift, found.flag_shift), _mix(found.mix)]
    if found.others:
        said.append(_others(found.others))
    return tuple(said)


def _alarm(alarm: Alarm) -> str:
    what = {"ranks": "is ranked", "flags": "is flagged"}[alarm.promise]
    how = {"higher": "higher", "lower": "lower"} if alarm.promise == "ranks" else {"higher": "more", "lower": "less"}
    low, high = sorted((abs(alarm.low), abs(alarm.high)))
    return (
        f"ALARM: since '{shown(alarm.since, _NAME)}', '{shown(alarm.group, _NAME)}' {what} {how[alarm.direction]} than "
        f"all others, by {number(low)} to {number(high)}, which is more than was promised "
        f"(known since '{shown(alarm.raised, _NAME)}')."
    )


def _ranks(monitor: "FairnessMonitor") -> str:
    low, high = monitor.interval
    least, most = (float(end(monitor.findings.promised)) for end in (np.min, np.max))
    promised = number(most) if least == most else f"{number(least)} to {number(most)}, by group"
    ends = f"the largest gap of mean ranks is between {number(low)} and {number(high)}; promised is {promised}"
    if monitor.findings.kept:
        return f"No alarm, and the promise is kept: {ends}."
    return f"No alarm; whether the promise is kept cannot be told yet: {ends}."


def _scores(rank: Shift, flags: Shift) -> str:
    if not rank.moved and not flags.moved:
        return "No drift of all scores together can be told from noise."
    parts = []
    if rank.moved:
        up = "higher" if rank.since[0] > rank.before[1] else "lower"
        parts.append(f"scores are {up} than at the start (mean rank {_ends(rank.since)}, was 0.5)")
    if flags.moved:
        up = "more" if flags.since[0] > flags.before[1] else "fewer"
        parts.append(f"{up} rows are flagged ({_ends(flags.since, 100)}%, was {_ends(flags.before, 100)}%)")
    return f"Drift, which is no gap between groups: {' and '.join(parts)}."


def _mix(mix: dict[str, Shift]) -> str:
    moved = [
        f"'{shown(name, _NAME)}' {'more' if shift.since[0] > shift.before[1] else 'less'} often"
        for name, shift in mix.items()
        if shift.moved
    ]
    if not moved:
        return "No change in the mix of groups can be told from noise."
    more = f" and {len(moved) - _MOST} more groups" if len(moved) > _MOST else ""
    return f"The mix of groups has changed, which is no gap between them: {', '.join(moved[:_MOST])}{more}."


def _others(others: dict[str, int]) -> str:
    named = [f"'{shown(name, _NAME)}' ({n:,} rows)" for name, n in others.items() if name]
    named += [f"{others['']:,} rows without a group"] if "" in others else []
    more = f" and {len(named) - _MOST} more groups" if len(named) > _MOST else ""
    return f"Not compared, because the reference does not have them: {', '.join(named[:_MOST])}{more}."


def _groups(monitor: "FairnessMonitor") -> list[str]:
    frame = monitor.to_frame()
    frame = frame.sort_values("rows", ascending=False, kind="stable")
    width = min(max(len(shown(name)) for name in (*frame["group"], "group")), _NAME)
    head = f"{'group':<{width}} {'rows':>10} {'promised':>8} {'gap':>7}  {'interval':<16} {'flag rate':>9}  interval"
    lines = [head]
    for row in frame[:_MOST].itertuples():
        rate = "" if np.isnan(row.flag_rate) else f"{row.flag_rate:.1%}"
        ends = f"{row.low:.3f} to {row.high:.3f}"
        flags = f"{row.flag_low:.1%} to {row.flag_high:.1%}"
        lines.append(
            f"{shown(row.group, width):<{width}} {row.rows:>10,} {row.promised:>8.3f} {row.gap:>7.3f}  {ends:<16} "
            f"{rate:>9}  {flags}"
        )
    return [*lines, f"... {len(frame) - _MOST} smaller groups"] if len(frame) > _MOST else lines


def _ends(ends: tuple[float, float], times: float = 1) -> str:
    return f"{number(times * ends[0])} to {number(times * ends[1])}"
