"""What was found as tables in Markdown, for a terminal and for the documentation."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenout.exceptions import InputError
from evenout.storage.output import atomic_file
from league.contract import BASE
from league.duels import CHAMPION, MEASURES, NONE, OUTCOMES, REQUEST, Duel, Scores, compare, tally

BEGIN, END = "<!-- league: begin -->", "<!-- league: end -->"
LETTERS = {"win": "W", "tie": "T", "loss": "L", "never as fair": "–"}
USES_GROUP = "\\*"


class League:
    """A file of results, and what follows from it."""

    def __init__(self, record: dict[str, Any], champion: str = CHAMPION) -> None:
        self.record, self.champion = record, champion
        self.tables: list[str] = list(record["tables"])
        self.scores = Scores(record["results"])
        methods = record["methods"]
        if champion not in methods:
            raise InputError(
                "{name!r} did not play; those who did are {known}", name=champion, known=", ".join(methods)
            )
        self.peers = [name for name, method in methods.items() if not method["ours"]]
        shared = {name: table["overlapping"] for name, table in record["tables"].items()}
        self.duels = {
            measure: compare(record["results"], shared, self.peers, measure, champion) for measure in MEASURES
        }

    def named(self, method: str) -> str:
        """The name of a method, marked if it uses the group."""
        return method + USES_GROUP if self.record["methods"][method]["uses_group"] else method

    def tally(self, measure: str, *, aware: bool | None = None) -> dict[str, int]:
        """Outcomes against all peers, or against those that use the group, or against the others."""
        methods = self.record["methods"]
        return tally(
            each for each in self.duels[measure] if aware is None or methods[each.method]["uses_group"] == aware
        )


def render(league: League) -> str:
    """Everything, as Markdown."""
    parts = [first_lines(league), "### Table by table", by_table(league)]
    parts += ["### What each difference is made of", differences(league), "### What evenout got", ours(league)]
    parts += ["### Ways of evenout: AUC (bias of ranks)", ways(league)]
    parts += ["### Does each peer become fairer than its own base?", peers(league)]
    return "\n\n".join(parts)


def first_lines(league: League) -> str:
    """The outcome, and one row for each peer."""
    return f"{headline(league)}\n\n{standings(league)}"


def headline(league: League) -> str:
    """The outcome in a few lines."""
    plan, count, lines = league.record["plan"], len(league.tables), []
    for measure, name in MEASURES.items():
        for aware, which in ((False, "that do not use the group"), (True, "that do (marked \\*)")):
            found = league.tally(measure, aware=aware)
            if sum(found.values()):
                told = ", ".join(f"{outcome} {count}" for outcome, count in found.items())
                lines.append(f"- As fair by {name}, against methods {which}: {told}.")
    return (
        f"`{league.champion}`, asked for {float(REQUEST):.0%}; {count} table{'s' * (count > 1)}, "
        f"{plan['halves']} halvings each, seed {plan['seed']}:\n\n" + "\n".join(lines)
    )


def standings(league: League) -> str:
    """One row for each peer."""
    head = ["method", *OUTCOMES, "our AUC less theirs", "of that: the bases", "the prices", "by scores", "CPU s"]
    rows = []
    for peer in league.peers:
        met, other = ([each for each in league.duels[measure] if each.method == peer] for measure in MEASURES)
        fair = [each for each in met if each.outcome != "never as fair"]
        split = [(each.difference, each.base_difference, each.their_price - each.our_price) for each in fair]
        means = [f"{mean:+.3f}" for mean in np.mean(split, axis=0)] if fair else ["–"] * 3
        again = "/".join(str(count) for count in tally(other).values())
        rows.append([league.named(peer), *map(str, tally(met).values()), *means, again, _seconds(league, peer)])
    own = ["" for _ in OUTCOMES]
    rows.append([f"`{league.champion}`", *own, "", "", "", "", _seconds(league, league.champion)])
    return _table(head, rows)


def by_table(league: League) -> str:
    """One row for each table, one column for each peer: outcome, difference of AUC and its standard error."""
    met = {(each.table, each.method): each for each in league.duels["rank_bias"]}
    head = ["table", "bias", "AUC", *(league.named(peer) for peer in league.peers)]
    rows = []
    for name in league.tables:
        bias, auc = (league.scores.mean(name, league.champion, REQUEST, measure) for measure in ("rank_bias", "auc"))
        cells = [_cell(met.get((name, peer))) for peer in league.peers]
        rows.append([_kind(league, name), f"{bias:.3f}", f"{auc:.3f}", *cells])
    return _table(head, rows)


def differences(league: League) -> str:
    """Split every difference into that of the bases and the price of fairness of each side; losses first."""
    compared = [each for each in league.duels["rank_bias"] if each.outcome != "never as fair"]
    if not compared:
        return "No peer is as fair on any table."
    head = ["table", "method", "setting", "", "our AUC less theirs", "of that: the bases", "our price", "their price"]
    rows = [
        [
            each.table, league.named(each.method), each.setting, LETTERS[each.outcome],
            _unbroken(f"{each.difference:+.3f} ± {each.error:.3f}"), f"{each.base_difference:+.3f}",
            f"{each.our_price:.3f}", f"{each.their_price:.3f}",
        ]
        for each in sorted(compared, key=lambda each: (-OUTCOMES.index(each.outcome), each.difference))
    ]  # fmt: skip
    return _table(head, rows)


def ours(league: League) -> str:
    """Before and after on each table, for the request that is compared."""
    head = ["table", "bias", "of ranks", "removed", "AUC", "AP", "flag ratio", "list kept"]
    rows = []
    for name in league.tables:

        def pair(measure: str, table: str = name) -> tuple[float, float]:
            both = (league.scores.mean(table, league.champion, setting, measure) for setting in (BASE, REQUEST))
            before, after = both
            return before, after

        bias, ranks = pair("bias"), pair("rank_bias")
        removed = f"{1 - bias[1] / bias[0]:.0%}" if bias[0] > NONE else "no gap"
        rest = (_change(*pair(measure), digits) for measure, digits in (("auc", 3), ("ap", 3), ("flag_ratio", 2)))
        kept = f"{pair('list_kept')[1]:.0%}"
        rows.append([_kind(league, name), _change(*bias, 3), _change(*ranks, 3), removed, *rest, kept])
    return _table(head, rows)


def ways(league: League) -> str:
    """AUC and bias of ranks of each of our ways, for the request that is compared."""
    names = [name for name, method in league.record["methods"].items() if method["ours"]]
    rows = []
    for table in league.tables:
        pairs = (
            (league.scores.mean(table, name, REQUEST, measure) for measure in ("auc", "rank_bias")) for name in names
        )
        rows.append([_kind(league, table), *("{:.3f} ({:.3f})".format(*pair) for pair in pairs)])
    return _table(["table", *names], rows)


def peers(league: League) -> str:
    """Each peer beside its own base, at the setting that is the fairest on the judged halves."""
    head = ["method", "tables with a gap", "fairer on", "removed, median", "AUC lost, median", "list kept, median"]
    rows = []
    for peer in [*league.peers, league.champion]:
        if all(league.scores.settings(table, peer) in ([], [BASE]) for table in league.tables):
            continue
        found = np.array(list(_fairest(league, peer))).reshape(-1, 3)
        if len(found):
            removed, lost, kept = np.median(found, axis=0)
            cells = [f"{removed:.0%}", f"{lost:.3f}", f"{kept:.0%}"]
        else:
            cells = ["–", "–", "–"]
        rows.append([league.named(peer), str(len(found)), str(int((found[:, 0] > 0).sum())), *cells])
    return _table(head, rows)


def write_into(path: Path, text: str) -> None:
    """Replace what stands between the two marks of a page."""
    page = path.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError("{path} must hold the lines {begin} and {end}", path=path, begin=BEGIN, end=END)
    with atomic_file(path) as place:
        place.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _fairest(league: League, method: str) -> Iterator[tuple[float, float, float]]:
    """Share of the base's bias that is gone, AUC lost and list kept, on each table whose base has a bias."""
    for table in league.tables:
        settings = [setting for setting in league.scores.settings(table, method) if setting != BASE]
        before = league.scores.mean(table, method, BASE, "rank_bias") if settings else 0.0
        if before <= NONE:
            continue
        bias = {setting: league.scores.mean(table, method, setting, "rank_bias") for setting in settings}
        best = min(bias, key=bias.__getitem__)
        auc = [league.scores.mean(table, method, setting, "auc") for setting in (BASE, best)]
        yield 1 - bias[best] / before, auc[0] - auc[1], league.scores.mean(table, method, best, "list_kept")


def _kind(league: League, table: str) -> str:
    kind = league.record["tables"][table]["kind"]
    return table if kind in ("protected", "own") else f"{table} ({kind})"


def _cell(each: Duel | None) -> str:
    if each is None:
        return ""
    letter = LETTERS[each.outcome]
    told = letter if each.outcome == "never as fair" else f"{letter} {each.difference:+.3f} ± {each.error:.3f}"
    return _unbroken(told)


def _change(before: float, after: float, digits: int) -> str:
    return _unbroken(f"{before:.{digits}f} → {after:.{digits}f}")


def _unbroken(cell: str) -> str:
    """The same on one line, however narrow the column."""
    return cell.replace(" ", "\N{NO-BREAK SPACE}")


def _seconds(league: League, method: str) -> str:
    each = [league.scores.seconds(table, method) for table in league.tables if league.scores.settings(table, method)]
    return f"{np.median(each):.1f}" if each else "–"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
