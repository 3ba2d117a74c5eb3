"""Everything a fit has learnt, and the fit elsewhere on its path."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from evenout.core.cells import Cells, unit_target
from evenout.core.content import row_order
from evenout.core.flags import FlagRows, flag_threshold, flagged_share
from evenout.core.parallel import map_columns, sorted_columns
from evenout.core.parity import DemographicParity
from evenout.core.path import Choice, Target, TradeoffPath
from evenout.core.problem import Mixture
from evenout.core.ruler import UNKNOWN_RATIO, RatioEstimate, Sample
from evenout.core.sketch import average_ranks, values_below
from evenout.core.types import ANY, FINITE, MOST_ROWS, FloatArray, IntArray, Within, entries_of, require
from evenout.exceptions import (
    AttributeWarning,
    BiasedLabelsWarning,
    InputError,
    Message,
    UnknownOutcomeWarning,
    warn,
)
from evenout.fitting.choose import Decision, choose_place, settle
from evenout.fitting.passes import UpdateMaps
from evenout.fitting.score_model import ScoreModel
from evenout.fitting.settings import Settings
from evenout.groups.read import Codes

SHARES = np.array([0, 0.1, 0.2, 0.5, *range(1, 100), 99.5, 99.8, 99.9, 100]) / 100.0
CROWD = 1024
ALIKE = 0.8  # rank correlation from which on two features are said to move together
_BINS = 20
_ROWS = 20_000  # for the correlations, and fewer where there are hundreds of columns
_PRODUCTS = 4e9  # of numbers, at most


@dataclass(frozen=True)
class Background:
    """Summaries of the training rows, feature by feature.

    ``typical`` is the median of each column, and of one-hot columns the most frequent category; no actual row.
    ``levels`` are the values below which `SHARES` of the rows lie; ``means`` of one-hot columns are shares. ``tells``
    is how well each column alone predicts the group, from 0, not at all, to 1, always (`told`). Columns with
    the same number in ``kin`` move together: a chain of rank correlations of at least `ALIKE`. ``crowd`` are at most
    `CROWD` of the rows, evenly spaced in the order of their values, among which similar rows are sought.
    """

    typical: Annotated[FloatArray, "d"]
    levels: Annotated[FloatArray, f"{len(SHARES)} d"]
    means: Annotated[FloatArray, "d"]
    tells: Annotated[FloatArray, "d", Within(0, 1)]
    kin: Annotated[IntArray, "d", Within()]
    crowd: Annotated[FloatArray, "* d"]
    n_groups: Annotated[int, Within(0, 2**31)]

    @classmethod
    def of(cls, X: FloatArray, codes: IntArray, folds: IntArray, n_groups: int, *, n_threads: int = 1) -> "Background":
        """Summarise training rows (n, d), with the codes of their groups, -1 where unknown, and their folds."""
        ordered = sorted_columns(X, n_threads)
        levels = values_below(ordered, SHARES)
        typical = levels[np.flatnonzero(SHARES == 0.5)[0]].copy()
        means = ordered.mean(axis=0)
        for start, stop in category_runs(X):
            typical[start:stop] = np.arange(stop - start) == means[start:stop].argmax()
        shares = map_columns(
            lambda j: told(X[:, j], levels[:, j], codes, folds, n_groups), range(X.shape[1]), len(X), n_threads
        )
        some = evenly_spaced(X, _ROWS)
        return cls(typical, levels, means, np.array(shares), _kin(some), evenly_spaced(some, CROWD), n_groups)

    def check(self) -> None:
        """Require that levels ascend, and that columns are kin to columns that exist."""
        require((np.diff(self.levels, axis=0) >= 0).all(), "levels", "is out of order")
        require(self.kin.max(initial=0) < len(self.typical), "kin", "is out of range")
        require(1 <= len(self.crowd) <= CROWD, "crowd", "has the wrong length")


def category_runs(X: FloatArray) -> list[tuple[int, int]]:
    """First column of every run of one-hot columns, of 0 and 1 that sum to 1 in every row, and the one behind it."""
    truth = np.array([((column == 0.0) | (column == 1.0)).all() for column in X.T]) & (np.ptp(X, axis=0) > 0)
    runs, start = [], 0
    while start < X.shape[1]:
        total, stop = np.zeros(len(X)), start
        while stop < X.shape[1] and truth[stop] and total.min() < 1.0:
            total = total + X[:, stop]
            stop += 1
            if total.max() > 1.0:
                break
        complete = (total == 1.0).all()
        runs += [(start, stop)] if complete else []
        start = stop if complete else start + 1
    return runs


def told(column: FloatArray, levels: FloatArray, codes: IntArray, folds: IntArray, n_groups: int) -> float:
    """How well a column predicts the group: the share of right guesses beyond chance, of the most that is possible.

    The column is cut into bins of equal numbers of rows, and in each bin the group is guessed whose rows are most often
    in it. Every group counts the same, and rows are guessed by the other half of the rows, by folds: a column that says
    nothing is at 0, whatever the number of bins.
    """
    known = codes >= 0
    if n_groups < 2 or not known.any():
        return 0.0
    edges = np.unique(levels[np.searchsorted(SHARES, np.linspace(0.0, 1.0, _BINS + 1)[1:-1])])
    bins, half = np.searchsorted(edges, column[known], side="right"), folds[known] % 2
    shape = (2, len(edges) + 1, n_groups)
    cell = (half * shape[1] + bins) * n_groups + codes[known]
    counts = np.bincount(cell, minlength=2 * shape[1] * n_groups).reshape(shape).astype(float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    guess = shares[::-1].argmax(axis=2)  # by the other half
    right = np.take_along_axis(shares, guess[:, :, None], axis=2).sum() / (2 * n_groups)
    return float(np.clip((right - 1.0 / n_groups) / (1.0 - 1.0 / n_groups), 0.0, 1.0))  # sums of shares may pass 1


def evenly_spaced(X: FloatArray, size: int) -> FloatArray:
    """At most ``size`` rows, evenly spaced in the order of their values, which does not depend on the order of rows."""
    order, _ = row_order(X)
    spaced = np.linspace(0, len(X) - 1, min(size, len(X))).round().astype(np.intp)
    return X[order[spaced]] + 0.0  # + 0.0: no -0.0 remains, which may stand before or after a 0.0


def _kin(X: FloatArray) -> IntArray:
    """Numbers of the chains of columns that move together."""
    from scipy.sparse.csgraph import connected_components

    n, d = X.shape
    if n * d**2 > _PRODUCTS:
        X = evenly_spaced(X, max(1000, int(_PRODUCTS / d**2)))
    ranks = np.column_stack([average_ranks(column) for column in X.T])
    centred = ranks - ranks.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    correlation = (centred.T @ centred) / np.maximum(np.outer(size, size), 1.0)
    return connected_components(np.abs(correlation) >= ALIKE, directed=False)[1].astype(np.int64)


_CLEAR = 0.02  # changes below this share of the largest bias are no matter


class AttributeBias(NamedTuple):
    """Bias between the groups of one attribute, of the base score and of the fair one.

    ``error`` is the standard error of the change; NaN on training rows.
    """

    before: float
    after: float
    error: float = float("nan")


def attribute_bias(path: TradeoffPath, alpha: float, target: Target) -> dict[str, AttributeBias]:
    """The bias of each attribute that is compared by itself, by the first notion that compares groups.

    A crossing has the names of its attributes, joined. Empty where there are crossed groups alone, whose bias is that
    of the path.
    """
    notions = [notion for notion, _ in path.notions if isinstance(notion, DemographicParity)]
    names = dict.fromkeys(block.of for block in path.cross.whole.comparison.blocks if block.of)
    if not notions or not names or (target == "unseen" and not path.cross.n_folds):
        return {}
    notion, biases, V = notions[0], {}, path.fold_weights(np.array([alpha]), target)
    for name in names:
        cross = path.cross.only(lambda block, name=name: block.of == name)  # type: ignore[misc]
        if target == "training":
            both = np.concatenate([unit_target(cross.whole)[0], V[0]])
            biases[name] = AttributeBias(*notion.training_bias(cross.whole, both).tolist())
            continue
        before = after = float(notion.target_bias(cross)[0])
        variance = 0.0
        if not path.is_target(alpha):
            after, change = float(notion.bias(cross, V)[0]), np.array([1.0, -1.0])
            variance = max(change @ notion.covariance(cross, V) @ change, 0.0)
        biases[name] = AttributeBias(before, after, float(np.sqrt(variance)))
    return biases


def warn_rising(biases: dict[str, AttributeBias]) -> None:
    """Warn where the bias of one attribute rises while that of another falls, both clearly."""
    least = max((_CLEAR * bias.before for bias in biases.values()), default=0.0)
    clear = {name: max(least, 2.0 * float(np.nan_to_num(bias.error))) for name, bias in biases.items()}
    rising = [name for name, bias in biases.items() if bias.after - bias.before > clear[name]]
    falling = [name for name, bias in biases.items() if bias.before - bias.after > clear[name]]
    if least > 0 and rising and falling:
        named = " and ".join(f"{name!r} ({biases[name].before:.2g} to {biases[name].after:.2g})" for name in rising)
        warn(
            AttributeWarning(
                "the bias of {named} rises while that of {falling} falls; ask for less ({@bias_reduction}), or leave "
                "attributes out, to see what each of them costs the others",
                named=named, falling=" and ".join(map(repr, falling)),
            )
        )  # fmt: skip


@dataclass(frozen=True)
class Learnt:
    """Scale-free bias of the base score before and after it has learnt from labels; NaN where it was not to learn.

    ``raised``: whether it has risen by more than chance explains.
    """

    before: float = float("nan")
    after: float = float("nan")
    raised: bool = False

    def without_labels(self, reduction: float) -> float:
        """The reduction of the bias without labels that a reduction of the learnt base score's bias amounts to."""
        return 1.0 - (1.0 - reduction) * self.after / self.before if self.before > 0 else float("nan")

    def announced(self, reduction: float) -> None:
        """Warn where the gap was raised; ``reduction`` is the share of it that the fair score has removed."""
        if not self.raised:
            return
        gone = self.without_labels(reduction)
        left = "{reduction:.0%} of that is gone from the fair score, and what is left is {compared}. "
        warn(
            BiasedLabelsWarning(
                "learning from labels has raised the bias of the base score from {before:.4f} to {after:.4f}. "
                + ("" if math.isnan(gone) else left)
                + "Labels carry the bias of those who gave them: look at how they came about, or leave out {@learn}.",
                before=self.before, after=self.after, reduction=reduction, compared=beside_unlearnt(gone),
            )
        )  # fmt: skip


