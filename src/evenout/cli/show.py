"""What the command line prints about a fit, and its summary."""

import json
import math
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
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
from evenout.figures import BeforeAfter, Figures, labels_learnt
from evenout.fitting.words import compared_words, probable_words
from evenout.groups.rules import Groups
from evenout.metrics import average_precision, read_labels, roc_auc
from evenout.outcome import detection_verdict
from evenout.storage.output import finite

_NAMED = 5  # small groups that are named
_NAME = 40  # characters of a name
_FEATURES = 12  # that are named
_EVEN = 0.8  # a ratio of flag rates below calls for more
_NOTES = 20  # columns of which is told what was done with them


def gap_sentence(figures: Figures) -> str:
    """How large the gap was, in people."""
    if math.isnan(figures.gap_in_standard_deviations):
        return ""
    beyond, flagged = figures.flagged_beyond_equal_rates, figures.flagged_in_groups
    before = f"{beyond.before:,.0f} of {flagged.before:,.0f} flagged people were beyond equal rates"
    return f"In training, {before}; now {beyond.after:,.0f}."


def next_sentence(figures: Figures, settings: Mapping[str, Any], *, known: bool) -> str:
    """What to try next; ``known``: whether labels are there."""
    ratio, found = figures.flag_rate_ratio_unseen.after, []
    if settings["flag_rate_ratio"] is None and ratio < _EVEN and settings["fairness"] == "demographic_parity":
        found.append(f"--flag-rate-ratio {_EVEN:g} for even flags")
    if not settings["learn"]:
        found.append("--learn to use the labels" if known else "--label COL --learn if some outliers are known")
    return f"Try next: {'; '.join(found)}." if found else ""


def request_sentence(figures: Figures) -> str:
    """What came of the request, how sure that is, and whether it supports what was asked for."""
    if len(figures.groups) < 2:
        return "Fewer than two groups have enough rows to be compared: the scores are the base scores."
    return figures.outcome.words


def resemblance_sentence(prices: dict[str, float]) -> str:
    """What looking like a group costs, where the score is corrected by that.

    >>> resemblance_sentence({"f": 0.02, "m": -0.02})
    'Taken off for looking like a group, whoever belongs to it: f 0.0200, m -0.0200.'
    """
    first = sorted(prices, key=lambda name: -abs(prices[name]))[:_NAMED]
    named = [f"{_short(name)} {prices[name]:.4f}" for name in prices if name in first]
    named += [f"{len(prices) - _NAMED} more in summary.json"] if len(prices) > _NAMED else []
    return f"Taken off for looking like a group, whoever belongs to it: {', '.join(named)}." if prices else ""


def small_groups_sentence(figures: Figures) -> str:
    """The groups that are left out of every comparison."""
    small = figures.left_out_groups
    if not small:
        return ""
    first = sorted(small, key=lambda name: -small[name])[:_NAMED]
    named = [f"{_short(name)} ({small[name]:,})" for name in first]
    named += [f"{len(small) - _NAMED} more in summary.json"] if len(small) > _NAMED else []
    return f"Too few rows to compare: {', '.join(named)}."


def labels_sentence(labels: dict[str, Any] | None) -> str:
    """How much the base score has learnt from labels, and what that did to its bias."""
    if labels is None:
        return ""
    told = f"Labels: {labels['known']:,} rows, {labels['outliers']:,} of them outliers; weight {labels['weight']:.2f}"
    if not labels["weight"] > 0:
        return f"{told}: too few, or they say nothing, so it is as without."
    if labels["bias_before"] is None or math.isnan(labels["bias_before"]):
        return f"{told}."
    gap = f"bias of the base score {labels['bias_before']:.2f} before labels, {labels['bias_after']:.2f} after"
    return f"{told}; {gap}."


def rows_words(figures: Figures) -> str:
    """Which rows the bias is stated for, in a few words."""
    return "unseen rows" if figures.unseen_estimate == "everything refitted" else "unseen by the weights"


def _short(name: str) -> str:
    text = one_line(name)
    return text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"


def features_line(names: list[str]) -> str:
    """The columns that serve as features, the first ones by name.

    >>> features_line(["age", "income"])
    'Features: age, income.'
    """
    more = [f"{len(names) - _FEATURES} more in summary.json"] if len(names) > _FEATURES else []
    return f"Features: {', '.join([*map(_short, names[:_FEATURES]), *more])}." if names else ""


