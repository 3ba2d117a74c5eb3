"""The watch against slow formulas on rows, and against populations whose truth is known."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from evenout import FairnessMonitor, FairOutlierEnsemble, InputError
from evenout.core.sequences import upper_bound


def week(rng, n=200, shares=(0.5, 0.3, 0.2), gap=0.0, drift=0.0):
    groups = rng.choice(list("abc")[: len(shares)], size=n, p=shares)
    return rng.normal(size=n) + drift + gap * (groups == "b"), groups


def watched(n_weeks, seed=0, **options):
    rng = np.random.default_rng(seed)
    settings = {name: options.pop(name) for name in ("tolerance", "flag_rate_ratio") if name in options}
    monitor = FairnessMonitor(**settings)
    scores, groups = week(rng, 2000)
    monitor.start(scores, sensitive_features=groups)
    batches = [week(rng, **options) for _ in range(n_weeks)]
    for i, (scores, groups) in enumerate(batches):
        monitor.update(scores, sensitive_features=groups, batch=f"week {i + 1}")
    return monitor, batches


def test_gap_and_interval_are_those_of_the_rows():
    """Row by row, with weights, spreads and guesses written out."""
    monitor, batches = watched(6)
    reference = monitor.reference
    before = {g: [0.5] for g in "abc"}
    share = dict(zip("abc", reference.counts / reference.counts.sum(), strict=True))
    for g in "abc":
        s = v = w = 0.0
        past = {h: list(before[h]) for h in "abc"}
        for scores, groups in batches:
            ranks = np.array([(np.mean(reference.knots < x) + np.mean(reference.knots <= x)) / 2 for x in scores])
            guess = np.array([np.mean(past[h]) for h in groups])
            rest = {h: share[h] / (1 - share[g]) for h in "abc" if h != g}
            size = {h: (groups == h).sum() for h in "abc"}
            weight = 1 / (1 / size[g] + sum(rest[h] ** 2 / size[h] for h in rest))
            weight = min(weight, *(size[h] / share[h] * (1 - share[g]) for h in "abc"))
            c = np.array([weight / size[g] if h == g else -weight * rest[h] / size[h] for h in groups])
            assert np.abs(c).max() <= 1
            s, v, w = s + (c * ranks).sum(), v + (c**2 * (ranks - guess) ** 2).sum(), w + weight
            for h in "abc":
                past[h] += ranks[groups == h].tolist()
        row = monitor.to_frame().set_index("group").loc[g]
        reach = float(upper_bound(np.array(v), 0.05 / 2 / 3 / 2))
        assert row["gap"] == pytest.approx(s / w)
        assert (row["low"], row["high"]) == pytest.approx(((s - reach) / w, (s + reach) / w))


def test_interval_is_that_of_the_largest_gap():
    monitor, _ = watched(30, gap=1.0)
    frame = monitor.to_frame()
    assert monitor.interval[0] == pytest.approx(np.maximum(frame["low"], -frame["high"]).max())
    assert monitor.interval[1] == pytest.approx(np.maximum(-frame["low"], frame["high"]).max())
    assert monitor.interval[0] > 0


def test_drift_and_mix_are_no_unfairness():
    """Scores rise and group b comes ever more often: rows thrown together have a gap, batches have none."""
    rng = np.random.default_rng(3)
    monitor = FairnessMonitor().start(
        rng.normal(size=3000), sensitive_features=rng.choice(["a", "b"], 3000, p=[0.9, 0.1])
    )
    every = []
    for i in range(40):
        scores, groups = week(rng, 200, (0.9 - 0.02 * i, 0.1 + 0.02 * i), drift=0.05 * i)
        monitor.update(scores, sensitive_features=groups)
        every.append(pd.DataFrame({"score": scores, "group": groups}))
    pooled = pd.concat(every)
    ranks = pd.Series(rankdata(pooled["score"]) / len(pooled), index=pooled.index)
    apart = ranks.groupby(pooled["group"].to_numpy()).mean()
    assert apart["b"] - apart["a"] > 0.1
    assert not monitor.alarm
    assert monitor.interval[0] == 0
    assert any(s.startswith("Drift, which is no gap") for s in monitor.verdict)
    assert any(s.startswith("The mix of groups has changed") for s in monitor.verdict)


def test_calm_years_say_nothing_of_drift_or_mix():
    monitor, _ = watched(40)
    assert "No drift of all scores together can be told from noise." in monitor.verdict
    assert "No change in the mix of groups can be told from noise." in monitor.verdict


def test_false_alarms_are_rare():
    """40 years of fortnights without a gap: at most 5 % may ever alarm; 8 would be by chance in 1 of 1,000 trials."""
    alarms = sum(watched(26, seed=seed)[0].alarm for seed in range(40))
    assert alarms <= 7


def test_a_late_gap_is_found_and_dated():
    rng = np.random.default_rng(5)
    scores, groups = week(rng)
    monitor = FairnessMonitor().start(scores, sensitive_features=groups)
    for i in range(120):
        scores, groups = week(rng, 200, gap=0.5 * (i >= 100))
        monitor.update(scores, sensitive_features=groups, batch=f"{i:03d}")
    first = monitor.alarms[0]
    assert (first.promise, first.group, first.direction) == ("ranks", "b", "higher")
    assert "098" <= first.since <= "103"
    assert "100" < first.raised < "118"
    assert first.low > 0
    assert first.low < 0.138 < first.high  # P(b > a) - 1/2 at half a standard deviation


def test_an_alarm_stays():
    rng = np.random.default_rng(0)
    monitor, _ = watched(30, gap=1.0)
    raised = monitor.alarms
    for _ in range(20):
        scores, groups = week(rng, 2000)
        monitor.update(scores, sensitive_features=groups)
    assert monitor.alarm
    assert monitor.alarms[: len(raised)] == raised


def test_what_is_within_the_tolerance_is_no_alarm():
    """A gap of half a standard deviation is 0.14 places at most."""
    assert watched(40, gap=0.5)[0].alarm
    kept, _ = watched(40, gap=0.5, tolerance=0.2)
    assert not kept.alarm
    assert "the promise is kept" in kept.verdict[0]
    assert "cannot be told yet" in watched(2, tolerance=0.01)[0].verdict[0]


def test_a_ratio_of_flag_rates_is_watched_where_means_are_level():
    """Group b has wider scores: as many above as below, and twice as many on top."""
    rng = np.random.default_rng(2)
    promised, kept = FairnessMonitor(0.05, flag_rate_ratio=0.9), FairnessMonitor(0.05, flag_rate_ratio=0.3)
    for _ in range(40):
        groups = rng.choice(["a", "b"], size=300)
        scores = rng.normal(size=300) * np.where(groups == "b", 1.5, 1.0)
        promised.update(scores, sensitive_features=groups)
        kept.update(scores, sensitive_features=groups)
    assert [(alarm.promise, alarm.group, alarm.direction) for alarm in promised.alarms] == [("flags", "b", "higher")]
    assert not kept.alarm


def test_flag_rates_hold_the_truth():
    monitor, batches = watched(20)
    frame = monitor.to_frame().set_index("group")
    scores, groups = (np.concatenate([batch[i] for batch in batches]) for i in (0, 1))
    for g in "abc":
        flagged = scores[groups == g] > monitor.reference.threshold
        assert frame.loc[g, "flag_rate"] == pytest.approx(flagged.mean())
        assert frame.loc[g, "flag_low"] < 0.1 < frame.loc[g, "flag_high"]


def test_history_ends_where_the_watch_stands():
    monitor, batches = watched(5)
    history, now = monitor.history(), monitor.to_frame()
    assert len(history) == 15
    assert history["rows"].sum() == sum(len(scores) for scores, _ in batches)
    np.testing.assert_allclose(history[["gap", "low", "high"]][-3:], now[["gap", "low", "high"]])


def test_ties_and_constant_scores():
    monitor = FairnessMonitor()
    for _ in range(10):
        monitor.update(np.ones(50), sensitive_features=["a", "b"] * 25)
    assert monitor.interval[0] == 0
    assert monitor.to_frame()["gap"].abs().max() == 0
    assert monitor.reference.ranks(np.array([0.0, 1.0, 2.0])).tolist() == [0.0, 0.5, 1.0]


def test_new_and_unknown_groups_are_told_and_not_compared():
    monitor, _ = watched(3)
    monitor.settings = type(monitor.settings)(**{**vars(monitor.settings), "unknown_groups": "ignore"})
    monitor.update([1.0, 2.0, 3.0, 4.0], sensitive_features=["a", "new", None, "b"])
    assert monitor.findings.others == {"new": 1, "": 1}
    assert "'new' (1 rows), 1 rows without a group" in monitor.verdict[-1]


def test_a_batch_of_one_group_or_one_row_changes_no_gap():
    monitor, _ = watched(3)
    before = monitor.interval
    monitor.update([5.0], sensitive_features=["a"]).update([5.0, 6.0], sensitive_features=["b", "b"])
    assert monitor.interval == pytest.approx(before, rel=1e-12)


def test_hostile_names_stay_on_one_line():
    rng = np.random.default_rng(0)
    names = np.array(["\x1b[31mred\n", "<b>&amp;"])
    monitor = FairnessMonitor()
    for i in range(30):
        groups = names[rng.integers(0, 2, size=300)]
        monitor.update(rng.normal(size=300) + (groups == names[0]), sensitive_features=groups, batch=f"\x07{i}")
    assert monitor.alarm
    assert "\x1b" not in repr(monitor)
    assert "\x07" not in repr(monitor)
    assert len(repr(monitor).splitlines()) < 14


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.update([1.0], sensitive_features=["a"], batch="week 1"), "'week 1' has been counted already"),
        (lambda m: m.update([np.nan], sensitive_features=["a"]), "missing or infinite"),
        (lambda m: m.update([], sensitive_features=[]), "no rows"),
        (lambda m: m.update([1.0], sensitive_features=None), "sensitive_features is missing"),
        (lambda m: m.update([1.0, 2.0], sensitive_features=["a"]), "has 1 rows, but scores has 2"),
        (lambda m: m.update([1.0, 2.0], sensitive_features=["a", None]), "missing values in 1 of 2 rows"),
        (lambda m: m.start([1.0, 2.0], sensitive_features=["a", "b"]), "begun already"),
        (lambda m: m.merge(FairnessMonitor()), "began alike"),
        (lambda _: FairnessMonitor(tolerance=-1), "tolerance=-1 is not allowed"),
        (lambda _: FairnessMonitor(false_alarms=0), "false_alarms=0 is not allowed"),
        (lambda _: FairnessMonitor().interval, "not begun"),
        (
            lambda _: FairnessMonitor({"x": 0.1}).start([1.0, 2.0], sensitive_features=["a", "b"]),
            "tolerance names 'x'",
        ),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(call, words):
    monitor, _ = watched(2)
    before = repr(monitor)
    with pytest.raises(ValueError, match=words):
        call(monitor)
    assert repr(monitor) == before


def split(n_weeks, seed=0):
    """Batches of two machines that began alike, and one watch that has seen all."""
    rng = np.random.default_rng(seed)
    scores, groups = week(rng, 2000)
    watches = [FairnessMonitor().start(scores, sensitive_features=groups) for _ in range(3)]
    for i in range(n_weeks):
        for machine in range(2):
            scores, groups = week(rng, gap=0.3)
            for watch in (watches[machine], watches[2]):
                watch.update(scores, sensitive_features=groups, batch=f"{machine}-{i}")
    return watches


def test_merging_adds_the_sums_and_twice_is_once():
    one, two, both = split(15)
    rows = {name: batch.ranks.sum() for name, batch in both._batches.items()}
    merged = one.merge(two)
    frame = merged.to_frame()
    again = merged.merge(two, two).to_frame()
    pd.testing.assert_frame_equal(frame, again)
    assert {name: batch.ranks.sum() for name, batch in merged._batches.items()} == rows
    assert frame["gap"].to_numpy() == pytest.approx(both.to_frame()["gap"].to_numpy())
    # guesses differ, since each machine knew less: so do spreads, a little
    assert frame["low"].to_numpy() == pytest.approx(both.to_frame()["low"].to_numpy(), abs=1e-3)


def test_merging_in_any_order_is_the_same():
    one, two, _ = split(6)
    other_one, other_two, _ = split(6)
    a, b = one.merge(two).to_frame(), other_two.merge(other_one).to_frame()
    np.testing.assert_allclose(a.iloc[:, 1:].to_numpy(float), b.iloc[:, 1:].to_numpy(float), rtol=1e-12)


def test_merged_watches_find_what_neither_finds_alone():
    for seed in range(20):
        one, two, _ = split(8, seed)
        if not one.alarm and not two.alarm and one.merge(two).alarm:
            return
    pytest.fail("no alarm was found by merging")


def test_watches_that_differ_are_not_merged():
    one, two, _ = split(2)
    two._batches["0-0"] = two._batches.pop("1-0")
    with pytest.raises(InputError, match="'0-0', with different rows"):
        one.merge(two)
    other = FairnessMonitor(0.1).start([1.0, 2.0], sensitive_features=["a", "b"])
    with pytest.raises(InputError, match="began alike"):
        one.merge(other)


@pytest.fixture(scope="module")
def model(data):
    X, groups = data
    return FairOutlierEnsemble(random_state=0, detectors="paper").fit(X, sensitive_features=groups)


def batch_like(data, rng, lift=0.0):
    X, groups = data
    rows = rng.integers(0, len(X), size=300)
    new = X.iloc[rows].to_numpy() + 0.05 * rng.normal(size=(300, X.shape[1]))
    chosen = groups.iloc[rows].to_numpy()
    new[chosen == "b", 1] *= 1 + lift
    return new, chosen


def test_a_model_promises_what_it_left_on_unseen_rows(model, data):
    monitor = FairnessMonitor.of(model)
    assert all(0 < monitor.settings.tolerance[g] < 0.25 for g in "abc")
    assert monitor.reference.threshold == -model.offset_
    assert monitor.reference.labels == model.group_names_
    rng = np.random.default_rng(0)
    for _ in range(15):
        X, groups = batch_like(data, rng)
        monitor.update(model.outlier_scores(pd.DataFrame(X, columns=data[0].columns)), sensitive_features=groups)
    assert not monitor.alarm
    for _ in range(15):
        X, groups = batch_like(data, rng, lift=4.0)
        monitor.update(model.outlier_scores(pd.DataFrame(X, columns=data[0].columns)), sensitive_features=groups)
    assert ("b", "higher") in {(alarm.group, alarm.direction) for alarm in monitor.alarms}


def test_a_model_asked_for_flag_rates_promises_those(data):
    X, groups = data
    model = FairOutlierEnsemble(random_state=0, detectors="paper", flag_rate_ratio=0.5).fit(
        X, sensitive_features=groups
    )
    monitor = FairnessMonitor.of(model)
    assert 0 < monitor.settings.flag_rate_ratio < 0.8


def test_what_promises_nothing_is_refused(data):
    X, groups = data
    strata = FairOutlierEnsemble("paper", alpha=1.0, random_state=0)
    strata.fit(X, sensitive_features=groups, given=np.arange(len(X)) % 2)
    with pytest.raises(InputError, match="it compares bands, strata"):
        FairnessMonitor.of(strata)
    with pytest.raises(InputError, match="FairnessMonitor\\(tolerance"):
        FairnessMonitor.of(object())
