"""The watch against slow formulas on rows, and against populations whose truth is known."""

from html import escape

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from evenout import FairnessMonitor, FairOutlierEnsemble, GroupProbabilities, Groups
from evenout.core.intervals import upper_bound
from evenout.exceptions import InputError
from evenout.watching.ledger import FEWEST, rank_among


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


def test_gaps_and_intervals_are_those_of_the_rows():
    """Row by row, with weights, spreads and guesses written out, for each pair of groups."""
    monitor, batches = watched(6)
    knots, gaps, ends = monitor.reference.knots, {}, {}
    for one, other in ("ab", "ac", "bc"):
        s = v = w = 0.0
        past = {h: [0.5] for h in "abc"}
        for scores, groups in batches:
            ranks = np.array([(np.mean(knots < x) + np.mean(knots <= x)) / 2 for x in scores])
            guess = np.array([np.mean(past[h]) for h in groups])
            n, m = (groups == one).sum(), (groups == other).sum()
            c = np.where(groups == one, m / (n + m), np.where(groups == other, -n / (n + m), 0.0))
            s, v, w = s + (c * ranks).sum(), v + (c**2 * (ranks - guess) ** 2).sum(), w + n * m / (n + m)
            for h in "abc":
                past[h] += ranks[groups == h].tolist()
        reach = float(upper_bound(np.array(v), 0.05 / 2 / 3 / 2))
        for g, h, sign in ((one, other, 1), (other, one, -1)):
            gaps[g, h], ends[g, h] = sign * s / w, sorted((sign * (s - reach) / w, sign * (s + reach) / w))
    for row in monitor.to_frame().itertuples():
        assert row.against == max((h for h in "abc" if h != row.group), key=lambda h, g=row.group: abs(gaps[g, h]))
        assert row.gap == pytest.approx(gaps[row.group, row.against])
        assert (row.low, row.high) == pytest.approx(tuple(ends[row.group, row.against]))
    widest = max(high for _, high in ends.values())
    assert monitor.interval == pytest.approx((max(0.0, *(low for low, _ in ends.values())), widest))


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
    assert any(s.startswith("Drift of all groups together, which is no gap") for s in monitor.verdict)
    assert any(s.startswith("The mix of groups has changed") for s in monitor.verdict)


def test_a_rise_in_one_group_is_no_drift_of_all():
    monitor, _ = watched(12, gap=2.0)
    assert monitor.alarms[0].group == "b"
    assert not any(("no gap" in s and "Scores" in s) or s.startswith("Drift") for s in monitor.verdict)
    said = next(s for s in monitor.verdict if s.startswith("Scores have changed since the start"))
    assert "higher in 'b'" in said
    assert "in the other groups no change" in said


def test_calm_years_say_nothing_of_drift_or_mix():
    monitor, _ = watched(40)
    assert "No drift of scores can be told from noise." in monitor.verdict
    assert "No change in the mix of groups can be told from noise." in monitor.verdict
    assert monitor.verdict[-1].startswith("The false-alarm rate holds if every batch has new people")


def test_false_alarms_are_rare():
    """40 years of fortnights without a gap: at most 5 % may ever alarm; 8 would be by chance in 1 of 1,000 trials."""
    alarms = sum(watched(26, seed=seed, flag_rate_ratio=1.0)[0].alarm for seed in range(40))
    assert alarms <= 7


def test_a_late_gap_is_found_and_dated():
    rng = np.random.default_rng(5)
    scores, groups = week(rng)
    monitor = FairnessMonitor().start(scores, sensitive_features=groups)
    for i in range(120):
        scores, groups = week(rng, 200, gap=0.5 * (i >= 100))
        monitor.update(scores, sensitive_features=groups, batch=f"{i:03d}")
    first = monitor.alarms[0]
    assert (first.promise, first.group) == ("ranks", "b")
    assert "095" <= first.earliest <= "100" <= first.latest <= "105"
    assert first.earliest <= first.since <= first.latest
    assert "100" < first.raised < "118"
    assert 0 < first.low < 0.138 < first.high  # P(b > a) - 1/2 at half a standard deviation
    assert "on average since" in monitor.verdict[0]


