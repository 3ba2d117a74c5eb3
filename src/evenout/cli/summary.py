"""What a fit achieved and what it cost, as numbers: read by the table on the terminal and by ``summary.json``."""

import json
import math
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score
from sklearn.pipeline import Pipeline

import evenout
from evenout.cli.inputs import Inputs
from evenout.core.flags import flag_rates, flag_threshold, rate_ratio
from evenout.core.types import FloatArray
from evenout.groups import Groups
from evenout.metrics import roc_auc

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow", "skops")


@dataclass(frozen=True)
class Change:
    """A figure of the base score (before) and of the fair score (after), with standard errors where known."""

    before: float
    after: float
    before_error: float | None = None
    after_error: float | None = None


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
        ``features`` and ``sensitive``, by name.
    versions : dict
    groups : dict of str to int
        Rows in each group.
    alpha : float
    weights : dict of str to float
        By detector.
    gap_detected : bool
    gap_p_value : float
        Of "the groups have the same mean base score".
    bias_reduction : float
        Share of the base score's bias that is gone on the rows that ``settings["target"]`` names.
    bias_unseen, bias_training : Change
        Scale-free bias, on rows that the weights have not seen, and on the training rows.
    flag_rates : dict of str to Change
        By group.
    flag_rate_ratio : Change
        Lowest over highest flag rate.
    rank_correlation : float
        Spearman's, of base and fair score.
    flagged, flagged_kept : int
        Rows flagged by the fair score, and those of them that the base score flags too.
    auc, average_precision : Change or None
        Where labels are known.
    """

    input: dict[str, Any]
    model: dict[str, Any]
    settings: dict[str, Any]
    columns: dict[str, list[str]]
    versions: dict[str, str]
    groups: dict[str, int]
    alpha: float
    weights: dict[str, float]
    gap_detected: bool
    gap_p_value: float
    bias_reduction: float
    bias_unseen: Change
    bias_training: Change
    flag_rates: dict[str, Change]
    flag_rate_ratio: Change
    rank_correlation: float
    flagged: int
    flagged_kept: int
    auc: Change | None
    average_precision: Change | None

    def to_json(self) -> str:
        """One JSON object; a number that does not exist is null."""
        return json.dumps(_finite(asdict(self)), indent=2, ensure_ascii=False)


def summarise(inputs: Inputs, pipeline: Pipeline, groups: Groups, model_sha256: str) -> FitSummary:
    """Collect the figures of a fitted pipeline of table and ensemble."""
    model: evenout.FairOutlierEnsemble = pipeline["ensemble"]
    base, fair = model.target_, model.outlier_scores_
    path, alpha = model.path_, model.alpha_
    flags = [scores > flag_threshold(scores, model.contamination) for scores in (base, fair)]
    rates = np.stack(
        [flag_rates(y, groups.codes, len(groups.labels), model.contamination) for y in (base, fair)]
    )
    return FitSummary(
        input={"name": inputs.name, "sha256": inputs.sha256, "rows": len(base)},
        model={"file": "model.skops", "sha256": model_sha256},
        settings=model.get_params(deep=False),
        columns={"features": [*inputs.features.columns], "sensitive": [*inputs.sensitive.columns]},
        versions={"evenout": evenout.__version__, "python": platform.python_version()}
        | {name: version(name) for name in _LIBRARIES},
        groups=dict(zip(groups.labels, groups.counts.tolist(), strict=True)),
        alpha=alpha,
        weights=dict(zip(model.detector_names_, model.weights_.tolist(), strict=True)),
        gap_detected=model.gap_detected_,
        gap_p_value=path.gap_p_value,
        bias_reduction=float(path.reduction(alpha, model.target)),
        bias_unseen=Change(
            path.target_bias("unseen"),
            float(path.bias(alpha, "unseen")),
            path.target_standard_error(),
            float(path.standard_error(alpha)),
        ),
        bias_training=Change(path.target_bias("training"), float(path.bias(alpha, "training"))),
        flag_rates={name: Change(*rates[:, g].tolist()) for g, name in enumerate(groups.labels)},
        flag_rate_ratio=Change(*map(float, rate_ratio(rates.T))),
        rank_correlation=float(spearmanr(base, fair).statistic),
        flagged=int(flags[1].sum()),
        flagged_kept=int((flags[0] & flags[1]).sum()),
        auc=_evaluated(roc_auc, inputs.labels, base, fair),
        average_precision=_evaluated(average_precision_score, inputs.labels, base, fair),
    )


def _evaluated(measure: Any, labels: Any, base: FloatArray, fair: FloatArray) -> Change | None:
    return None if labels is None else Change(float(measure(labels, base)), float(measure(labels, fair)))


def _finite(value: Any) -> Any:
    """The same with None for NaN and infinity, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
