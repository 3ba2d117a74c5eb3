"""A list of rows to look into, the probabilities with which it was drawn, and what its outcomes let one say."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import InputError
from evenout.groups.read import label_rows
from evenout.pages import html_table
from evenout.planning.design import draw, inclusion_probabilities
from evenout.planning.estimate import ALL, ListOutcomes, Row, estimate_rows
from evenout.storage.output import atomic_file, write_table
from evenout.tables.columns import column_numbers
from evenout.tables.files import read_table, require_columns
from evenout.tables.parameters import check_parameters, integer, number
from evenout.tables.rows import as_seed, label_numbers, read_numbers

_RULES = {"budget": integer(1), "explore": number(0, 1)}
COLUMNS = ("row", "id", "chosen by", "probability", "score", "rank", "stratum", "known")  # of a file
_SHOWN = 8  # printed groups


@dataclass(frozen=True, eq=False, repr=False)
class InvestigationPlan:
    """Rows to investigate: the highest scores, and a probability sample of the rest.

    Made by `FairOutlierEnsemble.plan`, `BlindRepair.plan`, or `InvestigationPlan.of` for any score.

    Parameters
    ----------
    propensity, scores : arrays of shape (n,)
        The probability of each row of X to be on the list; they sum to the budget. Above 0 for every row if there is
        chance. A row whose outcome was known before is not on the list and has 1: it is known whatever is drawn.
    chosen : array of shape (budget,)
        Positions of the rows on the list, the highest score first.
    by_score : array of shape (n,)
        Rows that are on the list for their score alone.
    strata, strata_names : array of shape (n,), and tuple of str
        Codes of the groups that share the rows drawn by chance, and their names; empty if no group was given.
    index : pandas.Index
        Of X, or 0, 1, ...
    known : array of shape (n,)
        Outcomes that were known before: 1, 0, or NaN.
    promised : float, optional
        The ratio of flag rates that the model was asked for.
    notes : tuple of str
        Remarks on this plan.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from evenout.planning import InvestigationPlan
    >>> rng = np.random.default_rng(0)
    >>> outlier = rng.random(5000) < 0.05
    >>> scores = rng.normal(size=5000) + 2 * outlier
    >>> plan = InvestigationPlan.of(scores, budget=400, explore=0.5, random_state=0)
    >>> outcomes = pd.Series(outlier)[plan.to_frame().index]
    >>> recall = plan.estimate(outcomes).get("recall")
    >>> bool(recall.low <= outlier[plan.chosen].sum() / outlier.sum() <= recall.high)
    True
    """

    propensity: FloatArray
    scores: FloatArray
    chosen: IntArray
    by_score: BoolArray
    strata: IntArray
    strata_names: tuple[str, ...]
    index: pd.Index
    known: FloatArray
    promised: float | None = None
    notes: tuple[str, ...] = ()
    reasons: Callable[[IntArray, int], list[list[str]]] | None = None
    source: Any = None

    @classmethod
    def of(
        cls, scores: Any, *, budget: int = 200, explore: float = 0.1, sensitive_features: Any = None,
        random_state: Any = None, known: Any = None,
    ) -> "InvestigationPlan":  # fmt: skip
        """Plan by any score, higher = more outlying.

        Parameters
        ----------
        scores : array or series of shape (n,)
        budget : int, default=200
            How many rows can be investigated. More than there are rows: all of them.
        explore : float in [0, 1], default=0.1
            Share of the budget that is drawn by chance, with known probabilities; outcomes then tell how many outliers
            were missed, and in which group. 0 is the plain list of the highest scores; what it misses cannot be known.
        sensitive_features : array, series or frame of shape (n,) or (n, c), optional
            Groups: each gets its share of the rows drawn by chance, by its rows.
        random_state : int, RandomState or None
        known : array or series, optional
            Outcomes of rows that were investigated before, 1 or 0, missing for all others; a series may hold some of
            the rows. They are not investigated again.
        """
        check_parameters({"budget": budget, "explore": explore}, _RULES)
        missing = np.asarray(pd.isna(scores))
        if missing.ndim == 1 and missing.any():
            raise InputError(
                "{@scores} is missing in {n} of {n_rows} rows (first: {#row}); leave these rows out, or look into them "
                "beside the plan",
                n=int(missing.sum()), n_rows=len(missing), row=int(missing.argmax()),
            )  # fmt: skip
        values = read_numbers(scores, "scores")
        index = scores.index if isinstance(scores, pd.Series) else pd.RangeIndex(len(values))
        _refuse_repeated(index)
        before = np.full(len(values), np.nan) if known is None else _read_outcomes(known, index, "known")
        strata, names = _strata(sensitive_features, index)
        free = np.flatnonzero(np.isnan(before))
        if not len(free):
            raise InputError("{@known} has the outcome of every row; there is nobody left to look into")
        size, notes = min(int(budget), len(free)), []
        if size < budget:
            notes.append(f"There are {size:,} rows to look into, fewer than the budget of {budget:,}: all are chosen.")
        n_chance = 0 if size == len(free) else round(explore * size)
        if explore > 0 and explore * size < 1 and size < len(free):
            raise InputError(
                "{explore=} of {budget=} is less than one look; raise one of them, or set {explore=0} for the plain "
                "list",
                explore=explore, budget=budget,
            )  # fmt: skip
        propensity, by_score = np.ones(len(values)), np.zeros(len(values), dtype=bool)
        propensity[free], by_score[free] = inclusion_probabilities(values[free], size, n_chance, strata[free])
        rows = free[draw(propensity[free], strata[free], np.random.default_rng(as_seed(random_state)))]
        chosen = rows[np.argsort(-values[rows], kind="stable")]
        by_chance = len(chosen) - int(by_score.sum())
        if by_chance > n_chance:
            notes.append(f"{by_chance - n_chance:,} places went to rows of equal score, which were drawn by chance.")
        if (propensity == 0).any():
            notes.append(
                "Without looks by chance nothing can be known of those not looked into: neither how many outliers were "
                "missed, nor recall, nor whether it differs between groups. Set explore=0.1 to know."
            )
        by_group = np.bincount(strata[free], weights=np.where(by_score, 0.0, propensity)[free], minlength=len(names))
        few = [name for name, looks in zip(names, by_group, strict=False) if 0 < looks < 1]
        if few and n_chance:
            named = ", ".join(map(repr, few[:5])) + (" and more" if len(few) > 5 else "")
            notes.append(f"Fewer than one look by chance is expected in {named}: little can be said of these groups.")
        return cls(propensity, values, chosen, by_score, strata, names, index, before, notes=tuple(notes))

    @property
    def look_rates(self) -> dict[str, float]:
        """Share of each group's rows that is expected on the list, over draws."""
        if not self.strata_names:
            return {}
        new = np.isnan(self.known)
        looks = np.bincount(self.strata[new], weights=self.propensity[new], minlength=len(self.strata_names))
        rows = np.bincount(self.strata[new], minlength=len(self.strata_names))
        return dict(zip(self.strata_names, (looks / np.maximum(rows, 1)).tolist(), strict=True))

    @property
    def look_rate_ratio(self) -> float:
        """Lowest over highest of ``look_rates``; NaN without two groups."""
        rates = [*self.look_rates.values()]
        return min(rates) / max(rates) if len(rates) > 1 and max(rates) > 0 else float("nan")

    def to_frame(self, reasons: int = 0) -> pd.DataFrame:
        """The rows on the list, the highest score first, with the index of X.

        Columns: ``id``; ``chosen by``, "score" or "chance"; ``probability`` of being listed; ``score``; ``rank``, 1 is
        the highest; and, if the plan is that of a `FairOutlierEnsemble`, so many ``reasons``: ``reason_1``, ...
        """
        rows = self.chosen
        frame = pd.DataFrame({
            "id": self.index[rows], "chosen by": np.where(self.by_score[rows], "score", "chance").astype(object),
            "probability": self.propensity[rows], "score": self.scores[rows],
            "rank": rankdata(-self.scores, method="min").astype(np.int64)[rows],
        }, index=self.index[rows])  # fmt: skip
        if reasons:
            if self.reasons is None:
                raise InputError("reasons need the plan of a FairOutlierEnsemble; {reasons=0} leaves them out")
            texts = self.reasons(rows, reasons)
            for i in range(reasons):
                frame[f"reason_{i + 1}"] = [text[i] if i < len(text) else "" for text in texts]
        return frame

    def labels(self, outcomes: Any) -> pd.Series:
        """Outcomes of every row of X, 1 or 0, NaN where unknown, for the ``labels`` of a fit; see `estimate`."""
        return pd.Series(self._outcomes(outcomes)[0], index=self.index, name="label")

    def _outcomes(self, outcomes: Any) -> tuple[FloatArray, int]:
        """Outcomes of all rows, those known before included, and how many are of rows that were not on the list."""
        values = _read_outcomes(outcomes, self.index, "outcomes")
        listed = np.zeros(len(values), dtype=bool)
        listed[self.chosen] = True
        return np.where(listed, values, self.known), int((~listed & np.isnan(self.known) & ~np.isnan(values)).sum())

    def estimate(
        self, outcomes: Any, sensitive_features: Any = None, *,
        earlier: Iterable[tuple["InvestigationPlan", Any]] = (), confidence: float = 0.95,
    ) -> "PlanEstimate":  # fmt: skip
        """Estimate what the list found and missed, for all rows and by group, with intervals from the draw itself.

        Parameters
        ----------
        outcomes : series
            1 for an outlier, 0 for none, on the index of `to_frame`, in any order. Rows that are missing have not come
            back yet, or are lost: they are not 0. Or one value per row of X.
        sensitive_features : array, series or frame of shape (n,) or (n, c), optional
            Groups of every row of X; by default those of the plan.
        earlier : iterable of (plan, outcomes)
            Earlier plans of the same rows, if the outcomes of each were ``known`` to the next. Then the number of
            outliers is averaged over rounds, weighted by the planned number of rows drawn by chance.
        confidence : float
            Of the intervals.
        """
        check_parameters({"confidence": confidence}, {"confidence": number(0.5, 0.999)})
        own = self.strata, self.strata_names
        codes, names = own if sensitive_features is None else _strata(sensitive_features, self.index)
        rounds = [*earlier, (self, outcomes)]
        if not all(plan.index.equals(self.index) for plan, _ in rounds):
            raise InputError("{@earlier} has a plan of other rows; rounds are averaged over the same rows alone")
        read = [(plan, *plan._outcomes(given)) for plan, given in rounds]
        lists = [plan._list_outcomes(values, codes, max(len(names), 1)) for plan, values, _ in read]
        if np.isnan(lists[-1].outcome).all():
            raise InputError("{@outcomes} has no outcome of a row on the list; fill in what came back")
        notes = self._estimate_notes(lists[-1], names, read[-1][2])
        return PlanEstimate(tuple(estimate_rows(lists, names or (ALL,), confidence)), tuple(notes), confidence)

    def _list_outcomes(self, values: FloatArray, codes: IntArray, n_groups: int) -> ListOutcomes:
        """The rows on the list, with the outcomes of all rows and the codes of their groups."""
        listed, smallest = self.chosen, np.ones(n_groups)
        np.minimum.at(smallest, codes, self.propensity)
        rows, known, outliers = (
            np.bincount(codes[of], minlength=n_groups) for of in (slice(None), ~np.isnan(self.known), self.known == 1.0)
        )
        return ListOutcomes(
            values[listed], self.propensity[listed], codes[listed], self.strata[listed], smallest,
            rows, known, outliers, int((~self.by_score[listed]).sum()),
        )  # fmt: skip

    def _estimate_notes(self, outcomes: ListOutcomes, names: Sequence[str], unused: int) -> list[str]:
        """Remarks on missing, unused and one-sided outcomes."""
        notes, missing, chance = [], np.isnan(outcomes.outcome), outcomes.probability < 1.0
        if missing.any():
            notes.append(
                f"{missing.sum():,} of {len(missing):,} outcomes are missing ({(missing & chance).sum():,} by chance); "
                "they are taken as missing at random among rows chosen alike in the same group."
            )
        if unused:
            notes.append(f"{unused:,} outcomes are of rows that are not on the list, and are not used.")
        if (outcomes.smallest == 0).any():
            notes.append("No row had a chance beyond its score: what was missed cannot be estimated, only bounded.")
            return notes
        hit = chance & (outcomes.outcome == 1.0)
        none = [name for g, name in enumerate(names) if not (hit & (outcomes.group == g)).any()]
        if none or not hit.any():
            where = f" in {', '.join([*map(repr, none[:5]), *(['...'] if len(none) > 5 else [])])}" if hit.any() else ""
            notes.append(f"No outlier was found by chance{where}: there the bound on what was missed is one-sided.")
        return notes

    def save(self, path: Any, beside: pd.DataFrame | None = None) -> None:
        """Write a CSV file with all that `estimate` needs: the list first, then the probabilities of all other rows.

        ``beside``, a frame of n rows, has more columns for the file, such as groups.
        """
        chosen_by = np.full(len(self.scores), "", dtype=object)
        chosen_by[self.chosen] = np.where(self.by_score[self.chosen], "score", "chance")
        chosen_by[~np.isnan(self.known)] = "known"
        columns = (
            np.arange(1, len(self.scores) + 1), np.asarray(self.index), chosen_by, self.propensity, self.scores,
            rankdata(-self.scores, method="min").astype(np.int64),
            np.array(self.strata_names or ("",), dtype=object)[self.strata], self.known,
        )  # fmt: skip
        empty = {"stratum": not self.strata_names, "known": np.isnan(self.known).all()}
        filled = zip(COLUMNS, columns, strict=True)
        frame = pd.DataFrame({name: column for name, column in filled if not empty.get(name)})
        if beside is not None:
            frame = pd.concat([frame, beside.reset_index(drop=True)], axis=1)
        others = np.setdiff1d(np.arange(len(frame)), self.chosen)
        with atomic_file(Path(path)) as file:
            write_table(frame.iloc[np.concatenate([self.chosen, others])], file)

    @classmethod
    def load(cls, path: Any) -> tuple["InvestigationPlan", pd.DataFrame]:
        """A plan from a file of `save`, and all columns of the file, both in the order of X and indexed by id."""
        path = Path(path)
        table = read_table(path, text={"stratum"}, verbatim={"id", "chosen by"})
        require_columns([*COLUMNS[:5]], table.columns, where=str(path), use="a file of evenout plan has it")
        rows = table["row"].to_numpy()
        if len(rows) == 0 or not np.array_equal(np.sort(rows), np.arange(1, len(rows) + 1)):
            raise InputError("{path} lacks rows, or has some twice; estimates need every row of the plan", path=path)
        table = table.sort_values("row").set_index("id", drop=False)
        _refuse_repeated(table.index)
        by, propensity = table["chosen by"].to_numpy(), column_numbers("probability", table["probability"])
        scores = column_numbers("score", table["score"])
        known = column_numbers("known", table["known"]) if "known" in table else np.full(len(table), np.nan)
        chosen = np.flatnonzero((by == "score") | (by == "chance"))
        if not (
            set(by) <= {"score", "chance", "known", ""}
            and ((propensity >= 0) & (propensity <= 1)).all()
            and (propensity[chosen] > 0).all()
            and not np.isnan(scores).any()
            and np.array_equal(by == "known", np.isin(known, (0.0, 1.0)))
            and np.array_equal(by == "known", ~np.isnan(known))
        ):
            raise InputError(
                "{path} has been changed in 'chosen by', 'probability', 'score' or 'known'; use it as it was", path=path
            )
        strata, names = _strata(table["stratum"].to_numpy(dtype=object) if "stratum" in table else None, table.index)
        order = chosen[np.argsort(-scores[chosen], kind="stable")]
        return cls(propensity, scores, order, by == "score", strata, names, table.index, known), table

    def _lines(self) -> list[str]:
        n_score, looks, new = int(self.by_score.sum()), len(self.chosen), int(np.isnan(self.known).sum())
        lines = [f"{looks:,} of {new:,} rows to look into: {n_score:,} by score, {looks - n_score:,} by chance"]
        weights = 1.0 / self.propensity[self.chosen][~self.by_score[self.chosen]]
        if len(weights):
            lines.append(f"a look by chance stands for {weights.min():,.0f} to {weights.max():,.0f} rows")
        rates = self.look_rates
        if len(rates) > 1:
            shown = ", ".join(f"{name} {rate:.2%}" for name, rate in [*rates.items()][:_SHOWN])
            more, ratio = f", {len(rates) - _SHOWN} more groups" if len(rates) > _SHOWN else "", self.look_rate_ratio
            lines.append(f"looked into: {shown}{more}; lowest over highest {ratio:.2f}")
            if self.promised is not None:
                kept = "keeps it" if ratio >= self.promised else f"is {self.promised - ratio:.2f} short"
                lines.append(f"the model was asked for {self.promised:.2f}: this list {kept}")
        return [*lines, *self.notes]

    def __repr__(self) -> str:
        return "InvestigationPlan\n" + "\n".join(f"  {line}" for line in self._lines())

    def _repr_html_(self) -> str:
        return html_table(["investigation plan"], [[line] for line in self._lines()])