def dated(seed, gap, begin=20, n=300):
    """The first alarm of a gap that begins in a week, counted from 0; its range in such weeks."""
    rng = np.random.default_rng(seed)
    scores, groups = week(rng, 2000, (0.5, 0.5))
    monitor = FairnessMonitor().start(scores, sensitive_features=groups)
    for i in range(begin + 60):
        scores, groups = week(rng, n, (0.5, 0.5), gap=gap * (i >= begin))
        if monitor.update(scores, sensitive_features=groups, batch=str(i)).alarm:
            break
    return (int(monitor.alarms[0].earliest), int(monitor.alarms[0].latest)) if monitor.alarm and i >= begin else None


@pytest.mark.parametrize(
    ("gap", "n", "n_watches"),
    [
        (0.4, 300, 24),
        *(
            pytest.param(gap, n, 300, marks=[pytest.mark.long, pytest.mark.nightly])
            for gap, n in ((0.2, 300), (0.3, 300))
        ),
    ],
)
def test_the_range_of_the_date_holds_the_truth(gap, n, n_watches):
    """A gap from week 21 on: the range has the right week in at least 90 % of the alarms."""
    found = [each for seed in range(n_watches) if (each := dated(seed, gap, n=n)) is not None]
    assert len(found) > 0.9 * n_watches
    assert np.mean([low <= 20 <= high for low, high in found]) >= 0.9
    assert np.median([high - low for low, high in found]) < 10


def test_an_alarm_stays():
    rng = np.random.default_rng(0)
    monitor, _ = watched(30, gap=1.0)
    raised = monitor.alarms
    for _ in range(20):
        scores, groups = week(rng, 2000)
        monitor.update(scores, sensitive_features=groups)
    assert monitor.alarm
    assert not monitor.kept
    assert monitor.alarms[: len(raised)] == raised


def test_what_is_within_the_tolerance_is_no_alarm():
    """A gap of half a standard deviation is 0.14 places."""
    assert watched(40, gap=0.5)[0].alarm
    kept, _ = watched(60, gap=0.5, tolerance=0.25)
    assert not kept.alarm
    assert kept.kept
    assert "the promise is kept" in kept.verdict[0]
    assert "cannot be told yet" in watched(2, tolerance=0.01)[0].verdict[0]


def test_two_groups_may_be_as_far_apart_as_the_larger_of_their_tolerances():
    """Group b may stand away from the others, which may not stand away from each other."""
    assert not watched(40, gap=0.5, tolerance={"b": 0.2})[0].alarm
    rng = np.random.default_rng(0)
    monitor = FairnessMonitor({"b": 0.2})
    for _ in range(30):
        scores, groups = week(rng, 300)
        monitor.update(scores + 0.5 * (groups == "c"), sensitive_features=groups)
    assert {(alarm.group, alarm.than) for alarm in monitor.alarms} == {("c", "a")}


def ten_groups(ratio, n_batches, tolerance=0.2, seed=0, rows=20_000):
    """Flag rates from 0.12 down to ``ratio`` times that over ten groups; the mean rank hardly differs."""
    rng = np.random.default_rng(seed)
    rates = np.linspace(0.12, 0.12 * ratio, 10)

    def batch():
        groups = rng.integers(0, 10, size=rows)
        flagged = rng.random(rows) < rates[groups]
        return rng.random(rows) + flagged, groups

    scores, groups = batch()
    monitor = FairnessMonitor(tolerance, flag_rate_ratio=0.8)
    monitor.start(scores, sensitive_features=groups.astype(str), threshold=1.0)
    for _ in range(n_batches):
        scores, groups = batch()
        monitor.update(scores, sensitive_features=groups.astype(str))
    return monitor


def test_lowest_and_highest_of_ten_groups_are_compared():
    """A ratio of 0.70 where 0.8 was promised: each group by itself is near all others together."""
    monitor = ten_groups(0.7, 15)
    assert not monitor.kept
    first = next(alarm for alarm in monitor.alarms if alarm.promise == "flags")
    assert {first.group, first.than} <= {"0", "1", "2", "7", "8", "9"}
    assert not any("flag" in s.lower() and "is kept" in s for s in monitor.verdict)


