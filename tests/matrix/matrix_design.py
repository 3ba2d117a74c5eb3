"""What goes with what: the options of every public entry, which combinations are refused, and a sample of the others.

`FACTORS` lists the options and the places where they can be given. A *case* is one value of each. `RULES` is the one
table that says which cases are refused, and by which words; what a place has no argument for is read from its
signature. `design` has cases in which every two values that go together meet; `refusals` has one for every two that do
not. Run as a program, this writes the tables of ``docs/notions.md``.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from evenout import BlindRepair, FairOutlierEnsemble, ScoreRepair, audit
from evenout.out_of_core.parquet import parquet_parts

FACTORS: dict[str, dict[Any, str]] = {  # the options, and how the tables name them
    "groups": {
        "hard": "groups of one column",
        "crossed": "crossed groups",
        "each": "attributes one by one",
        "bands": "bands of a number",
        "probable": "`GroupProbabilities`",
        "sufficient": "`GroupProbabilities`, sufficient",
    },
    "given": {"none": "nothing given", "text": "`given`, text", "number": "`given`, a number"},
    "notion": {
        "parity": "parity",
        "opportunity": "equal opportunity, all rows labelled",
        "opportunity, some": "equal opportunity, some rows labelled",
        "opportunity, propensity": "the same with `label_propensity`",
        "individual": "individual fairness",
    },
    "clusters": {False: "independent rows", True: "`clusters`"},
    "sample_weight": {False: "rows that count alike", True: "`sample_weight`"},
    "request": {"bias_reduction": "`bias_reduction`", "flag_rate_ratio": "`flag_rate_ratio`", "alpha": "`alpha`"},
    "correction": {
        "weights": "by weights",
        "resemblance": "`correction=\"resemblance\"`",
        "both": "`correction=\"both\"`",
    },
    "place": {
        "memory": "`fit`",
        "folder": "a folder",
        "dask": "Dask",
        "loaded": "saved, loaded, `at`",
        "update": "`update`",
        "monitor": "`FairnessMonitor.of`",
        "blind": "`BlindRepair`",
        "score_repair": "`ScoreRepair`",
        "audit": "`audit`",
    },
}  # fmt: skip
_MUCH = 30_000  # work, from which on a case is taken only if it has many new pairs
_BEGIN, _END = "<!-- what goes with what: begin -->", "<!-- what goes with what: end -->"
DOCUMENT = Path(__file__).parents[2] / "docs" / "notions.md"


@dataclass(frozen=True, order=True)
class Case:
    """One value of each factor."""

    groups: str = "hard"
    given: str = "none"
    notion: str = "parity"
    clusters: bool = False
    sample_weight: bool = False
    request: str = "bias_reduction"
    correction: str = "weights"
    place: str = "memory"

    @property
    def probable(self) -> bool:
        """Whether groups are known by their probabilities."""
        return self.groups in ("probable", "sufficient")

    @property
    def attributes(self) -> tuple[str, ...]:
        """The protected columns."""
        return {"bands": ("age",), "hard": ("sex",)}.get(self.groups, ("sex", "region"))

    @property
    def justifies(self) -> str:
        """The column that is given."""
        return "product" if self.given == "text" else "income"

    @property
    def labelled(self) -> bool:
        """Whether labels are given."""
        return self.notion.startswith("opportunity")

    @property
    def more(self) -> dict[str, Any]:
        """The options that are not the usual ones."""
        usual = vars(Case())
        return {name: value for name, value in vars(self).items() if value != usual[name]}

    def __str__(self) -> str:
        return ", ".join(name if value is True else str(value) for name, value in self.more.items()) or "plain"

    @property
    def arguments(self) -> set[str]:
        """What a place must have an argument for."""
        names = {"given"} if self.given != "none" else set()
        names |= {"groups"} if self.groups == "each" else set()
        names |= {"labels", "fairness"} if self.labelled else set()
        names |= {"label_propensity"} if self.notion == "opportunity, propensity" else set()
        names |= {"fairness"} if self.notion == "individual" else set()
        names |= {name for name in ("clusters", "sample_weight") if getattr(self, name)}
        names |= {"correction"} if self.correction != "weights" else set()
        return names | ({self.request} if self.request != "bias_reduction" else set())


@cache
def offered(place: str) -> frozenset[str]:
    """The arguments that a place has, by the signatures of what is called there."""
    calls: dict[str, tuple[Callable[..., Any], ...]] = {
        "folder": (FairOutlierEnsemble, parquet_parts, FairOutlierEnsemble.fit_partitions),
        "blind": (BlindRepair, BlindRepair.fit),
        "score_repair": (ScoreRepair, ScoreRepair.fit),
        "audit": (audit,),
    }
    used = calls.get(place, (FairOutlierEnsemble, FairOutlierEnsemble.fit))
    names = {name for call in used for name in inspect.signature(call).parameters}
    if place == "audit":  # it compares by every notion that it has the columns for
        names |= {"labels", "fairness"}
    return frozenset(names | ({"labels"} if "label" in names else set()))


def rows_needed(case: Case, each: int = 200) -> int:
    """Rows of a sample in which every group that is compared is worth ``each`` independent ones."""
    smallest = {"crossed": 0.45 * 0.25, "each": 0.25, "bands": 0.2, "probable": 0.3, "sufficient": 0.3}
    share = smallest.get(case.groups, 0.45) * {"none": 1.0, "text": 0.4, "number": 0.16}[case.given]
    if case.labelled:
        share *= 0.4 if case.notion == "opportunity" else 0.24
    return max(1500, int(each / share * (3.0 if case.clusters else 1.0) * (1.6 if case.sample_weight else 1.0)))


def work(case: Case) -> int:
    """What it takes to draw and fit the case once: rows, times the groups that are solved for or told apart."""
    groups = {"crossed": 6, "each": 5, "bands": 5}.get(case.groups, 2) * {"none": 1, "text": 2, "number": 5}[case.given]
    by_group = case.request == "flag_rate_ratio" or case.correction != "weights" or case.place == "blind"
    return rows_needed(case) * (groups if by_group else 1) * (5 if case.notion == "individual" else 1)


@dataclass(frozen=True)
class Rule:
    """Cases that are refused, in words that the error must have.

    Parameters
    ----------
    why : str
        One line for the table.
    words : tuple of str
    applies : callable
    """

    why: str
    words: tuple[str, ...]
    applies: Callable[[Case], bool]


def _beyond_crossed(case: Case) -> bool:
    return case.groups not in ("hard", "crossed") or case.given != "none" or case.labelled


RULES = (
    Rule(
        "individual fairness compares rows of crossed groups",
        ("fairness='individual'", "compares rows of crossed groups"),
        lambda case: case.place not in ("blind", "audit") and case.notion == "individual" and _beyond_crossed(case),
    ),
    Rule(
        "individual fairness compares pairs of rows, which have no weight",
        ("fairness='individual'", "sample_weight"),
        lambda case: case.place not in ("blind", "audit") and case.notion == "individual" and case.sample_weight,
    ),
    Rule(
        "a repair has no pairs of rows to even out",
        ("fairness='individual'",),
        lambda case: case.place == "blind" and case.notion == "individual",
    ),
    Rule(
        "rows are made alike in a number where all of them are in memory",
        ("given", "many numbers in column"),
        lambda case: case.place in ("folder", "dask") and case.given == "number",
    ),
    Rule(
        "clusters and weights need rows in memory",
        ("clusters", "sample_weight", "Dask"),
        lambda case: case.place == "dask" and (case.clusters or case.sample_weight),
    ),
    Rule(
        "pairs of rows do not add up",
        ("fairness='individual'", "do not add"),
        lambda case: case.place == "update" and case.notion == "individual",
    ),
    Rule(
        "sums of crossed groups of independent rows that count alike add up, others do not yet",
        ("update", "crossed groups"),
        lambda case: case.place == "update" and (_beyond_crossed(case) or case.clusters or case.sample_weight),
    ),
    Rule(
        "a watch compares crossed groups of independent rows that count alike",
        ("start()", "crossed groups"),
        lambda case: case.place == "monitor" and (_beyond_crossed(case) or case.clusters or case.sample_weight),
    ),
    Rule(
        "each row is moved by its group",
        ("ScoreRepair", "the group of each row"),
        lambda case: case.place == "score_repair" and (case.groups in ("bands", "each") or case.probable),
    ),
    Rule(
        "similar rows are pairs of rows of known groups that count alike",
        ("X does not go with", "sample_weight|probabilities"),
        lambda case: case.place == "audit" and case.notion == "individual" and (case.sample_weight or case.probable),
    ),
)


def rule_of(case: Case) -> Rule | None:
    """The rule by which a case is refused; None: it is measured."""
    return next((rule for rule in RULES if rule.applies(case)), None)


def is_offered(case: Case) -> bool:
    """Whether the place has an argument for everything that the case needs."""
    return case.arguments <= offered(case.place)


def every_case() -> list[Case]:
    """All that can be written down."""
    return [case for values in product(*FACTORS.values()) if is_offered(case := Case(*values))]


def design() -> list[Case]:
    """Cases that are measured, in which every two values that go together meet: greedy, new pairs for little work."""
    cases = [case for case in every_case() if rule_of(case) is None]
    sizes = [len(values) for values in FACTORS.values()]
    codes = np.array([[list(FACTORS[name]).index(value) for name, value in vars(case).items()] for case in cases])
    first = np.cumsum([0, *(a * b for a, b in combinations(sizes, 2))])
    pairs = np.column_stack(
        [
            start + codes[:, i] * sizes[j] + codes[:, j]
            for start, (i, j) in zip(first[:-1], combinations(range(len(sizes)), 2), strict=True)
        ]
    )
    worth = 1.0 / (1.0 + np.array([work(case) for case in cases]) / _MUCH)
    open_pairs, chosen = np.zeros(first[-1], dtype=bool), []
    open_pairs[pairs] = True
    while open_pairs.any():
        best = int((open_pairs[pairs].sum(axis=1) * worth).argmax())
        open_pairs[pairs[best]] = False
        chosen.append(cases[best])
    return sorted(chosen)


def refusals() -> list[Case]:
    """A case for every two values, the others being the usual ones, that do not go together."""
    found = []
    for first, second in combinations(FACTORS, 2):
        for one, two in product(FACTORS[first], FACTORS[second]):
            case = replace(Case(), **{first: one, second: two})
            if is_offered(case) and rule_of(case) is not None:
                found.append(case)
    return sorted(set(found))


def options() -> list[Case]:
    """A case for every option that a place measures, the others being the usual ones."""
    values = [(name, value) for name, own in FACTORS.items() for value in own if name != "place"]
    cases = {replace(Case(place=place), **{name: value}) for place in FACTORS["place"] for name, value in values}
    return sorted(
        case for case in cases if is_offered(case) and rule_of(case) is None and case.more.keys() != {"place"}
    )


def tables() -> str:
    """What goes with what, for the page: options by place, and pairs of options that do not go together."""
    notes: list[str] = []

    def cell(case: Case, name: str) -> str:
        asked = {"request": case.request, "correction": "correction"}.get(name, "")
        if not is_offered(case) or (asked and asked not in offered(case.place)):
            return ""
        rule = rule_of(case)
        if rule is None:
            return "yes"
        if rule.why not in notes:
            notes.append(rule.why)
        return f"no [{notes.index(rule.why) + 1}]"

    options_of = {name: values for name, values in FACTORS.items() if name != "place"}
    usual = [("given", "none"), ("clusters", False), ("sample_weight", False)]
    places = FACTORS["place"]
    lines = [f"| | {' | '.join(places.values())} |", f"|---|{':-:|' * len(places)}"]
    for name, values in options_of.items():
        for value, words in values.items():
            if (name, value) not in usual:
                cells = [cell(replace(Case(place=place), **{name: value}), name) for place in places]
                lines.append(f"| {words} | {' | '.join(cells)} |")
    pairs: dict[tuple[str, str, str], list[str]] = {}
    for place, (first, second) in product(("memory", "audit"), combinations(options_of, 2)):
        for (one, words), (two, other) in product(options_of[first].items(), options_of[second].items()):
            case = replace(Case(place=place), **{first: one, second: two})
            alone = [replace(case, **{name: getattr(Case(), name)}) for name in (first, second)]
            rule = rule_of(case)
            if rule is not None and is_offered(case) and not any(map(rule_of, alone)):
                both = (words, other) if second == "notion" else (other, words)
                pairs.setdefault((places[place], both[1], rule.why), []).append(both[0])
    refused = [f"| {place} | {one} | {'; '.join(others)} | {why} |" for (place, one, why), others in pairs.items()]
    head = ["", "These do not go together, the first also over folders, with Dask and in saved models:", ""]
    table = ["| in | | with | since |", "|---|---|---|---|", *refused]
    return "\n".join([*lines, "", *(f"[{i}] {why}<br>" for i, why in enumerate(notes, 1)), *head, *table])


def page(text: str) -> str:
    """The page with its tables as they are now."""
    head, rest = text.split(_BEGIN)
    return f"{head}{_BEGIN}\n{tables()}\n{_END}{rest.split(_END)[1]}"


if __name__ == "__main__":
    DOCUMENT.write_text(page(DOCUMENT.read_text()))
    sys.exit(0)
