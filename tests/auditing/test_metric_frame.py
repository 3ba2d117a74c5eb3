import numpy as np
import pytest

from evenout.auditing import audit, metric_functions

NAMES = (
    "mean_score",
    "flag_rate",
    "auc",
    "average_precision",
    "true_positive_rate",
    "false_positive_rate",
    "precision",
)


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    scores, groups = rng.normal(size=300).round(2), rng.choice(["a", "b", "c"], 300)
    return scores, groups, (scores + rng.normal(size=300) > 1).astype(int)


def test_metric_frame_shows_the_values_of_the_audit(sample):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    scores, groups, y = sample
    frame = fairlearn.MetricFrame(
        metrics=metric_functions(scores, contamination=0.15),
        y_true=y,
        y_pred=scores,
        sensitive_features=groups,
    )
    result = audit(scores, sensitive_features=groups, labels=y, contamination=0.15, resamples=0)
    assert tuple(frame.by_group.columns) == NAMES
    for name in NAMES:
        for group in "abc":
            assert frame.by_group.loc[group, name] == pytest.approx(result.get(name, group).value)
    assert frame.ratio()["flag_rate"] == pytest.approx(result.get("flag_rate_ratio").value)
    assert frame.difference()["auc"] == pytest.approx(result.get("auc_gap").value)
    assert frame.overall["flag_rate"] == pytest.approx(0.15, abs=0.01)


def test_functions_use_the_threshold_of_all_rows(sample):
    scores, _, _ = sample
    functions = metric_functions(scores, contamination=0.1)
    top = np.sort(scores)[-5:]
    assert functions["flag_rate"](top, top) == 1.0
    assert functions["precision"]([0, 0, 1, 1, 1], top) == pytest.approx(0.6)


def test_functions_are_undefined_without_the_rows_they_need(sample):
    functions = metric_functions(sample[0])
    low = [-9.0, -8.0]
    assert functions["false_positive_rate"]([0, 0], low) == 0.0
    for name in ("auc", "average_precision", "true_positive_rate", "precision"):
        assert np.isnan(functions[name]([0, 0], low)), name