def test_kept_is_said_of_everything_promised_or_not_at_all():
    assert ten_groups(0.95, 12).kept
    unknown = ten_groups(0.82, 2)
    assert not unknown.kept
    assert unknown.findings.kept("ranks")
    assert any(
        s.startswith("Flag rates: no alarm; whether the promise is kept cannot be told") for s in unknown.verdict
    )


def test_a_ratio_of_flag_rates_is_watched_where_means_are_level():
    """Group b has wider scores: as many above as below, and twice as many on top."""
    rng = np.random.default_rng(2)
    promised, kept = FairnessMonitor(0.05, flag_rate_ratio=0.9), FairnessMonitor(0.05, flag_rate_ratio=0.3)
    for _ in range(40):
        groups = rng.choice(["a", "b"], size=300)
        scores = rng.normal(size=300) * np.where(groups == "b", 1.5, 1.0)
        promised.update(scores, sensitive_features=groups)
        kept.update(scores, sensitive_features=groups)
    assert [(alarm.promise, alarm.group, alarm.than) for alarm in promised.alarms] == [("flags", "b", "a")]
    assert not kept.alarm


def test_flag_rates_hold_the_truth():
    monitor, batches = watched(20)
    frame = monitor.to_frame().set_index("group")
    scores, groups = (np.concatenate([batch[i] for batch in batches]) for i in (0, 1))
    for g in "abc":
        flagged = scores[groups == g] > monitor.reference.threshold
        assert frame.loc[g, "flag_rate"] == pytest.approx(flagged.mean())
        assert frame.loc[g, "flag_low"] < 0.1 < frame.loc[g, "flag_high"]


def from_a_start(seed, later, n_months=20, start=1000, gap=0.45, tolerance="start"):
    """Months in which group b of three stands 0.45 standard deviations, or 0.12 places, higher, and then ``later``."""
    rng = np.random.default_rng(seed)
    scores, groups = week(rng, start, gap=gap)
    monitor = FairnessMonitor(tolerance).start(scores, sensitive_features=groups)
    for _ in range(n_months):
        scores, groups = week(rng, 500, gap=later)
        monitor.update(scores, sensitive_features=groups)
    return monitor


def test_later_batches_are_held_to_the_start():
    """The same gap as in the start is no alarm, a larger one is, and so is one to the other side; a smaller is not."""
    assert from_a_start(0, 0.45, tolerance=0.0).alarm
    assert sum(from_a_start(seed, 0.45).alarm for seed in range(12)) <= 2
    assert not from_a_start(1, 0.0).alarm
    assert from_a_start(1, 1.2).alarms[0].group == "b"
    assert from_a_start(1, -0.8).alarms[0].than == "b"


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("start", [100, 1000])
def test_the_noise_of_the_start_is_part_of_the_rate(start):
    alarms = sum(from_a_start(seed, 0.45, start=start).alarm for seed in range(400))
    assert alarms <= 0.05 * 400 + 3 * np.sqrt(400 * 0.05 * 0.95)


def test_a_first_run_shows_the_start_and_no_number_that_is_not_known():
    rng = np.random.default_rng(0)
    for tolerance, words in ((0.0, "Promised is no gap between groups at all"), ("start", "no larger gap than at the")):
        monitor = FairnessMonitor(tolerance, flag_rate_ratio=0.8)
        text = repr(monitor.start(*week(rng, 300)[:1], sensitive_features=week(rng, 300)[1]))
        assert words in text
        assert "nan" not in text
        assert "100.0%" not in text
        assert "300 rows in 3 groups" in text
    rows = ["a"] * 20 + ["b"] * 20
    monitor.update(rng.normal(size=40), sensitive_features=rows)
    assert "nan" not in repr(monitor)