@dataclass(frozen=True, repr=False)
class PlanEstimate:
    """Estimates of what a list found and missed.

    Measures: ``precision``, the share of outliers among investigated rows; ``recall``, the share of outliers that were
    investigated; ``missed``, how many were not; ``false_alarms``, the share of inliers that were investigated. With
    outcomes that were known before the plan, all of them are about everything investigated so far. ``missed`` is
    unbiased over draws, so a single value may be impossible, and outside its interval: below 0 if rounds are averaged,
    or above the number of rows left if nearly all were investigated. ``p`` tests by the last list that a measure is the
    same in all groups; it is in the row of group "all".
    """

    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    confidence: float

    def to_frame(self) -> pd.DataFrame:
        """One row for each measure and group: ``measure``, ``group``, ``value``, ``low``, ``high``, ``p``."""
        return pd.DataFrame([vars(row) for row in self.rows])

    def get(self, measure: str, group: str = ALL) -> Row:
        """One measure of a group, or of everybody."""
        for row in self.rows:
            if (row.measure, row.group) == (measure, group):
                return row
        raise KeyError(f"there is no {measure!r} of {group!r}")

    def _table(self) -> tuple[list[str], list[list[str]]]:
        measures, groups = ([*dict.fromkeys(getattr(row, of) for row in self.rows)] for of in ("measure", "group"))
        cells = [[group, *(_cell(self.get(measure, group)) for measure in measures)] for group in groups[: _SHOWN + 1]]
        p = [self.get(measure).p for measure in measures]
        if not np.isnan(p).all():
            shown = ("" if np.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}" for value in p)
            cells.append(["p, all alike", *shown])
        return ["", *measures], cells

    def __repr__(self) -> str:
        heads, cells = self._table()
        columns = zip(heads, *cells, strict=True)
        padded = ([text.ljust(max(map(len, column))) for text in column] for column in columns)
        lines = ("  ".join(line).rstrip() for line in zip(*padded, strict=True))
        return "\n".join([f"PlanEstimate, {self.confidence:.0%} intervals", *lines, *self.notes])

    def _repr_html_(self) -> str:
        heads, cells = self._table()
        return html_table(heads, cells, f"{self.confidence:.0%} intervals. {' '.join(self.notes)}")


