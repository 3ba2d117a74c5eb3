import numpy as np
import pandas as pd
import pytest

from evenout import Groups
from evenout.auditing.drivers import _shares, gap_drivers
from evenout.auditing.measures import AuditSettings
from evenout.auditing.sample import read_audit_inputs


def drive(scores, features, groups, resamples=300, seed=0):
    inputs = read_audit_inputs(scores, groups.astype(str), groups=Groups(min_size=2))
    settings = AuditSettings(0.1, resamples, 0.95, "minmax")
    drivers = gap_drivers(inputs, features, settings, np.random.default_rng(seed))
    return {driver.detail: driver for driver in drivers}


def test_share_explained_by_hand():
    """Two bins, 3:1 in one group and 1:3 in the other: half of the difference of the bins is a gap of the groups."""
    count = np.array([[3.0, 1.0], [1.0, 3.0]])
    bins, group = np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    assert _shares(count, count * bins) == pytest.approx(1.0)
    assert _shares(count, count * group) == pytest.approx(0.0, abs=1e-6)
    assert _shares(count, count * (group + 2 * bins)) == pytest.approx(0.5)  # gap 1 + 2 * 0.5
    assert _shares(count, count * (group - bins)) == pytest.approx(-1.0)  # gap 1 - 0.5: the feature hides a part
    assert np.isnan(_shares(count, np.zeros((2, 2))))


def test_share_explained_by_least_squares_with_dummies():
    rng = np.random.default_rng(0)
    groups, bins = rng.integers(0, 3, 300), rng.integers(0, 4, 300)
    bins = np.minimum(bins, groups + 1)  # mixes differ, and group 0 lacks some bins
    y = 0.5 * groups + np.array([0.0, 1.0, -1.0, 2.0])[bins] + rng.normal(size=300)
    design = np.column_stack([np.eye(3)[groups], np.eye(4)[bins]])
    h = design[:, 3:] @ np.linalg.lstsq(design, y, rcond=None)[0][3:]
    m, e = (np.array([x[groups == g].mean() for g in range(3)]) for x in (y, h))
    gaps = [((m[p] - m[q]), (e[p] - e[q])) for p in range(3) for q in range(p)]
    expected = sum(a * b for a, b in gaps) / sum(a * a for a, _ in gaps)
    driver = drive(y, pd.DataFrame({"bin": bins}), groups, 0)["bin"]
    assert driver.value == pytest.approx(expected)
    assert np.isnan([driver.low, driver.high, driver.p]).all()


@pytest.fixture(scope="module")
def planted():
    """The score follows a feature that differs between groups, and one that does not; and the group itself."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 1500)
    driver = rng.normal(size=1500) + groups
    features = pd.DataFrame(
        {
            "driver": driver,
            "even": rng.normal(size=1500),
            "idle": rng.normal(size=1500) + groups,
            "text": np.where(driver > 0.5, "high", "low"),
            "restates": groups * 2.0,
        }
    )
    scores = features["driver"] + 2 * features["even"] + 0.5 * groups + rng.normal(size=1500)
    return drive(scores.to_numpy(), features, groups)


def test_a_driver_is_told_from_idle_and_even_features(planted):
    assert planted["driver"].value == pytest.approx(1 / 1.5, abs=0.1)
    assert planted["driver"].low < 1 / 1.5 < planted["driver"].high
    assert planted["driver"].low > 0.4
    assert planted["driver"].p == 1 / 301
    for name in ("even", "idle"):
        assert planted[name].low < 0 < planted[name].high
        assert planted[name].p > 0.05
    assert 0.2 < planted["text"].value < planted["driver"].value
    assert next(iter(planted)) == "driver"


def test_a_feature_that_restates_the_group_explains_nothing(planted):
    assert planted["restates"].value == pytest.approx(0.0, abs=1e-6)


def test_bootstrap_on_tables_spreads_like_one_on_rows():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1], [120, 80])
    x = rng.integers(0, 3, 200)
    y = x + 0.8 * groups + rng.normal(size=200)

    def share(rows):
        return drive(y[rows], pd.DataFrame({"x": x[rows]}), groups[rows], 0)["x"].value

    rows = [np.r_[rng.integers(0, 120, 120), rng.integers(120, 200, 80)] for _ in range(300)]
    low, high = np.quantile([share(r) for r in rows], [0.025, 0.975])
    driver = drive(y, pd.DataFrame({"x": x}), groups, 2000)["x"]
    assert driver.high - driver.low == pytest.approx(high - low, rel=0.2)