def panel(seed, n=400, correlation=0.8, months=60, gap=0.0, shares=(0.5, 0.5), **settings):
    """The same people each month; the month of the first alarm, or None."""
    rng = np.random.default_rng(seed)
    groups, own = rng.choice(len(shares), size=n, p=shares), rng.normal(size=n) * np.sqrt(correlation)
    monitor = FairnessMonitor(**settings)
    monitor.start(rng.normal(size=2000), sensitive_features=rng.choice(len(shares), size=2000, p=shares).astype(str))
    for month in range(months):
        scores = own + rng.normal(size=n) * np.sqrt(1 - correlation) + gap * (groups == 0)
        if monitor.update(scores, sensitive_features=groups.astype(str), person=np.arange(n)).alarm:
            return month
    return None


@pytest.mark.parametrize(
    ("n", "correlation", "options", "n_watches"),
    [
        (400, 0.8, {"months": 12}, 20),
        *(
            pytest.param(n, r, options, 200, marks=[pytest.mark.long, pytest.mark.nightly])
            for n in (400, 2000)
            for r in (0.3, 0.8)
            for options in ({}, {"shares": (0.9, 0.1), "flag_rate_ratio": 1.0})
        ),
    ],
)
def test_people_who_come_again_are_no_alarm(n, correlation, options, n_watches):
    """No gap, five years: at most 5 % of the watches ever alarm. Without persons it is one half."""
    alarms = sum(panel(seed, n, correlation, **options) is not None for seed in range(n_watches))
    assert alarms <= 0.05 * n_watches + 3 * np.sqrt(0.05 * 0.95 * n_watches)


def test_a_gap_among_people_who_come_again_is_found():
    """400 people, correlation 0.8: 0.7 standard deviations within a year in nearly all watches."""
    found = [panel(seed, months=12, gap=0.7) for seed in range(15)]
    assert sum(month is not None for month in found) >= 12


def test_a_person_counts_once_however_the_rows_are_dealt():
    """The error by person from signed sums is that of the people's own sums."""
    rng = np.random.default_rng(0)
    n, groups = 1000, np.array(["a", "b"] * 500)
    monitor = FairnessMonitor().start(rng.normal(size=2000), sensitive_features=rng.choice(["a", "b"], 2000))
    own, sums = rng.normal(size=n), np.zeros(n)
    for _ in range(6):
        scores = own + 0.5 * rng.normal(size=n)
        monitor.update(scores, sensitive_features=groups, person=np.arange(n))
        ranks = rank_among(monitor.reference.knots, scores)
        sums += ranks - np.array([ranks[groups == g].mean() for g in groups])
    contrast = monitor.findings.ledger.contrast("ranks").until()[-1:]
    found = (contrast.signed.sum(axis=-2) ** 2).mean()
    assert found == pytest.approx(((sums * 0.5) ** 2).sum(), rel=0.5)
    assert found > 3 * contrast.spread.item()  # rows taken for independent


def test_persons_are_given_for_every_batch_or_for_none():
    rng = np.random.default_rng(0)
    monitor, _ = watched(1)
    scores, groups = week(rng)
    with pytest.raises(InputError, match="has person, and earlier ones had none"):
        monitor.update(scores, sensitive_features=groups, person=np.arange(200))
    start = week(rng, 500)
    one, other = (FairnessMonitor().start(start[0], sensitive_features=start[1]) for _ in range(2))
    one.update(scores, sensitive_features=groups, person=np.arange(200), batch="x")
    with pytest.raises(InputError, match="has no person, and earlier ones had one"):
        one.update(scores, sensitive_features=groups)
    with pytest.raises(InputError, match="person is missing in 1 of 200 rows"):
        one.update(scores, sensitive_features=groups, person=[None, *range(199)])
    other.update(scores, sensitive_features=groups, batch="y")
    with pytest.raises(InputError, match="a watch with person and one without it"):
        one.merge(other)


def test_groups_of_few_people_are_not_kept():
    """One row of a person, or many rows of one person, would be told by the sums."""
    rng = np.random.default_rng(0)
    start = np.array(["a"] * 50 + ["b"] * 50 + ["c"] * (FEWEST - 1))
    monitor = FairnessMonitor().start(rng.normal(size=len(start)), sensitive_features=start)
    assert monitor.reference.labels == ("a", "b")
    assert monitor.reference.left_out == {"c": FEWEST - 1}
    assert any("'c' (4 rows)" in s for s in monitor.verdict)
    rows = np.array(["a"] * 50 + ["b"] * 30)
    monitor.update(rng.normal(size=80), sensitive_features=rows, person=np.r_[np.arange(50), np.full(30, 99)])
    assert monitor.findings.ledger.columns["counts"].tolist() == [[50, 0]]
    assert monitor.findings.ledger.others == ({"b": 30},)
    assert any("Not counted, in batches with fewer than 5 people" in s for s in monitor.verdict)