def beside_unlearnt(gone: float) -> str:
    """Put a reduction of the bias without labels into words.

    >>> [beside_unlearnt(gone) for gone in (0.25, -0.5, -4.0)]
    ['25% less than without labels', '50% more than without labels', '5 times what it was without labels']
    """
    if gone < -1.0:
        return f"{1.0 - gone:.2g} times what it was without labels"
    return f"{abs(gone):.0%} {'less' if gone >= 0 else 'more'} than without labels"


_UNKNOWN = (
    "rows of {groups} differ from those before by more than chance, and the last {now} rows are too few to solve for: "
    "what people get from now on is not known. The rule is that of all {all} rows; more rows will tell."
)


@dataclass(frozen=True, eq=False)
class Recent:
    """Rows that updates have added since the fit, or since the last drift, and the number of these updates.

    ``cells`` are their sums (`evenout.fitting.passes.UpdateMaps.cells`); the last ``kept`` rows in memory are theirs.
    """

    cells: Cells
    kept: int
    updates: int


@dataclass(frozen=True)
class Drift:
    """A difference between the latest rows, ``now``, and those ``before``, in these groups.

    ``followed``: whether the latest rows were enough to solve for; if not, the rule is that of all rows. ``reached``
    and ``interval`` are the statement about all rows together, had the rule been solved for them.
    """

    groups: tuple[str, ...]
    before: int
    now: int
    followed: bool
    reached: float
    interval: tuple[float, float]

    @property
    def named(self) -> str:
        """The names of the groups, the first five in full."""
        more = f" and {len(self.groups) - 5} more groups" if len(self.groups) > 5 else ""
        return ", ".join(map(repr, self.groups[:5])) + more

    def doubted(self, choice: Choice) -> Choice:
        """The choice on all rows, in doubt where the latest rows differ and are too few to be followed."""
        if self.followed or choice.doubt:
            return choice
        named = self.named.replace("{", "{{").replace("}", "}}")
        return replace(
            choice,
            met=False,
            message=_UNKNOWN.format(groups=named, now=f"{self.now:,}", all=f"{self.before + self.now:,}"),
            kind=UnknownOutcomeWarning,
            doubt="drift",
        )


