"""Results of the league as Markdown, for a terminal and the documentation, and as CSV files."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evenout.exceptions import InputError
from evenout.storage.output import atomic_file
from league.contract import BASE
from league.duels import CHAMPION, MEASURES, NONE, OUTCOMES, REQUEST, Duel, Scores, compare, tally

BEGIN, END = "<!-- league: begin -->", "<!-- league: end -->"
USES_GROUP = "\\*"
OUR_BASE = ", our base"  # ends the name of a method that makes evenout's base score fair


class League:
    """A file of results and the comparisons that follow from it."""

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

    def tally(self, measure: str) -> dict[str, int]:
        """Outcomes against all peers."""
        return tally(self.duels[measure])


def render(league: League) -> str:
    """The verdicts and the losses, as Markdown; `write_csv` has every comparison."""
    return "\n\n".join([headline(league), standings(league), "### Losses", losses(league)])


def first_lines(league: League) -> str:
    """The outcome against each class of methods, for the README."""
    return f"{headline(league)}\n\n{summary(league)}"


def headline(league: League) -> str:
    """What was compared."""
    plan, count = league.record["plan"], len(league.tables)
    return (
        f"{count} table{'s' * (count > 1)}, {plan['halves']} random halvings each, seed {plan['seed']}; "
        f"`{league.champion}` is asked to remove {float(REQUEST):.0%} of the bias:"
    )


def summary(league: League) -> str:
    """One row for each class of methods: blind, aware, and aware on evenout's base score."""
    rows = []
    for words, members in _classes(league).items():
        if members:
            counts = tally(each for each in league.duels["rank_bias"] if each.method in members)
            names = ", ".join(member.removesuffix(OUR_BASE) for member in members)
            rows.append([f"{words}: {names}", *map(str, counts.values())])
    return _table(["compared with", *OUTCOMES], rows)


def standings(league: League) -> str:
    """One row for each method: its duels, and what it does to its own base at its fairest setting."""
    head = ["method", *OUTCOMES, "AUC lead", "from the bases", "by scores", "bias removed", "AUC lost", "CPU s"]
    rows = []
    for peer in league.peers:
        duels, again = ([each for each in league.duels[measure] if each.method == peer] for measure in MEASURES)
        met = [*map(str, tally(duels).values()), _lead(duels), _lead(duels, "base_difference")]
        met.append("/".join(map(str, tally(again).values())))
        rows.append([league.named(peer), *met, *_alone(league, peer), _seconds(league, peer)])
    own = [""] * (len(OUTCOMES) + 3)
    rows.append([f"`{league.champion}`", *own, *_alone(league, league.champion), _seconds(league, league.champion)])
    return _table(head, rows)


def losses(league: League) -> str:
    """Every loss, with what the difference is made of."""
    lost = [each for each in league.duels["rank_bias"] if each.outcome == "loss"]
    if not lost:
        return "None."
    head = ["table", "method", "setting", "AUC lead", "from the bases", f"price of {league.champion}", "their price"]
    rows = [
        [
            each.table, league.named(each.method), each.setting,
            _unbroken(f"{each.difference:+.3f} ± {each.error:.3f}"), f"{each.base_difference:+.3f}",
            f"{each.our_price:.3f}", f"{each.their_price:.3f}",
        ]
        for each in sorted(lost, key=lambda each: each.difference)
    ]  # fmt: skip
    return _table(head, rows, texts=3)


def write_csv(league: League, folder: Path) -> list[Path]:
    """Write ``league.csv``, a row for each table and method, and ``league-tables.csv``, a row for each table."""
    paths = [folder / "league.csv", folder / "league-tables.csv"]
    for path, (head, rows) in zip(paths, (comparisons(league), by_table(league)), strict=True):
        with atomic_file(path) as place, place.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *rows])
    return paths


