"""What the command line prints about a fit, and its summary."""

import json
import math
import platform
import sys
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
from evenout.cli.inputs import FitInputs
from evenout.cli.messages import one_line
from evenout.core.flags import beyond_equal_rates, flag_threshold, rate_ratio
from evenout.core.types import AnyArray, BoolArray, FloatArray
from evenout.estimator import FairOutlierEnsemble
from evenout.fitting.choose import DEFAULT_REDUCTION
from evenout.fitting.words import compared_words, probable_words
from evenout.groups.read import GroupProbabilities
from evenout.groups.rules import Groups
from evenout.metrics import average_precision, read_labels, roc_auc
from evenout.outcome import detection_verdict, flags_verdict
from evenout.storage.output import finite


@dataclass(frozen=True)
class BeforeAfter:
    """A figure of the base score (before) and of the fair score (after), with standard errors where known."""

    before: float
    after: float
    before_error: float | None = None
    after_error: float | None = None


@dataclass(frozen=True)
class Figures:
    """What a fitted model has reached.

    Attributes
    ----------
    request : dict
        ``bias_reduction``, ``flag_rate_ratio`` or ``alpha`` with what was asked for, ``judged_on`` and ``confidence``.
    request_met : bool
        Whether what is stated supports it.
    outcome : dict
        `evenout.outcome.Outcome`, and what it says in words.
    notions : tuple of str
        Notions of fairness that are pursued.
    groups, left_out_groups : dict of str to int
        Rows of each group that is compared, and of each that is too small for that.
    alpha : float
    gap_detected : bool
    gap_p_value : float
        Of "the groups have the same mean base score".
    gap_in_standard_deviations : float
        Largest difference of two groups' mean base scores, over the standard deviation of the base score.
    bias_reduction : float
        Share of the base score's bias that is gone on the rows that ``request["judged_on"]`` names.
    bias_reduction_interval : pair of float
        Its 95 % interval.
    unseen_estimate : {"everything refitted", "weights only"}
        What has not seen the rows that stand for unseen ones.
    bias_unseen, bias_training : BeforeAfter
        Scale-free bias, on unseen rows and on the training rows.
    bias_unseen_interval : dict of str to pair of float
        95 % intervals, ``before`` and ``after``.
    flag_rates : dict of str to BeforeAfter
        By group, of training rows.
    flag_rate_ratio, unflagged_rate_ratio : BeforeAfter
        Lowest over highest rate of being flagged, and of not being flagged, among training rows.
    flag_rate_ratio_unseen : BeforeAfter
        Lowest over highest flag rate on unseen rows.
    flag_rate_ratio_unseen_interval : pair of float
        95 % interval of the one after.
    flagged_in_groups : BeforeAfter
        Flagged rows of all groups that are compared.
    flagged_beyond_equal_rates : BeforeAfter
        How many of them are there beyond what equal rates would give.
    correlation : float
        Of base and fair score.
    """

    request: dict[str, Any]
    request_met: bool
    outcome: dict[str, Any]
    notions: tuple[str, ...]
    groups: dict[str, int]
    left_out_groups: dict[str, int]
    alpha: float
    gap_detected: bool
    gap_p_value: float
    gap_in_standard_deviations: float
    bias_reduction: float
    bias_reduction_interval: tuple[float, float]
    unseen_estimate: str
    bias_unseen: BeforeAfter
    bias_unseen_interval: dict[str, tuple[float, float]]
    bias_training: BeforeAfter
    flag_rates: dict[str, BeforeAfter]
    flag_rate_ratio: BeforeAfter
    unflagged_rate_ratio: BeforeAfter
    flag_rate_ratio_unseen: BeforeAfter
    flag_rate_ratio_unseen_interval: tuple[float, float]
    flagged_in_groups: BeforeAfter
    flagged_beyond_equal_rates: BeforeAfter
    correlation: float

    @classmethod
    def of(cls, model: FairOutlierEnsemble) -> "Figures":
        """From a fitted model."""
        path, alpha, names, rates = model.path_, model._result.choice.alpha, model.group_names_, model.flag_rates_
        flagged = rates * model.group_counts_[:, None]
        low, high = path.interval(alpha)
        compared = len(names) >= 2
        return cls(
            request=_request(model),
            request_met=bool(model.request_met_),
            outcome=model.outcome_.to_dict(),
            notions=tuple(path.fairness),
            groups=dict(zip(names, model.group_counts_.tolist(), strict=True)),
            left_out_groups=dict(model.left_out_groups_),
            alpha=float(model.alpha_),
            gap_detected=bool(model.gap_detected_),
            gap_p_value=float(path.gap_p_value),
            gap_in_standard_deviations=float(path.cross.whole.widest_gaps()[0]),
            bias_reduction=float(model.bias_reduction_),
            bias_reduction_interval=model.bias_reduction_interval_,
            unseen_estimate="everything refitted" if path.cross.refitted else "weights only",
            bias_unseen=BeforeAfter(
                path.target_bias("unseen"),
                float(path.bias(alpha, "unseen")),
                path.target_standard_error(),
                float(path.standard_error(alpha)),
            ),
            bias_unseen_interval={"before": path.target_interval(), "after": (float(low), float(high))},
            bias_training=BeforeAfter(path.target_bias("training"), float(path.bias(alpha, "training"))),
            flag_rates={name: BeforeAfter(*rates[g].tolist()) for g, name in enumerate(names)},
            flag_rate_ratio=_change(rate_ratio(rates) if compared else None),
            unflagged_rate_ratio=_change(rate_ratio(1.0 - rates) if compared else None),
            flag_rate_ratio_unseen=BeforeAfter(
                model._result.base_flag_ratio(model.contamination), float(model.flag_rate_ratio_)
            ),
            flag_rate_ratio_unseen_interval=model.flag_rate_ratio_interval_,
            flagged_in_groups=_change(flagged.sum(axis=0)),
            flagged_beyond_equal_rates=_change(beyond_equal_rates(flagged, model.group_counts_)),
            correlation=float(path.correlation(alpha)),
        )

    @property
    def bias_shown(self) -> BeforeAfter:
        """``bias_unseen`` within its intervals: an estimate without bias may be below 0, where no gap can be."""
        ends = self.bias_unseen_interval
        return BeforeAfter(
            max(self.bias_unseen.before, ends["before"][0]), max(self.bias_unseen.after, ends["after"][0])
        )

    @property
    def flags_verdict(self) -> str:
        """See `evenout.outcome.flags_verdict`; nothing where the scores are the base scores."""
        ratio = self.flag_rate_ratio_unseen
        return flags_verdict(ratio.before, ratio.after) if self.correlation < 1.0 - 1e-12 else ""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data; a number that does not exist is None."""
        return finite(asdict(self))


def labels_learnt(model: FairOutlierEnsemble) -> dict[str, Any] | None:
    """What labels have taught the base score; None where it was not to learn.

    Rows with a label, outliers among them, the weight of what was learnt, and the bias of the base score before and
    after.
    """
    stack, (before, after) = model._result.scores.stack, model.label_gap_
    if stack is None:
        return None
    counts = {"known": stack.n_labels, "outliers": stack.n_positive}
    return counts | {"weight": model.label_weight_, "bias_before": before, "bias_after": after}


def _change(pair: FloatArray | None) -> BeforeAfter:
    return BeforeAfter(*(np.full(2, np.nan) if pair is None else pair).tolist())


def _request(model: FairOutlierEnsemble) -> dict[str, Any]:
    """The one way of the three in which was asked."""
    ways = {name: getattr(model, name) for name in ("bias_reduction", "flag_rate_ratio", "alpha")}
    asked = {name: float(value) for name, value in ways.items() if value is not None}
    asked = asked or {"bias_reduction": DEFAULT_REDUCTION}
    return {**asked, "judged_on": model.judged_on, "confidence": model.confidence}


_NAMED = 5  # small groups that are named
_NAME = 40  # characters of a name
_FEATURES = 12  # that are named
_NOTES = 20  # columns of which is told what was done with them


def gap_sentence(outcome: Figures) -> str:
    """How large the gap was: in standard deviations and in people."""
    apart = outcome.gap_in_standard_deviations
    if math.isnan(apart):
        return ""
    beyond, flagged = outcome.flagged_beyond_equal_rates, outcome.flagged_in_groups
    return (
        f"The groups' mean base scores lie up to {apart:.2f} standard deviations apart. In training, "
        f"{beyond.before:,.0f} of {flagged.before:,.0f} flagged people are there beyond what equal rates would give; "
        f"after: {beyond.after:,.0f} of {flagged.after:,.0f}."
    )


def request_sentence(outcome: Figures) -> str:
    """What came of the request, how sure that is, and whether it supports what was asked for."""
    if len(outcome.groups) < 2:
        return "Fewer than two groups have enough rows to be compared: the scores are the base scores."
    return str(outcome.outcome["words"])


def resemblance_sentence(prices: dict[str, float]) -> str:
    """What looking like a group costs, where the score is corrected by that.

    >>> resemblance_sentence({"f": 0.02, "m": -0.02})
    'Taken off for looking like a group, whoever belongs to it: f 0.0200, m -0.0200.'
    """
    first = sorted(prices, key=lambda name: -abs(prices[name]))[:_NAMED]
    named = [f"{_short(name)} {prices[name]:.4f}" for name in prices if name in first]
    named += [f"{len(prices) - _NAMED} more in summary.json"] if len(prices) > _NAMED else []
    return f"Taken off for looking like a group, whoever belongs to it: {', '.join(named)}." if prices else ""


def small_groups_sentence(outcome: Figures) -> str:
    """The groups that are left out of every comparison."""
    small = outcome.left_out_groups
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
    gap = f"bias of the base score {labels['bias_before']:.4f} before labels, {labels['bias_after']:.4f} after"
    return f"{told}; {gap}."


def rows_words(outcome: Figures) -> str:
    """Which rows the bias is stated for, in a few words."""
    return "unseen rows" if outcome.unseen_estimate == "everything refitted" else "unseen by the weights"


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


@dataclass(frozen=True)
class FitSummary:
    """One fit.

    Attributes
    ----------
    input, model : dict
        Name, SHA-256 and shape of the file that came in; name and SHA-256 of the model that went out.
    settings : dict
        Every argument of the ensemble.
    columns : dict
        ``features``, ``sensitive``, ``given`` and ``clusters``, by name.
    column_notes : dict of str to str
        What was done with each column that was not taken as it is.
    gives_group_away : dict of str to float
        Features that tell the group, and in which share of the rows.
    versions : dict
    outcome : Figures
    weights : dict of str to float
        By detector.
    rank_correlation : float
        Spearman's, of base and fair score.
    flagged, flagged_kept : int
        Rows flagged by the fair score, and those of them that the base score flags too.
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
    """

    input: dict[str, Any]
    model: dict[str, Any]
    settings: dict[str, Any]
    columns: dict[str, list[str]]
    column_notes: dict[str, str]
    gives_group_away: dict[str, float]
    versions: dict[str, str]
    outcome: Figures
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

    def to_json(self) -> str:
        """One JSON object, what came of the fit among the rest; a number that does not exist is null."""
        record = asdict(self)
        record |= record.pop("outcome")
        return json.dumps(finite(record), indent=2, ensure_ascii=False)


def summarise(
    inputs: FitInputs, pipeline: Pipeline, gives_group_away: dict[str, float], model_sha256: str
) -> FitSummary:
    """Collect the figures of a fitted pipeline of table and ensemble."""
    model: evenout.FairOutlierEnsemble = pipeline["ensemble"]
    base, fair = model.target_, model.outlier_scores_
    return FitSummary(
        input={"name": inputs.name, "sha256": inputs.sha256, "rows": len(base)},
        model={"file": "model.skops", "sha256": model_sha256},
        settings=plain_settings(model),
        columns={
            "features": pipeline["table"].columns_used,
            "sensitive": list(getattr(inputs.sensitive, "names", getattr(inputs.sensitive, "columns", ()))),
            "given": [] if inputs.given is None else [str(name) for name in inputs.given.columns],
            "clusters": [] if inputs.clusters is None else [str(inputs.clusters.name)],
        },
        column_notes=pipeline["table"].notes_,
        gives_group_away=gives_group_away,
        versions=versions(),
        outcome=Figures.of(model),
        weights=dict(zip(model.detector_names_, model.weights_.tolist(), strict=True)),
        **moved(inputs.labels, base, fair, model.contamination),
        resemblance=dict(model.lambda_),
        labels=labels_learnt(model),
        attribute_bias={name: (bias.before, bias.after) for name, bias in model.attribute_bias_.items()},
        probable_bound=inputs.sensitive.bound() if isinstance(inputs.sensitive, GroupProbabilities) else None,
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
_OUTCOMES = (
    "Group bias, known outcomes",
    "Group bias: mean squared gap between groups' mean scores among rows of known outcome, over the variance of all.",
)
_BIAS = {
    "demographic_parity": (
        "Group bias",
        "Group bias: mean squared gap between groups' mean scores, over the variance.",
    ),
    "individual": (
        "Bias between similar rows",
        "Bias: mean squared gap between similar rows of two groups, over the variance.",
    ),
    "both": (
        "Bias, all notions",
        "Bias: mean over the notions of the share that is left of the base score's.",
    ),
    **dict.fromkeys(("equal_opportunity", "equalized_odds", "equal_false_alarms"), _OUTCOMES),
}


def show_fit(summary: FitSummary, out: str, files: list[str]) -> None:
    """What a person wants to know: is it fairer, for whom, and at which price."""
    console, width = terminal()
    sensitive = " and ".join(summary.columns["sensitive"])
    n = len(summary.outcome.groups)
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


def before_after(rows: list[Row], label_width: int) -> Table:
    """A table of figures before and after."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=label_width)
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
    named = {"AUC": "auc", "Average precision": "average_precision"}
    named |= {"Known outliers among the flagged": "precision_flagged"}
    changes = [(label, found[name]) for label, name in named.items()]
    return [(label, *_figures(change, "{:.3f}")) for label, change in changes if change is not None]