_MOST_TRAINED = 4  # times the rows in memory: an update thins them where there is no room for all
_MOST_BEFORE = 2_000_000  # rows before a drift that a file may claim: those in memory are the latest alone

NO_ROWS = (
    "{what} needs the groups of the training rows, which this file does not hold; save the fitted model by "
    "save_model(..., updatable=True), or with --updatable, and load that"
)


@dataclass(frozen=True)
class FitResult:
    """Everything that a fit has learnt; a model file holds it as it is, or `without_groups`.

    ``scores`` lead from feature rows to detector scores and target, ``mixture`` is the fair score at the chosen alpha.
    ``groups`` are those of the rows in memory, crossed and hard: bands and probable groups by what a row belongs to
    most; without codes in models that were saved without the groups of their rows. ``names`` and ``counts`` are of the
    groups that are compared, and ``n_rows`` of all rows, in memory or not.

    Of the rows in memory, ``S`` are detector scores and ``target`` is the base score; ``seen`` are the same rows, each
    scored by models that have not seen it; none of them where the groups were not saved. ``flag_ratio`` is that of flag
    rates on unseen rows, and ``flag_price`` the price of the score at the threshold, on held-out scores of the rows in
    memory. ``known`` is, for each group that rows may resemble, how much of its indicator the features predict; empty
    where the score is not corrected by that. Rows whose fair score, or base score, is above ``threshold``, or
    ``base_threshold``, are flagged; ``flag_rates`` (G, 2) is the share of each group, of all rows, that base and fair
    score flag.

    ``learnt`` says how learning from labels has changed the base score's gap; ``rank_error`` how far the ranks behind
    the row weights may be off, as a share of the rows. ``maps`` fold new rows in; None where the groups of the rows
    were not saved. ``background`` is for reasons; None in models that were saved before there was any. ``recent`` are
    rows that updates have added, and ``drift`` is how the latest rows differ from those before. Where these were enough
    to be followed, all else here is about them.
    """

    scores: ScoreModel
    path: TradeoffPath
    choice: Choice
    mixture: Mixture
    groups: Codes
    names: tuple[str, ...]
    counts: Annotated[IntArray, "G", Within(0, MOST_ROWS)]
    n_rows: Annotated[int, Within(2, MOST_ROWS)]
    S: Annotated[FloatArray, "n k"]
    target: Annotated[FloatArray, "n"]
    seen: FlagRows
    flag_ratio: RatioEstimate
    flag_price: dict[str, float]
    known: dict[str, Annotated[float, FINITE]]
    threshold: Annotated[float, FINITE]
    base_threshold: Annotated[float, FINITE]
    flag_rates: Annotated[FloatArray, "G 2", ANY]
    learnt: Learnt
    rank_error: Annotated[float, FINITE]
    maps: UpdateMaps | None = None
    background: Background | None = None
    recent: Recent | None = None
    drift: Drift | None = None

    def check(self) -> None:
        """Require that all parts are of the same rows, columns and groups."""
        n, k, resembling = len(self.target), self.S.shape[1], self.scores.width - self.scores.n_detectors
        require(2 <= n <= self.n_rows, "n_rows", "is out of range")
        require(k == self.scores.width, "S", "has the wrong shape")
        require(len(self.mixture.weights) == k, "mixture", "has the wrong shape")
        require(len(self.names) == len(self.counts), "names", "has the wrong length")
        require(len(self.known) == resembling, "known", "has the wrong length")
        require(math.isfinite(self.choice.alpha), "choice.alpha", "is not finite")
        whole, seen = self.path.cross.whole, self.seen
        require(whole.n_detectors == k, "path", "has the wrong shape")
        require(whole.comparison.n_groups == len(self.names), "names", "do not go with the rest")
        groups, others = ([block.groups for block in c.blocks] for c in (whole.comparison, seen.sample.compared))
        require(groups == others, "seen.sample", "does not go with the rest")
        require(seen.S.shape[1] == k, "seen.S", "has the wrong shape")
        require(len(seen.t) in (0, n) and len(self.groups.codes) == len(seen.t), "groups.codes", "has the wrong length")
        moving = seen.views is None or seen.views.maps.shape[1] - 1 in (k, resembling)
        require(moving, "seen.views", "does not go with the rest")
        if self.maps is not None:
            require(len(seen.t) == n, "maps", "does not go with the rest")
            require(self.maps.columns.shape[1] == self.scores.n_detectors, "maps", "has the wrong shape")

    def filled(self, n_features: int) -> "FitResult":
        """The fit, read from a file, after a check against its columns."""
        background, resemblance = self.background, self.scores.resemblance
        require(background is None or len(background.typical) == n_features, "background", "has the wrong shape")
        if resemblance is not None:
            with entries_of("scores.resemblance"):
                resemblance.fits(n_features)
        with entries_of("scores.pool"):
            before = 0 if self.drift is None else min(self.drift.before, _MOST_BEFORE)
            pool = self.scores.pool.filled(n_features, _MOST_TRAINED * (len(self.target) + before))
        fits = len(self.scores.scaling.sorted_scores) in (0, pool.n_rows)
        require(fits, "scores.scaling.sorted_scores", "has the wrong length")
        return replace(self, scores=replace(self.scores, pool=pool))

    def without_groups(self) -> "FitResult":
        """The fit as a file holds it that reveals the group of no row."""
        groups, seen = replace(self.groups, codes=self.groups.codes[:0]), self.seen
        nobody = Sample(seen.sample.members.among(np.zeros(0, dtype=np.intp)), doubt=seen.sample.doubt)
        seen = seen.among(slice(0), nobody, seen.n_rows)
        return replace(self, groups=groups, seen=seen, maps=None, recent=None)

    def require_rows(self, what: str | Message) -> None:
        """Refuse what needs the groups of the rows where they were not saved."""
        if len(self.seen.t) < len(self.target):
            raise InputError(NO_ROWS, what=what)

    @property
    def prices(self) -> dict[str, float]:
        """The deduction for resembling each group; empty where the score is not corrected by that."""
        model = self.scores.resemblance
        if model is None:
            return {}
        prices = model.levelled(-self.mixture.weights[self.scores.n_detectors :])
        return dict(zip(self.known, prices.tolist(), strict=True))

    @property
    def beyond_crossed(self) -> str:
        """The argument, for a message, by which this is no fit of crossed groups of independent rows that count alike.

        Empty if it is one.
        """
        cells, sample = self.path.cross.whole, self.seen.sample
        if cells.compared is None and cells.spread is None:
            return ""
        if sample.compared.beyond_crossed or cells.spread is None:
            return sample.compared.beyond_crossed or "{@given}"  # of which one stratum has two groups
        return "{@clusters}" if sample.clusters is not None else "{@sample_weight}"

    def base_flag_ratio(self, contamination: float) -> float:
        """Lowest over highest flag rate of the base score on unseen rows; NaN where no groups are compared."""
        share = self.seen.share(contamination)
        rows = self.seen.narrowed(share)
        return float(rows.ratio(rows.flagged(rows.base(), share))[0]) if rows.compares.any() else float("nan")

    def at(self, settings: Settings) -> "FitResult":
        """The fit elsewhere on its path. Rows beyond those in memory are taken to score like these.

        Where the groups of the rows were not saved, flag rates are not known; rows that count unequally, or whose
        groups are in doubt, would be needed for what is stated of them.
        """
        saved = len(self.seen.t) == len(self.target)
        if saved:
            decision = settle(settings, self.path, self.seen)
        else:
            if settings.flag_rate_ratio is not None:
                self.require_rows("at(flag_rate_ratio=...)")
            cells = self.path.cross.whole
            if cells.compared is not None or cells.spread is not None or self.n_rows != len(self.target):
                self.require_rows("at()")
            path = replace(self.path, rule=None) if self.path.rule is not None else self.path
            decision = Decision(path, choose_place(settings, path, self.seen), UNKNOWN_RATIO, {})
        if self.drift is not None:
            decision = decision._replace(choice=self.drift.doubted(decision.choice))
        rows = self.S, self.target, self.seen.sample if saved else None, self.n_rows
        return replace(self, **settled_fields(settings, decision, *rows))


