"""What a fit achieved and what it cost, as numbers: read by the table on the terminal and by ``summary.json``."""

import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.pipeline import Pipeline

import evenout
from evenout.cli.inputs import FitInputs
from evenout.cli.outcome import BeforeAfter, Figures, labels_learnt
from evenout.core.flags import flag_threshold
from evenout.core.types import AnyArray, BoolArray, FloatArray
from evenout.inputs.probable import GroupProbabilities
from evenout.metrics import average_precision, read_labels, roc_auc
from evenout.storage.output import finite

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
        settings=model.get_params(deep=False),
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