def test_history_ends_where_the_watch_stands():
    monitor, batches = watched(5)
    history, now = monitor.history(), monitor.to_frame()
    assert len(history) == 15
    assert history["rows"].sum() == sum(len(scores) for scores, _ in batches)
    np.testing.assert_allclose(history[["gap", "low", "high"]][-3:], now[["gap", "low", "high"]])


def test_ties_and_constant_scores():
    monitor = FairnessMonitor("start")
    for _ in range(10):
        monitor.update(np.full(50, 0.1), sensitive_features=["a", "b"] * 25)
    assert monitor.interval[0] == 0
    assert not monitor.alarm
    assert monitor.to_frame()["gap"].abs().max() == 0
    assert rank_among(monitor.reference.knots, np.array([0.0, 0.1, 2.0])).tolist() == [0.0, 0.5, 1.0]


def test_new_and_unknown_groups_are_told_and_not_compared():
    monitor, _ = watched(3)
    monitor.settings = type(monitor.settings)(**{**vars(monitor.settings), "unknown": "ignore"})
    monitor.update(np.arange(12.0), sensitive_features=[*"aaaaabbbbb", "new", None])
    assert monitor.findings.ledger.others[-1] == {"": 1, "new": 1}
    assert "'new' (1 rows), 1 rows without a group" in monitor.verdict[-2]