def reasons_by(model: Any, X: Any, sensitive_features: Any, rows: IntArray, n_reasons: int) -> list[list[str]]:
    """Reasons in words for some rows of X, by a fitted ensemble."""
    some = X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]
    groups = None if sensitive_features is None else np.asarray(sensitive_features, dtype=object)[rows]
    reasons = model.explain(some, n_reasons, sensitive_features=groups)
    return [reasons.texts(row)[: reasons.n_given(row)] or [reasons.summary(row)] for row in range(len(rows))]


def _cell(row: Row) -> str:
    """A figure with its interval."""
    if np.isnan(row.low):
        return "unknown"
    style, unit = ("{:,.0f}", 1) if row.measure == "missed" else ("{:.1f} %", 100)
    value, low, high = (style.format(unit * x) for x in (row.value, row.low, row.high))
    return f"{'unknown' if np.isnan(row.value) else value} ({low} to {high})"


def _strata(sensitive_features: Any, index: pd.Index) -> tuple[IntArray, tuple[str, ...]]:
    """Codes and names of the groups that share the rows drawn by chance; a single one without a name if None."""
    if sensitive_features is None:
        return np.zeros(len(index), dtype=np.intp), ()
    groups = label_rows(sensitive_features, len(index), rows=SimpleNamespace(index=index))
    return groups.codes, groups.labels


