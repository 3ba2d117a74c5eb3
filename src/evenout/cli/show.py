"""What the command line prints about a fit, and its summary."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text
from scipy.stats import spearmanr
from sklearn.pipeline import Pipeline

import evenout
from evenout.cli.messages import one_line
from evenout.core.flags import flag_threshold
from evenout.core.notions import Notion
from evenout.core.registry import NOTIONS
from evenout.core.types import AnyArray, BoolArray, FloatArray
from evenout.groups.rules import Groups
from evenout.metrics import average_precision, read_labels, roc_auc
from evenout.outcome import (
    BeforeAfter,
    Figures,
    compared_words,
    detection_verdict,
    labels_learnt,
    labels_words,
    percent,
    probable_words,
    resemblance_words,
    short_name,
    with_interval,
)
from evenout.pages import versions
from evenout.storage.output import finite

SCHEMA = 1  # of summary.json, counted up when a key changes its meaning or goes
LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow", "skops")
_FEATURES = 12  # that are named
_EVEN = 0.8  # a ratio of flag rates below calls for more
_NOTES = 20  # columns of which is told what was done with them
_GROUPS = 12  # shown; the others are in summary.json
_NUMBERS = 36  # columns of a terminal that the two columns of numbers may take


def next_sentence(figures: Figures, settings: Mapping[str, Any], *, known: bool) -> str:
    """What to try next; ``known``: whether labels are there."""
    ratio, ideas = figures.flag_rate_ratio_unseen.after, []
    if settings["flag_rate_ratio"] is None and ratio < _EVEN and settings["fairness"] == "demographic_parity":
        ideas.append(f"--flag-rate-ratio {_EVEN:g} for even flags")
    if not settings["learn"]:
        ideas.append("--learn to use the labels" if known else "--label COL --learn if some outliers are known")
    return f"Try next: {'; '.join(ideas)}." if ideas else ""


@dataclass(frozen=True)
class FitSummary:
    """One fit, on a file or over a folder.

    Attributes
    ----------
    input : dict
        ``name``, ``sha256`` (None for a folder), ``rows``, and ``reference_rows``, those of them in memory.
    model : dict
        ``file`` and ``sha256`` of the model that went out.
    settings : dict
        Every argument of the ensemble.
    columns : dict
        ``features``, ``sensitive``, ``given`` and ``clusters``, by name.
    column_notes : dict of str to str
        What was done with each column that was not taken as it is.
    gives_group_away : dict of str to float
        Features that tell the group, and in which share of the rows.
    versions : dict
    figures : Figures
    weights : dict of str to float
        By detector.
    rank_correlation : float
        Spearman's, of base and fair score.
    flagged, flagged_kept : int
        Rows in memory that the fair score flags, and those of them that the base score flags too.
    resemblance : dict of str to float
        What is taken off for looking like each group, where the score is corrected by that.
    auc, average_precision, precision_flagged : BeforeAfter or None
        Where labels are known, and nothing has learnt from them; the last is the share of outliers among the flagged.
    labels : dict or None
        What was learnt from, see `labels_learnt`.
    attribute_bias : dict of str to pair of float
        Bias before and after of each attribute that is compared by itself.
    probable_bound : dict of str to float, or None
        Where groups are known by probability, how far the mean score of each may be off, in standard deviations.
    rank_error : float
        What ranks may be off over a folder, as a share of the rows; 0 in memory.
    """

    input: dict[str, Any]
    model: dict[str, Any]
    settings: dict[str, Any]
    columns: dict[str, list[str]]
    column_notes: dict[str, str]
    gives_group_away: dict[str, float]
    versions: dict[str, str]
    figures: Figures
    weights: dict[str, float]
    rank_correlation: float
    flagged: int
    flagged_kept: int
    resemblance: dict[str, float]
    auc: BeforeAfter | None
    average_precision: BeforeAfter | None
    precision_flagged: BeforeAfter | None
    labels: dict[str, Any] | None
    attribute_bias: dict[str, tuple[float, float]]
    probable_bound: dict[str, float] | None
    rank_error: float

    @property
    def words(self) -> list[str]:
        """What came of the fit: what speaks against it, whom it compares, what was reached, and the price."""
        figures, auc = self.figures, self.auc
        biases = [f"{name} {before:.2f}, after {after:.2f}" for name, (before, after) in self.attribute_bias.items()]
        bound = "" if self.probable_bound is None else probable_words(self.probable_bound)
        replaced = f"{self.flagged - self.flagged_kept:,} of {self.flagged:,} flagged people replaced"
        lost = "" if auc is None else f", AUC {round(auc.after - auc.before, 2) + 0.0:+.2f}"
        return [
            figures.flags_verdict,
            "" if auc is None else detection_verdict(auc.before, auc.after),
            labels_words(self.labels),
            *compared_words(
                figures.notions, Groups(**self.settings["groups"]), self.columns["sensitive"], self.columns["given"]
            ),
            f"Bias of each attribute: {'; '.join(biases)}." if len(biases) > 1 else "",
            f"{bound[0].upper()}{bound[1:]}. Flag rates count each row by its probabilities." if bound else "",
            *figures.words,
            resemblance_words(self.resemblance),
            f"Price: {replaced}, correlation with the base score {figures.correlation:.2f}{lost}.",
            next_sentence(figures, self.settings, known=auc is not None),
        ]

    def to_json(self) -> str:
        """One JSON object, what came of the fit among the rest; a number that does not exist is null."""
        record = {"schema": SCHEMA, **asdict(self)}
        record |= record.pop("figures") | {"outcome": self.figures.outcome.to_dict()}
        return json.dumps(finite(record), indent=2, ensure_ascii=False)


def summarise(
    pipeline: Pipeline, gives_group_away: dict[str, float], model_sha256: str, *, source: dict[str, Any],
    columns: dict[str, list[str]], labels: Any = None, probable_bound: dict[str, float] | None = None,
) -> FitSummary:  # fmt: skip
    """Collect the figures of a fitted pipeline of table and ensemble.

    ``source`` has the name and the SHA-256 of what was read, and ``columns`` those that are no features, by role.
    """
    model: evenout.FairOutlierEnsemble = pipeline["ensemble"]
    base, fair = model.target_, model.outlier_scores_
    return FitSummary(
        input={**source, "rows": model.n_rows_, "reference_rows": len(base)},
        model={"file": "model.skops", "sha256": model_sha256},
        settings=plain_settings(model),
        columns={"features": pipeline["table"].columns_used, **columns},
        column_notes=pipeline["table"].notes_,
        gives_group_away=gives_group_away,
        versions=versions("python", *LIBRARIES),
        figures=Figures.of(model),
        weights=dict(zip(model.detector_names_, model.weights_.tolist(), strict=True)),
        **moved(labels, base, fair, model.contamination),
        resemblance=dict(model.lambda_),
        labels=labels_learnt(model),
        attribute_bias={name: (bias.before, bias.after) for name, bias in model.attribute_bias_.items()},
        probable_bound=probable_bound,
        rank_error=model.rank_error_,
    )


def plain_settings(model: Any) -> dict[str, Any]:
    """The parameters of an estimator; those of an object in it as a dict."""
    settings = model.get_params(deep=False)
    if isinstance(settings.get("fairness"), dict):  # a notion may be an object
        weights = settings["fairness"].items()
        settings["fairness"] = {each if isinstance(each, str) else repr(each): weight for each, weight in weights}
    return {name: plain_settings(value) if hasattr(value, "get_params") else value for name, value in settings.items()}


def moved(labels: Any, base: FloatArray, fair: FloatArray, contamination: float) -> dict[str, Any]:
    """How far a fair score is from the base score, and what that does to detection, where labels are known."""
    flags = [scores > flag_threshold(scores, contamination) for scores in (base, fair)]
    varies = np.ptp(base) > 0 and np.ptp(fair) > 0  # or there is no correlation

    def precision(flagged: BoolArray) -> float:
        return float(read_labels(labels, len(flagged))[flagged].mean()) if flagged.any() else float("nan")

    def evaluated(measure: Any, scores: tuple[AnyArray, AnyArray] | list[BoolArray]) -> BeforeAfter | None:
        return None if labels is None else BeforeAfter(*(float(measure(each)) for each in scores))

    return {
        "rank_correlation": float(spearmanr(base, fair).statistic) if varies else float("nan"),
        "flagged": int(flags[1].sum()),
        "flagged_kept": int((flags[0] & flags[1]).sum()),
        "auc": evaluated(partial(roc_auc, labels), (base, fair)),
        "average_precision": evaluated(partial(average_precision, labels), (base, fair)),
        "precision_flagged": evaluated(precision, flags),
    }


def show_fit(summary: FitSummary, out: str, files: list[str]) -> None:
    """What was uneven, what is now, what it cost, where to look and what to try next."""
    figures = summary.figures
    bias = (NOTIONS[figures.notions[0]] if len(figures.notions) == 1 else Notion).label
    where = "unseen rows" if figures.unseen_estimate == "everything refitted" else "unseen by the weights"
    shown, ends = figures.bias_shown, figures.bias_unseen_interval
    rows = [
        (f"{bias}, {where}", with_interval(shown.before, ends["before"]), with_interval(shown.after, ends["after"]))
    ]
    if figures.outcome.judged_on == "training":
        rows.append((f"{bias}, training rows", *_both(figures.bias_training)))
    ratio = figures.flag_rate_ratio_unseen
    after = with_interval(ratio.after, figures.flag_rate_ratio_unseen_interval)
    rows.append((f"Lowest / highest flag rate, {where}", with_interval(ratio.before), after))
    rows += flag_rows(figures.groups, figures.flag_rates, " in training")
    show_results({**asdict(summary), "groups": figures.groups}, rows, summary.words, out, files, "(95% interval)")


Row = tuple[str, str, str]  # what, before, after


def show_results(
    summary: Mapping[str, Any], rows: list[Row], sentences: list[str], out: str, files: list[str], head: str = ""
) -> None:
    """Print a table of figures before and after, sentences about them, and what was done with columns.

    ``summary`` has names, counts and detection; ``head`` stands over the names of the figures.
    """
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(head, no_wrap=True, overflow="ellipsis", max_width=max(20, console.width - _NUMBERS))
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    detection = {"AUC": summary["auc"], "Known outliers among the flagged": summary["precision_flagged"]}
    for label, before, after in [*rows, *((name, *_both(each)) for name, each in detection.items() if each)]:
        table.add_row(Text(one_line(label)), before, after)
    n, names = len(summary["groups"]), summary["columns"]["features"]
    counted = f"{summary['input']['rows']:,} rows, {n} group{'' if n == 1 else 's'}"
    console.print(one_line(f"{summary['input']['name']}: {counted} by {' and '.join(summary['columns']['sensitive'])}"))
    console.print(table)
    more = [f"{len(names) - _FEATURES} more in summary.json"] if len(names) > _FEATURES else []
    features = f"Features: {', '.join([*map(short_name, names[:_FEATURES]), *more])}." if names else ""
    notes = [f"Column {name!r}: {note}" for name, note in summary["column_notes"].items()]
    hidden = [f"... {len(notes) - _NOTES} more: summary.json"] if len(notes) > _NOTES else []
    for sentence in filter(None, [*sentences, features, *notes[:_NOTES], *hidden]):
        console.print(one_line(sentence))
    console.print(one_line(f"Written to {out}: {', '.join(files)}"), soft_wrap=True)


def flag_rows(groups: dict[str, int], rates: dict[str, BeforeAfter], where: str = "") -> list[Row]:
    """Flag rates of the largest groups; ``where`` says of which rows."""
    largest = sorted(groups, key=lambda group: -groups[group])[:_GROUPS]
    shown = [(name, rate) for name, rate in rates.items() if name in largest]
    rows = [(f"Flagged{where}: {name}", percent(rate.before, 1), percent(rate.after, 1)) for name, rate in shown]
    hidden = len(groups) - _GROUPS
    return [*rows, (f"... {hidden} smaller groups: summary.json", "", "")] if hidden > 0 else rows


def _both(change: Any) -> tuple[str, str]:
    figures = change if isinstance(change, dict) else vars(change)
    return with_interval(figures["before"]), with_interval(figures["after"])