def notes_lines(notes: dict[str, str]) -> list[str]:
    """What was done with columns that were not taken as they are, a line for each of the first ones.

    >>> notes_lines({"id": "left out, a running number, different in every row"})
    ["Column 'id': left out, a running number, different in every row"]
    """
    lines = [one_line(f"Column {name!r}: {note}") for name, note in [*notes.items()][:_NOTES]]
    return [*lines, f"... {len(notes) - _NOTES} more: summary.json"] if len(notes) > _NOTES else lines


_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow", "skops")


SCHEMA = 1  # of summary.json, counted up when a key changes its meaning or goes


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

    def to_json(self) -> str:
        """One JSON object, what came of the fit among the rest; a number that does not exist is null."""
        record = {"schema": SCHEMA, **asdict(self)}
        record |= record.pop("figures") | {"outcome": self.figures.outcome.to_dict()}
        return json.dumps(finite(record), indent=2, ensure_ascii=False)


def summarise(
    pipeline: Pipeline,
    source: dict[str, Any],
    columns: dict[str, list[str]],
    gives_group_away: dict[str, float],
    model_sha256: str,
    *,
    labels: Any = None,
    probable_bound: dict[str, float] | None = None,
) -> FitSummary:
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
        versions=versions(),
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
    found = model.get_params(deep=False)
    if isinstance(found.get("fairness"), dict):  # a notion may be an object
        found["fairness"] = {
            notion if isinstance(notion, str) else repr(notion): w for notion, w in found["fairness"].items()
        }
    return {name: plain_settings(value) if hasattr(value, "get_params") else value for name, value in found.items()}


def versions() -> dict[str, str]:
    """Of evenout, Python and the libraries that figures depend on."""
    named = {"evenout": evenout.__version__, "python": platform.python_version()}
    return named | {name: version(name) for name in _LIBRARIES}


def moved(labels: Any, base: FloatArray, fair: FloatArray, contamination: float) -> dict[str, Any]:
    """How far a fair score is from the base score, and what that does to detection, where labels are known."""
    flags = [scores > flag_threshold(scores, contamination) for scores in (base, fair)]
    return {
        "rank_correlation": _rank_correlation(base, fair),
        "flagged": int(flags[1].sum()),
        "flagged_kept": int((flags[0] & flags[1]).sum()),
        "auc": _evaluated(roc_auc, labels, base, fair),
        "average_precision": _evaluated(average_precision, labels, base, fair),
        "precision_flagged": _evaluated(_precision, labels, *flags),
    }


def _rank_correlation(base: FloatArray, fair: FloatArray) -> float:
    """NaN, without a warning, for a constant score."""
    constant = not (np.ptp(base) > 0 and np.ptp(fair) > 0)
    return float("nan") if constant else float(spearmanr(base, fair).statistic)


def _precision(labels: Any, flagged: BoolArray) -> float:
    """Share of known outliers among the flagged."""
    return float(read_labels(labels, len(flagged))[flagged].mean()) if flagged.any() else float("nan")


def _evaluated(measure: Any, labels: Any, base: AnyArray, fair: AnyArray) -> BeforeAfter | None:
    return None if labels is None else BeforeAfter(float(measure(labels, base)), float(measure(labels, fair)))


_GROUPS = 12  # shown; the others are in summary.json
_NUMBERS = 36  # columns of a terminal that the two columns of numbers may take


def show_fit(summary: FitSummary, out: str, files: list[str]) -> None:
    """What was uneven, what is now, what it cost, where to look and what to try next."""
    console, width = terminal()
    sensitive = " and ".join(summary.columns["sensitive"])
    n = len(summary.figures.groups)
    rows = f"{summary.input['rows']:,} rows, {n} group{'' if n == 1 else 's'} by {sensitive}"
    console.print(one_line(f"{summary.input['name']}: {rows}"))
    console.print(_table(summary, width))
    features = features_line(summary.columns["features"])
    for sentence in filter(None, [*_sentences(summary), features, *notes_lines(summary.column_notes)]):
        console.print(sentence)
    console.print(one_line(f"Written to {out}: {', '.join(files)}"), soft_wrap=True)


def terminal() -> tuple[Console, int]:
    """Where results are printed, and how wide labels may be there."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    return console, max(20, console.width - _NUMBERS)


Row = tuple[str, str, str]  # what, before, after


def before_after(rows: list[Row], label_width: int, head: str = "") -> Table:
    """A table of figures before and after, ``head`` over their names."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(head, no_wrap=True, overflow="ellipsis", max_width=label_width)
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    for label, before, after in rows:
        indent = label[: len(label) - len(label.lstrip())]
        table.add_row(Text(indent + one_line(label)), before, after)
    return table