def comparisons(league: League) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of ``league.csv``; the figures of a method that was never as fair are left empty."""
    head = ["table", "method", "uses_group", "outcome", "setting"]
    head += ["auc_lead", "standard_error", "from_bases", "price_of_evenout", "their_price"]
    met = {(each.table, each.method): each for each in league.duels["rank_bias"]}
    rows = []
    for table in league.tables:
        for peer in league.peers:
            if (each := met.get((table, peer))) is None:
                continue
            figures = [""] * 6
            if each.outcome != "never as fair":
                figures = [each.setting, f"{each.difference:+.3f}", f"{each.error:.3f}", f"{each.base_difference:+.3f}"]
                figures += [f"{each.our_price:.3f}", f"{each.their_price:.3f}"]
            uses_group = "yes" if league.record["methods"][peer]["uses_group"] else "no"
            rows.append([table, peer, uses_group, each.outcome, *figures])
    return head, rows


def by_table(league: League) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of ``league-tables.csv``: the champion before and after, then evenout's other corrections."""
    digits = {"bias": 3, "rank_bias": 3, "auc": 3, "ap": 3, "flag_ratio": 2}
    others = [name for name, method in league.record["methods"].items() if method["ours"] and name != league.champion]
    head = ["table", "kind", *(f"{name}_{when}" for name in digits for when in ("before", "after"))]
    head += [
        "bias_removed",
        "list_kept",
        *(f"{name}: {measure}" for name in others for measure in ("auc", "rank_bias")),
    ]
    rows = []
    for table in league.tables:
        mean = partial(league.scores.mean, table)
        pairs = {name: [mean(league.champion, setting, name) for setting in (BASE, REQUEST)] for name in digits}
        before, after = pairs["bias"]
        row = [table, league.record["tables"][table]["kind"]]
        row += [f"{value:.{digits[name]}f}" for name, pair in pairs.items() for value in pair]
        row += [
            f"{1 - after / before:.2f}" if before > NONE else "",
            f"{mean(league.champion, REQUEST, 'list_kept'):.2f}",
        ]
        row += [f"{mean(name, REQUEST, measure):.3f}" for name in others for measure in ("auc", "rank_bias")]
        rows.append(row)
    return head, rows


def write_into(path: Path, text: str) -> None:
    """Replace the text between the two marks of a page."""
    page = path.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError("{path} must hold the lines {begin} and {end}", path=path, begin=BEGIN, end=END)
    with atomic_file(path) as place:
        place.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _fairest(league: League, method: str) -> Iterator[tuple[float, float]]:
    """Share of the base's bias that is gone and AUC lost, on each table whose base has a bias."""
    for table in league.tables:
        settings = [setting for setting in league.scores.settings(table, method) if setting != BASE]
        before = league.scores.mean(table, method, BASE, "rank_bias") if settings else 0.0
        if before <= NONE:
            continue
        bias = {setting: league.scores.mean(table, method, setting, "rank_bias") for setting in settings}
        best = min(bias, key=bias.__getitem__)
        auc = [league.scores.mean(table, method, setting, "auc") for setting in (BASE, best)]
        yield 1 - bias[best] / before, auc[0] - auc[1]


def _classes(league: League) -> dict[str, list[str]]:
    """Methods that do not use the group, those that do, and those of them that start from evenout's base score."""
    methods = league.record["methods"]
    aware = [peer for peer in league.peers if methods[peer]["uses_group"]]
    return {
        "**Blind to the group**": [peer for peer in league.peers if peer not in aware],
        "**Use the group of each new row**\\*": [peer for peer in aware if not peer.endswith(OUR_BASE)],
        "**The same, on evenout's base score**\\*": [peer for peer in aware if peer.endswith(OUR_BASE)],
    }


def _lead(duels: Iterable[Duel], figure: str = "difference") -> str:
    """Mean of a figure over the tables on which the method is as fair."""
    values = [getattr(each, figure) for each in duels if each.outcome != "never as fair"]
    return f"{np.mean(values):+.3f}" if values else "–"


def _alone(league: League, method: str) -> list[str]:
    """Share of its own base's bias that a method removes and the AUC that costs, medians over tables with a bias."""
    if all(league.scores.settings(table, method) in ([], [BASE]) for table in league.tables):
        return ["–", "–"]
    found = np.array(list(_fairest(league, method))).reshape(-1, 2)
    removed, lost = np.median(found, axis=0) if len(found) else (np.nan, np.nan)
    return [f"{round(removed, 2) + 0.0:.0%}", f"{lost:.3f}"] if len(found) else ["–", "–"]


def _unbroken(cell: str) -> str:
    """Keep a cell on one line, however narrow its column."""
    return cell.replace(" ", "\N{NO-BREAK SPACE}")


def _seconds(league: League, method: str) -> str:
    each = [league.scores.seconds(table, method) for table in league.tables if league.scores.settings(table, method)]
    return f"{np.median(each):.1f}" if each else "–"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Markdown with so many columns of text, which begin at the left, before those of numbers."""
    lines = [head, ["---"] * texts + ["---:"] * (len(head) - texts), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