def settled_fields(
    settings: Settings, decision: Decision, S: FloatArray, t: FloatArray, sample: Sample | None, n_rows: int
) -> dict[str, Any]:
    """The fields of `FitResult` that follow from a decision, with its warnings; flag rates are NaN without a sample.

    ``S`` and ``t`` are those of the rows in memory, out of ``n_rows``.
    """
    path, choice, ratio, price = decision
    mixture = path.mixture(choice.alpha)
    both = np.column_stack([t, mixture.apply(S, t)])
    announce(settings, choice, ratio, both)
    share = flagged_share(settings.contamination, n_rows)
    above = flag_threshold(both, share, None if sample is None else sample.weight)
    rates = np.full((path.cross.whole.comparison.n_groups, 2), np.nan)
    if sample is not None:
        warn_rising(attribute_bias(path, choice.alpha, settings.judged_on))
        rates = sample.means(both > above)
    return {
        "path": path,
        "choice": choice,
        "mixture": mixture,
        "flag_ratio": ratio,
        "flag_price": price,
        "flag_rates": rates,
        "base_threshold": float(above[0]),
        "threshold": float(above[1]),
    }


def announce(settings: Settings, choice: Choice, ratio: RatioEstimate, both: FloatArray) -> None:
    """Warn where what was asked for is missed, and say how much of the base score's flagged list is kept.

    ``both`` (n, 2) are base and fair score.
    """
    before, after = (y > flag_threshold(y, settings.contamination) for y in both.T)
    price = f" and {(before & after).sum() / max(before.sum(), 1):.0%} of the flagged list is kept"
    given = settings.bias_reduction, settings.flag_rate_ratio, settings.alpha, settings.confidence
    choice.announced(price, asked=given != (None,) * 4, ratio=ratio)