def test_a_batch_of_one_group_or_one_row_changes_no_gap():
    monitor, _ = watched(3)
    before = monitor.interval
    monitor.update([5.0], sensitive_features=["a"]).update([5.0] * 6, sensitive_features=["b"] * 6)
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
        (lambda _: FairnessMonitor(tolerance="begin"), "tolerance='begin' is not allowed"),
        (lambda _: FairnessMonitor(false_alarms=0), "false_alarms=0 is not allowed"),
        (lambda _: FairnessMonitor().interval, "not begun"),
        (lambda _: FairnessMonitor().start([1.0, 2.0], sensitive_features=["a", "b"]), "fewer than two groups have 5"),
        (
            lambda _: FairnessMonitor({"x": 0.1}).start(np.arange(10.0), sensitive_features=["a", "b"] * 5),
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


def split(n_weeks, seed=0, person=None):
    """Batches of two machines that began alike, and one watch that has seen all."""
    rng = np.random.default_rng(seed)
    scores, groups = week(rng, 2000)
    watches = [FairnessMonitor().start(scores, sensitive_features=groups) for _ in range(3)]
    for i in range(n_weeks):
        for machine in range(2):
            scores, groups = week(rng, gap=0.3)
            for watch in (watches[machine], watches[2]):
                watch.update(scores, sensitive_features=groups, batch=f"{machine}-{i}", person=person)
    return watches


@pytest.mark.parametrize("person", [None, np.arange(200)])
def test_merging_adds_the_sums_and_twice_is_once(person):
    one, two, both = split(15, person=person)
    ledger = both.findings.ledger
    rows = dict(zip(ledger.names, ledger.columns["ranks"].sum(axis=1), strict=True))
    merged = one.merge(two)
    ledger = merged.findings.ledger
    assert dict(zip(ledger.names, ledger.columns["ranks"].sum(axis=1), strict=True)) == rows
    frame = merged.to_frame()
    assert frame["gap"].to_numpy() == pytest.approx(both.to_frame()["gap"].to_numpy())
    pd.testing.assert_frame_equal(frame, merged.merge(two, two).to_frame())
    if person is None:  # guesses differ, since each machine knew less: so do spreads, a little
        assert frame["low"].to_numpy() == pytest.approx(both.to_frame()["low"].to_numpy(), abs=1e-3)
    else:  # the other watch has looked more often, and each look takes its share of the rate
        contrasts = [each.findings.ledger.contrast("ranks").until()[-1:] for each in (merged, both)]
        assert contrasts[0].signed == pytest.approx(contrasts[1].signed)


def test_merging_in_any_order_is_the_same():
    one, two, _ = split(6)
    other_one, other_two, _ = split(6)
    a, b = one.merge(two).to_frame(), other_two.merge(other_one).to_frame()
    pd.testing.assert_frame_equal(a, b)


def test_merged_watches_find_what_neither_finds_alone():
    for seed in range(20):
        one, two, _ = split(8, seed)
        if not one.alarm and not two.alarm and one.merge(two).alarm:
            return
    pytest.fail("no alarm was found by merging")


def test_watches_that_differ_are_not_merged():
    one, two, _ = split(2)
    scores, groups = week(np.random.default_rng(9))
    two.update(scores, sensitive_features=groups, batch="0-0")
    with pytest.raises(InputError, match="'0-0', with different rows"):
        one.merge(two)
    other = FairnessMonitor(0.1).start(np.arange(10.0), sensitive_features=["a", "b"] * 5)
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
    low, high = monitor.findings.promised
    assert ((low <= 0) & (high >= 0) & (high - low < 0.5)).all()
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
    assert "b" in {alarm.group for alarm in monitor.alarms}


@pytest.mark.filterwarnings("ignore::evenout.exceptions.TargetNotReachedWarning")
def test_a_model_asked_for_flag_rates_promises_those(data):
    X, groups = data
    model = FairOutlierEnsemble(random_state=0, detectors="paper", flag_rate_ratio=0.5).fit(
        X, sensitive_features=groups
    )
    monitor = FairnessMonitor.of(model)
    assert 0 < monitor.settings.flag_rate_ratio < 0.8


@pytest.mark.parametrize(
    ("settings", "rows", "words"),
    [
        ({}, {"given": lambda n: np.arange(n) % 2}, "given"),
        ({}, {"clusters": lambda n: np.arange(n) // 2}, "clusters"),
        ({}, {"sample_weight": lambda n: 1.0 + np.arange(n) % 2}, "sample_weight"),
        ({"fairness": "equal_opportunity"}, {"labels": lambda n: np.arange(n) % 3 == 0}, "labels"),
        ({"groups": Groups(continuous=("age",))},
         {"sensitive_features": lambda n: pd.DataFrame({"age": np.sqrt(np.arange(n))})},
         r"groups=Groups\(continuous=...\)"),
        ({"groups": Groups(cross=False)},
         {"sensitive_features": lambda n: pd.DataFrame({"s": np.arange(n) % 2, "t": np.arange(n) // 2 % 2})},
         r"groups=Groups\(cross=...\)"),
        ({}, {"sensitive_features": lambda n: GroupProbabilities(
            pd.DataFrame({"p": np.linspace(0.1, 0.9, n), "q": np.linspace(0.9, 0.1, n)}))}, "GroupProbabilities"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_watch_is_named(data, settings, rows, words):
    X, groups = data
    beside = {"sensitive_features": groups, **{name: make(len(X)) for name, make in rows.items()}}
    model = FairOutlierEnsemble("paper", alpha=1.0, random_state=0, **settings).fit(X, **beside)
    with pytest.raises(InputError, match=f"FairnessMonitor.of and a model with {words} do not go together"):
        FairnessMonitor.of(model)


def test_what_promises_nothing_is_refused():
    with pytest.raises(InputError, match="FairnessMonitor\\(tolerance"):
        FairnessMonitor.of(object())


def test_a_notebook_shows_the_groups_and_what_is_known_with_names_escaped():
    assert "not begun" in FairnessMonitor()._repr_html_()
    rng = np.random.default_rng(0)
    groups, scores = np.repeat(["<b>", "m"], 200), rng.normal(size=400)
    monitor = FairnessMonitor().start(scores, sensitive_features=groups).update(scores, sensitive_features=groups)
    shown = monitor._repr_html_()
    assert "<b>" not in shown
    assert "<th>&lt;b&gt;</th><td>200</td><td>m</td>" in shown
    assert all(escape(line) in shown for line in monitor.verdict)