def _refuse_repeated(index: pd.Index) -> None:
    if not index.is_unique:
        raise InputError(
            "the index has {label!r} more than once; outcomes come back by it, so reset_index() first",
            label=index[index.duplicated()][0],
        )


def _read_outcomes(outcomes: Any, index: pd.Index, name: str) -> FloatArray:
    """1, 0 or NaN for every row, from a series that may hold some of them in any order, or from one value per row."""
    if isinstance(outcomes, dict):
        outcomes = pd.Series(outcomes, dtype=object)
    if isinstance(outcomes, pd.DataFrame):
        raise InputError("{$name} is a frame; give its column of outcomes", name=name)
    if not isinstance(outcomes, pd.Series):
        if np.ndim(outcomes) != 1 or len(outcomes) != len(index):
            raise InputError(
                "{$name} must be a series on the index of the plan, or hold one value per row of X, ({n},)",
                name=name, n=len(index),
            )  # fmt: skip
        outcomes = pd.Series(np.asarray(outcomes, dtype=object), index=index)
    places = index.get_indexer(outcomes.index)
    if (places < 0).any():
        raise InputError(
            "{$name} has {label!r} in its index, which no row of the plan has", name=name,
            label=outcomes.index[int((places < 0).argmax())],
        )  # fmt: skip
    if not outcomes.index.is_unique:
        label = outcomes.index[outcomes.index.duplicated()][0]
        raise InputError("{$name} has row {label!r} more than once; keep one", name=name, label=label)
    given = outcomes.to_numpy(dtype=object)
    values, wrong = label_numbers(given)
    if wrong.any():
        at = int(wrong.argmax())
        raise InputError(
            "{$name} is {found!r} in row {label!r}; outcomes are 1 for an outlier, 0 for none, or missing",
            name=name, found=given[at], label=outcomes.index[at],
        )  # fmt: skip
    of_rows = np.full(len(index), np.nan)
    of_rows[places] = values
    return of_rows