def flag_rows(
    groups: dict[str, int], rates: dict[str, BeforeAfter], ratio: BeforeAfter | None = None, where: str = ""
) -> list[Row]:
    """Flag rates of the largest groups, and the lowest over the highest; ``where`` says of which rows."""
    largest = sorted(groups, key=lambda group: -groups[group])[:_GROUPS]
    rows = [
        (f"Flagged{where}: {group}", *_figures(rate, "{:.1%}")) for group, rate in rates.items() if group in largest
    ]
    if len(groups) > _GROUPS:
        rows.append((f"... {len(groups) - _GROUPS} smaller groups: summary.json", "", ""))
    return rows if ratio is None else [*rows, ("Lowest / highest flag rate", *_figures(ratio, "{:.2f}"))]


def detection_rows(found: dict[str, BeforeAfter | None]) -> list[Row]:
    """What is known of detection, where labels are."""
    named = {"AUC": "auc", "Known outliers among the flagged": "precision_flagged"}
    changes = [(label, found[name]) for label, name in named.items()]
    return [(label, *_figures(change, "{:.2f}")) for label, change in changes if change is not None]


def _table(summary: FitSummary, label_width: int) -> Table:
    figures, name, where = summary.figures, _bias(summary), rows_words(summary.figures)
    ends = figures.bias_unseen_interval
    bias = (
        _with_interval(figures.bias_shown.before, ends["before"]),
        _with_interval(figures.bias_shown.after, ends["after"]),
    )
    rows: list[Row] = [(f"{name}, {where}", *bias)]
    if figures.outcome.judged_on == "training":
        rows.append((f"{name}, training rows", *_figures(figures.bias_training, "{:.2f}")))
    ratio = figures.flag_rate_ratio_unseen
    after = _with_interval(ratio.after, figures.flag_rate_ratio_unseen_interval)
    rows.append((f"Lowest / highest flag rate, {where}", _figures(ratio, "{:.2f}")[0], after))
    rows += flag_rows(figures.groups, figures.flag_rates, where=" in training")
    return before_after([*rows, *detection_rows(vars(summary))], label_width, "(95% interval)")


def _sentences(summary: FitSummary) -> list[str]:
    replaced = f"{summary.flagged - summary.flagged_kept:,} of {summary.flagged:,} flagged people replaced"
    close = f"correlation with the base score {summary.figures.correlation:.2f}"
    auc = "" if summary.auc is None else f", AUC {summary.auc.after - summary.auc.before:+.2f}"
    return [
        summary.figures.flags_verdict,
        "" if summary.auc is None else detection_verdict(summary.auc.before, summary.auc.after),
        labels_sentence(summary.labels),
        *compared_words(
            summary.figures.notions,
            Groups(**summary.settings["groups"]),
            summary.columns["sensitive"],
            summary.columns["given"],
        ),
        *_attributes(summary.attribute_bias),
        _probable(summary.probable_bound),
        small_groups_sentence(summary.figures),
        gap_sentence(summary.figures),
        request_sentence(summary.figures),
        resemblance_sentence(summary.resemblance),
        f"Price: {replaced}, {close}{auc}.",
        next_sentence(summary.figures, summary.settings, known=summary.auc is not None),
    ]


def _attributes(biases: dict[str, tuple[float, float]]) -> list[str]:
    """What becomes of each attribute, where there are several."""
    found = [f"{name} {before:.2f}, after {after:.2f}" for name, (before, after) in biases.items()]
    return [one_line(f"Bias of each attribute: {'; '.join(found)}.")] if len(found) > 1 else []


def _probable(bound: dict[str, float] | None) -> str:
    if bound is None:
        return ""
    note = one_line(probable_words(bound))
    return f"{note[0].upper()}{note[1:]}. Flag rates count each row by its probabilities."


def _bias(summary: FitSummary) -> str:
    """The bias that was reduced, in a few words."""
    notions = summary.figures.notions
    return (NOTIONS[notions[0]] if len(notions) == 1 else Notion).label


def _figures(change: BeforeAfter, style: str) -> tuple[str, str]:
    before, after = ("–" if math.isnan(x) else style.format(x) for x in (change.before, change.after))
    return before, after


def _with_interval(value: float, ends: tuple[float, float]) -> str:
    """A figure and its 95 % interval."""
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if math.isnan(ends[0]) else f"{value:.2f} ({ends[0]:.2f}–{ends[1]:.2f})"
