"""Wins, ties and losses: AUC against each peer where it is as fair as ours, with errors that know of shared rows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from evenout.core.types import FloatArray
from league.contract import BASE

CHAMPION, REQUEST = "evenout", "0.8"
MEASURES = {"rank_bias": "bias of the ranks", "bias": "bias of the scores"}
NONE = 0.001  # a bias up to this, a gap of 0.03 deviations, counts as none
LEVEL = 0.05
OUTCOMES = ("win", "tie", "loss", "never as fair")


@dataclass(frozen=True)
class Duel:
    """Ours against one peer on one table.

    Attributes
    ----------
    setting : str
        The peer's setting with the highest mean AUC among those that are as fair as ours on the judged halves; the
        fairest one where none is. Choosing by judged halves favours the peer.
    our_bias, their_bias, our_auc, their_auc : float
        Means over the halvings.
    difference : float
        Our AUC less theirs.
    error : float
        Its standard error.
    low, high : float
        Its 95 % interval, for this comparison alone.
    p : float
        Two-sided; ``adjusted`` after Holm, over all comparisons of the league.
    base_difference, our_price, their_price : float
        What the difference is made of: our base's AUC less the base of theirs, and the AUC that each has lost from
        base to fair; ``difference = base_difference - our_price + their_price``.
    outcome : str
        One of `OUTCOMES`.
    """

    table: str
    method: str
    setting: str
    our_bias: float
    their_bias: float
    our_auc: float
    their_auc: float
    difference: float
    error: float
    low: float
    high: float
    p: float
    base_difference: float
    our_price: float
    their_price: float
    outcome: str = "never as fair"
    adjusted: float = float("nan")


class Scores:
    """Results by table, method and setting: one array over the halvings for each measure."""

    def __init__(self, results: Iterable[dict[str, Any]]) -> None:
        found: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
        for each in results:
            found[each["table"], each["method"], each["setting"]][each["half"]] = each
        self._found = {key: [halves[half] for half in sorted(halves)] for key, halves in found.items()}

    def of(self, table: str, method: str, setting: str, measure: str) -> FloatArray:
        """A measure over the halvings, in their order."""
        return np.array([each[measure] for each in self._found[table, method, setting]], dtype=float)

    def mean(self, table: str, method: str, setting: str, measure: str) -> float:
        """Its mean."""
        return float(self.of(table, method, setting, measure).mean())

    def settings(self, table: str, method: str) -> list[str]:
        """Settings of a method, its base first; none where it did not play."""
        return [key[2] for key in self._found if key[:2] == (table, method)]

    def seconds(self, table: str, method: str) -> float:
        """CPU seconds of all settings, in the median over the halvings."""
        each = [self.of(table, method, setting, "seconds") for setting in self.settings(table, method)]
        return float(np.median(np.sum(each, axis=0)))


def compare(
    results: Iterable[dict[str, Any]],
    overlapping: dict[str, bool],
    peers: Sequence[str],
    measure: str = "rank_bias",
    champion: str = CHAMPION,
) -> list[Duel]:
    """Every peer on every table, with what Holm's correction over all of them leaves of wins and losses."""
    scores = Scores(results)
    duels = [
        duel(scores, table, peer, measure, champion, overlap=1.0 if shared else 0.0)
        for table, shared in overlapping.items()
        for peer in peers
        if scores.settings(table, peer) and scores.settings(table, champion)
    ]
    open_ones = [each for each in duels if each.outcome != "never as fair"]
    adjusted = iter(holm(np.array([each.p for each in open_ones])).tolist())
    return [each if each.outcome == "never as fair" else _decided(each, next(adjusted)) for each in duels]


def duel(scores: Scores, table: str, peer: str, measure: str, champion: str, overlap: float) -> Duel:
    """Ours against one peer on one table, before any correction."""
    bias = {setting: scores.mean(table, peer, setting, measure) for setting in scores.settings(table, peer)}
    ours = scores.of(table, champion, REQUEST, measure).mean()
    fair = [setting for setting, found in bias.items() if found <= max(ours, NONE)]
    best = (
        max(fair, key=lambda setting: scores.mean(table, peer, setting, "auc"))
        if fair
        else min(bias, key=bias.__getitem__)
    )
    mine, theirs = scores.of(table, champion, REQUEST, "auc"), scores.of(table, peer, best, "auc")
    before = [scores.mean(table, name, BASE, "auc") for name in (champion, peer)]
    mean, error, p = over_halves(mine - theirs, overlap)
    reach = error * stats.t.ppf(0.975, len(mine) - 1) if len(mine) > 1 else float("nan")
    return Duel(
        table, peer, best, float(ours), bias[best], float(mine.mean()), float(theirs.mean()),
        mean, error, mean - reach, mean + reach, p,
        base_difference=before[0] - before[1],
        our_price=before[0] - float(mine.mean()),
        their_price=before[1] - float(theirs.mean()),
        outcome="tie" if fair else "never as fair",
    )  # fmt: skip


def over_halves(differences: FloatArray, overlap: float) -> tuple[float, float, float]:
    """Mean, standard error and two-sided p-value of differences over halvings.

    The error is ``s sqrt(1 / J + overlap)``. Halvings of the same rows are not independent: overlap is the number of
    judged rows over that of fitted ones, here 1 (Nadeau and Bengio 2003, *Inference for the generalization error*).
    It is 0 where rows are drawn anew. A single halving has no error.

    >>> over_halves(np.array([0.1, 0.2, 0.3]), 0.0)[0].__round__(3)
    0.2
    """
    J, mean = len(differences), float(differences.mean())
    if J < 2:
        return mean, float("nan"), 1.0
    error = float(differences.std(ddof=1) * np.sqrt(1.0 / J + overlap))
    if error == 0:
        return mean, 0.0, 1.0 if mean == 0 else 0.0
    return mean, error, float(2.0 * stats.t.sf(abs(mean) / error, J - 1))


def holm(p: FloatArray) -> FloatArray:
    """P-values that may be compared with one level, however many there are (Holm 1979).

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.minimum(stepped, 1.0)
    return found


def tally(duels: Iterable[Duel]) -> dict[str, int]:
    """How many of each outcome."""
    outcomes = [each.outcome for each in duels]
    return {outcome: outcomes.count(outcome) for outcome in OUTCOMES}


def to_dict(each: Duel) -> dict[str, Any]:
    """Plain values, rounded."""
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in asdict(each).items()}


def _decided(each: Duel, adjusted: float) -> Duel:
    outcome = "tie" if adjusted > LEVEL else "win" if each.difference > 0 else "loss"
    return replace(each, adjusted=adjusted, outcome=outcome)