def _table(summary: FitSummary, label_width: int) -> Table:
    outcome, (name, _) = summary.outcome, _bias(summary)
    low, high = (_interval(outcome.bias_unseen_interval[when]) for when in ("before", "after"))
    rows: list[Row] = [(f"{name}, {rows_words(outcome)}", *_figures(outcome.bias_shown, "{:.4f}"))]
    rows.append(("  95% interval", low, high))
    if outcome.request["judged_on"] == "training":
        rows.append((f"{name}, training rows", *_figures(outcome.bias_training, "{:.4f}")))
    ratio, (least, most) = outcome.flag_rate_ratio_unseen, outcome.flag_rate_ratio_unseen_interval
    rows.append((f"Lowest / highest flag rate, {rows_words(outcome)}", *_figures(ratio, "{:.2f}")))
    rows.append(("  95% interval", "", "–" if math.isnan(least) else f"{least:.2f} to {most:.2f}"))
    rows += flag_rows(outcome.groups, outcome.flag_rates, where=" in training")
    return before_after([*rows, *detection_rows(vars(summary))], label_width)


def _sentences(summary: FitSummary) -> list[str]:
    replaced = f"{summary.flagged - summary.flagged_kept:,} of {summary.flagged:,} flagged people replaced"
    close = f"correlation with the base score {summary.outcome.correlation:.2f}"
    auc = "" if summary.auc is None else f", AUC {summary.auc.after - summary.auc.before:+.3f}"
    return [
        summary.outcome.flags_verdict,
        "" if summary.auc is None else detection_verdict(summary.auc.before, summary.auc.after),
        labels_sentence(summary.labels),
        *compared_words(
            summary.outcome.notions,
            Groups(**summary.settings["groups"]),
            summary.columns["sensitive"],
            summary.columns["given"],
        ),
        *_attributes(summary.attribute_bias),
        _probable(summary.probable_bound),
        small_groups_sentence(summary.outcome),
        _bias(summary)[1],
        gap_sentence(summary.outcome),
        request_sentence(summary.outcome),
        resemblance_sentence(summary.resemblance),
        f"Price: {replaced}, {close}{auc}.",
    ]


def _attributes(biases: dict[str, tuple[float, float]]) -> list[str]:
    """What becomes of each attribute, where there are several."""
    found = [f"{name} {before:.4f}, after {after:.4f}" for name, (before, after) in biases.items()]
    return [one_line(f"Bias of each attribute: {'; '.join(found)}.")] if len(found) > 1 else []


def _probable(bound: dict[str, float] | None) -> str:
    if bound is None:
        return ""
    note = one_line(probable_words(bound))
    return f"{note[0].upper()}{note[1:]}. Flag rates count each row by its probabilities."


def _bias(summary: FitSummary) -> tuple[str, str]:
    """The bias that was reduced, in a few words and in more."""
    notions = summary.outcome.notions
    return _BIAS[notions[0] if len(notions) == 1 else "both"]


def _figures(change: BeforeAfter, style: str) -> tuple[str, str]:
    before, after = ("–" if math.isnan(x) else style.format(x) for x in (change.before, change.after))
    return before, after


def _interval(ends: tuple[float, float]) -> str:
    return "–" if math.isnan(ends[0]) else f"{ends[0]:.4f} to {ends[1]:.4f}"
