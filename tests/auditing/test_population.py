"""Audits against populations with known truth: coverage of intervals, level of tests, and what must not be said."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from evenout import GroupProbabilities, Groups, audit
from evenout.auditing import by_ruler
from evenout.auditing.measures import AuditSettings
from evenout.auditing.sample import read_audit_inputs

RULES = {"groups": Groups(min_size=30, small="leave_out", unknown="error")}
NAMES = np.array(list("abc"))
PLAIN = {"resamples": 199}


class Tally:
    """How often each interval held the truth, and each test rejected."""

    def __init__(self):
        self.found = {}

    def add(self, name, value):
        self.found.setdefault(name, []).append(bool(value))

    def holds(self, name, m, truth):
        self.add(name, m.low <= truth + 1e-12 and truth <= m.high + 1e-12)

    def __getitem__(self, name):
        return float(np.mean(self.found[name]))

    def check(self, replicates):
        """Coverage from 92 % on (bounds may exceed 99 %), level 3 to 7 %, up to two standard errors, four of few."""
        slack = (2 if replicates >= 400 else 4) * np.sqrt(0.05 * 0.95 / replicates)
        for name in self.found:
            if name.startswith("level"):
                assert 0.03 - slack <= self[name] <= 0.07 + slack, (name, self[name])
            else:
                assert self[name] >= 0.92 - slack, (name, self[name])


def score_measures(y, sensitive, share=0.1, **more):
    """The measures of scores alone, by the ruler: quick."""
    inputs = read_audit_inputs(y, sensitive, contamination=share, **more, **RULES)
    settings = AuditSettings(share, 100, 0.95, "minmax")
    found = by_ruler.score_family(inputs, settings, np.random.default_rng(0))
    return {(m.measure, m.group): m for m in found}


def judge(tally, found, rate, mean, variance, *, gap):
    names = sorted({group for measure, group in found if measure == "flag_rate"})
    squares = [(a - b) ** 2 for i, a in enumerate(mean) for b in mean[:i]]
    tally.holds("ratio", found["flag_rate_ratio", None], rate.min() / rate.max())
    tally.holds("parity", found["demographic_parity", None], np.mean(squares) / variance)
    for g, name in enumerate(names):
        tally.holds(f"rate {name}", found["flag_rate", name], rate[g])
        tally.holds(f"mean {name}", found["mean_score", name], mean[g])
    if not gap:
        tally.add("level of means", found["demographic_parity", None].p <= 0.05)
        tally.add("level of flags", found["flag_rate_ratio", None].p <= 0.05)


def probable(tally, replicates, gap, n=2000, *, sufficient=True):
    """Groups known by probability; the score knows these alone, or the group itself."""
    every = np.random.default_rng(99).dirichlet([4, 3, 1], 200_000)
    third = every[:, 2]
    shift = gap * third
    tail = lambda t: norm.sf(t - shift) if sufficient else third * norm.sf(t - gap) + (1 - third) * norm.sf(t)  # noqa: E731
    cut = brentq(lambda t: tail(t).mean() - 0.1, -5, 9)
    if sufficient:
        rate, mean = every.T @ tail(cut) / every.sum(axis=0), every.T @ shift / every.sum(axis=0)
        variance = 1 + shift.var()
    else:
        rate, mean = norm.sf(cut - gap * np.array([0, 0, 1])), gap * np.array([0.0, 0.0, 1.0])
        variance = 1 + gap**2 * third.mean() * (1 - third.mean())
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        phi = rng.dirichlet([4, 3, 1], n)
        group = (rng.random(n)[:, None] > np.cumsum(phi, axis=1)).sum(axis=1)
        y = rng.normal(size=n) + gap * (phi[:, 2] if sufficient else group == 2)
        people = GroupProbabilities(pd.DataFrame(phi, columns=NAMES), sufficient=sufficient)
        judge(tally, score_measures(y, people), rate, mean, variance, gap=gap or not sufficient)


def survey(tally, replicates, gap, n=2000, share=0.1):
    """People of two groups answer by their scores; weights undo that."""
    tilt, p, mean = np.array([-0.5, 0.6, 0.0]), np.array([0.6, 0.3, 0.1]), np.array([0.0, 0.0, gap])
    drawn = p * np.exp(tilt**2 / 2) / (p @ np.exp(tilt**2 / 2))
    cut = brentq(lambda t: p @ norm.sf(t - mean) - share, -5, 9)
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        group = rng.choice(3, n, p=drawn)
        noise = rng.normal(size=n) + tilt[group]
        weight = 1000 * np.exp(-tilt[group] * noise)
        found = score_measures(noise + mean[group], NAMES[group], share, sample_weight=weight)
        judge(tally, found, norm.sf(cut - mean), mean, 1 + p @ (mean - p @ mean) ** 2, gap=gap)


def spanning(tally, replicates, gap, people=200, each=10):
    """Rows of one person, in several groups: the person's own level goes with all of them."""
    spread = 0.8 + 0.2
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        person = np.repeat(np.arange(people), each)
        group = (rng.random(len(person)) < rng.choice([0.1, 0.5, 0.9], people)[person]).astype(int)
        y = np.sqrt(0.8) * rng.normal(size=people)[person] + np.sqrt(0.2) * rng.normal(size=len(person)) + gap * group
        cut = brentq(lambda t: (norm.sf(t) + norm.sf(t - gap)) / 2 - 0.1, -5, 9)
        found = score_measures(y, NAMES[group], clusters=person)
        rate = norm.sf(cut - np.array([0.0, gap]))
        judge(tally, found, rate, np.array([0.0, gap]), spread + gap**2 / 4, gap=gap)


def labelled(tally, replicates, gap, n=3000):
    """Labels of rows that were chosen by their score, with the chances known: outliers of one group score lower."""
    shift = np.array([1.2, 1.2 - gap])
    cut = brentq(lambda t: 0.85 * norm.sf(t) + 0.15 * np.average(norm.sf(t - shift), weights=[0.6, 0.4]) - 0.1, 0, 5)
    rate = norm.sf(cut - shift)
    settings = AuditSettings(0.1, 100, 0.95, "minmax")
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        group, outlier = (rng.random(n) < 0.4).astype(int), rng.random(n) < 0.15
        y = rng.normal(size=n) + shift[group] * outlier
        chance = np.where(y > 1.3, 0.9, 0.1)
        labels = np.where(rng.random(n) < chance, outlier, np.nan)
        inputs = read_audit_inputs(y, NAMES[group], labels=labels, label_propensity=chance, **RULES)
        found = {(m.measure, m.group): m for m in by_ruler.label_family(inputs, inputs.labels, settings)}
        for g in range(2):
            tally.holds(f"found in {NAMES[g]}", found["true_positive_rate", NAMES[g]], rate[g])
            tally.holds(f"auc of {NAMES[g]}", found["auc", NAMES[g]], norm.cdf(shift[g] / np.sqrt(2)))
        tally.holds("gap", found["true_positive_rate_gap", None], np.ptp(rate))
        if not gap:
            tally.add("level", found["true_positive_rate_gap", None].p <= 0.05)
            tally.add("level of auc", found["auc_gap", None].p <= 0.05)


CURVES = {
    "linear": lambda u: u,
    "log": np.log,
    "exp": lambda u: np.exp(np.minimum(u, 8) / 2),
    "sin": lambda u: np.sin(6 * np.log(u)),
    "steps": lambda u: np.floor(3 * u),
}


def income(tally, replicates, gap, n=2000, curve="log", noise=0.5):
    """The score depends on income, and so does the group; beyond that there is the gap."""
    settings = AuditSettings(0.1, 100, 0.95, "minmax")
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        u = rng.lognormal(0, 0.8, n)
        group = (rng.random(n) < 1 / (1 + u**1.5)).astype(int)
        y = CURVES[curve](u)
        y = y / y.std() + noise * rng.normal(size=n) + gap * group
        inputs = read_audit_inputs(y, NAMES[group], given=pd.DataFrame({"income": u}), **RULES)
        found = by_ruler.strata_family(inputs, inputs.alike, settings, np.random.default_rng(0))
        m = next(m for m in found if m.measure == "conditional_parity")
        tally.holds("gap", m, gap**2 / y.var())
        if not gap:
            tally.add("level", m.p <= 0.05)


@pytest.mark.parametrize("case", [probable, survey, spanning, labelled, income])
@pytest.mark.parametrize("gap", [0.0, 0.6])
def test_a_few_replicates_hold_what_is_promised(case, gap):
    tally = Tally()
    case(tally, 16, gap)
    tally.check(16)


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("case", [probable, survey, spanning, labelled, income])
@pytest.mark.parametrize("gap", [0.0, 0.6])
def test_intervals_cover_and_tests_have_their_level(case, gap):
    tally = Tally()
    case(tally, 400, gap)
    tally.check(400)


@pytest.mark.long
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize(
    ("n", "replicates"),
    [
        (5000, 60),
        *(pytest.param(*size, marks=pytest.mark.nightly) for size in ((2000, 400), (5000, 200), (20000, 100))),
    ],
)
def test_a_score_of_income_alone_has_no_gap_among_rows_alike(curve, n, replicates):
    for noise in (0.5, 0.05):
        tally = Tally()
        income(tally, replicates, 0.0, n, curve, noise)
        assert tally["level"] <= 0.07 + 2 * np.sqrt(0.05 * 0.95 / replicates)


def test_bounds_hold_where_the_score_knows_the_group_itself():
    """Probabilities alone would say a ratio near 1."""
    tally = Tally()
    probable(tally, 20, 1.0, sufficient=False)
    assert min(map(np.mean, tally.found.values())) == 1.0


def likely_never(n=6000, seed=0):
    """Three groups, the third of which is nobody's likeliest, and is flagged far more often."""
    rng = np.random.default_rng(seed)
    third = rng.beta(1, 5, n) * 0.45
    first = (1 - third) * rng.choice([0.65, 0.9], n)
    phi = np.column_stack([first, 1 - first - third, third])
    group = (rng.random(n)[:, None] > np.cumsum(phi, axis=1)).sum(axis=1)
    return pd.DataFrame(phi, columns=["white", "black", "asian"]), group, rng.normal(size=n) + 1.5 * (group == 2)


def test_a_group_that_is_nobodys_likeliest_is_measured():
    phi, group, y = likely_never()
    assert (phi.to_numpy().argmax(axis=1) != 2).all()
    found = audit(y, sensitive_features=GroupProbabilities(phi), **PLAIN)
    assert found.group_names == ("asian", "black", "white")
    assert found.group_counts.tolist() == np.rint(phi[["asian", "black", "white"]].sum()).astype(int).tolist()
    assert found.left_out == ()
    flagged = y > np.quantile(y, 0.9)
    rates = [flagged[group == g].mean() for g in range(3)]
    m = found.get("flag_rate", "asian")
    assert m.low <= rates[2] <= m.high
    ratio = found.get("flag_rate_ratio")
    assert ratio.low <= min(rates) / max(rates) <= ratio.high
    said = " ".join(found.verdict)
    assert "from noise" not in said
    assert "is possible; probabilities alone cannot say more" in said
    assert np.isnan(ratio.p)
    two = audit(y, sensitive_features=GroupProbabilities(pd.DataFrame({"a": phi["asian"], "b": 1 - phi["asian"]})))
    assert two.group_names == ("a", "b")


def test_a_probable_group_that_is_too_small_is_named():
    phi, _, y = likely_never(2000)
    phi["few"] = 0.01 * phi["white"]
    phi["none"] = 0.0
    phi["white"] *= 0.99
    with pytest.warns(UserWarning, match=r"'few' \(1\d\), 'none' \(0\)"):
        found = audit(y, sensitive_features=GroupProbabilities(phi, sufficient=True), **PLAIN)
    assert [group.name for group in found.left_out] == ["few", "none"]
    assert found.left_out[0].rows == round(phi["few"].sum())


def test_weights_may_have_any_scale_and_repeat_rows():
    rng = np.random.default_rng(3)
    group, y, weight = rng.integers(0, 3, 900), rng.normal(size=900), rng.integers(1, 4, 900)
    one, two = (audit(y, sensitive_features=NAMES[group], sample_weight=w, **PLAIN) for w in (weight, weight / 7))
    for a, b in zip(one.measures, two.measures, strict=True):
        assert [b.value, b.low, b.high, b.p] == pytest.approx([a.value, a.low, a.high, a.p], rel=1e-9, nan_ok=True)
    rows = np.repeat(np.arange(900), weight)
    copies = audit(y[rows], sensitive_features=NAMES[group][rows], resamples=0)
    for name, of in (("mean_score", "a"), ("demographic_parity", None), ("group_share", "b")):
        assert one.get(name, of).value == pytest.approx(copies.get(name, of).value)
    assert one.get("flag_rate", "a").value == pytest.approx(copies.get("flag_rate", "a").value, abs=0.01)
    with pytest.raises(ValueError, match="does not go with sample_weight"):
        one.table("hiring")


def test_what_ties_is_no_finding():
    """All known outliers flagged in both groups; one flagged row; equal tops over shifted bodies."""
    rng = np.random.default_rng(0)
    group = np.repeat(["0", "1"], 400)
    outlier = np.tile(np.arange(400) < 20, 2)
    y = rng.normal(size=800) + 10 * outlier
    found = audit(y, sensitive_features=group, labels=outlier, **PLAIN)
    assert found.get("true_positive_rate_gap").p == 1.0
    assert found.verdict[2].startswith("No difference in finding outliers")
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = rng.normal(size=800) + 1.5 * (group == "1")
        y[rng.integers(800)] = 20.0
        assert audit(y, sensitive_features=group, contamination=1, **PLAIN).get("flag_rate_ratio").p == 1.0


@pytest.mark.parametrize("replicates", [100, pytest.param(400, marks=pytest.mark.long)])
def test_flag_tests_of_few_flags_have_their_level(replicates):
    """Ten expected flags in the small group: equal tops over shifted bodies."""
    tally = Tally()
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        group = np.repeat([0, 1], [100, 500])
        y = rng.normal(size=600) - 2.0 * (group == 0)
        y = np.where(rng.random(600) < 0.1, 10 + rng.random(600), y)
        found = audit(y, sensitive_features=group, resamples=199, random_state=seed)
        tally.add("level", found.get("flag_rate_test").p <= 0.05)
    tally.check(replicates)


def test_labels_that_somebody_chose_say_nothing_about_the_rest():
    """The top 3 % are labelled: among these all outliers are found, in one group far fewer of those that there are."""
    rng = np.random.default_rng(0)
    n = 6000
    group, outlier = rng.integers(0, 2, n), rng.random(n) < 0.1
    y = rng.normal(size=n) + np.where(group == 1, 0.8, 2.0) * outlier
    labels = np.where(y > np.quantile(y, 0.97), outlier, np.nan)
    found = audit(y, sensitive_features=NAMES[group], labels=labels, **PLAIN)
    for m in found.measures:
        if m.measure in ("true_positive_rate_gap", "precision_gap", "auc_gap"):
            assert np.isnan(m.p)
            assert "of the labelled rows alone" in m.note
    assert found.verdict[2].startswith("Outliers found among the labelled rows alone")
    assert "give label_propensity" in found.verdict[2]
    assert "from noise" not in found.verdict[2]
    drawn = np.where(rng.random(n) < 0.2, outlier, np.nan)
    random = audit(y, sensitive_features=NAMES[group], labels=drawn, label_propensity=0.2, **PLAIN)
    truth = np.ptp([(y > np.quantile(y, 0.9))[outlier & (group == g)].mean() for g in (0, 1)])
    m = random.get("true_positive_rate_gap")
    assert m.low <= truth <= m.high
    assert m.p < 0.001


def test_a_missing_value_in_given_is_no_stratum_and_said():
    rng = np.random.default_rng(0)
    group, given = rng.choice(["f", "m"], 600), rng.choice(["x", "y", None], 600, p=[0.5, 0.4, 0.1])
    y = rng.normal(size=600)
    found = audit(y, sensitive_features=group, given=given, **PLAIN)
    known = np.array([value is not None for value in given])
    only = audit(y[known], sensitive_features=group[known], given=given[known], **PLAIN)
    assert found.get("conditional_parity").value == pytest.approx(only.get("conditional_parity").value, rel=1e-9)
    assert [m.detail for m in found.measures if m.measure == "parity_within"] == ["x", "y"]
    assert f"{(~known).sum()} of 600 rows have a missing value in given: they are in no stratum" in found.notes
    people = found.table("strata").strata["people"].sum()
    assert people == known.sum()


def test_individual_unfairness_is_shown_beside_shuffled_groups_and_not_tested():
    """A score of the features alone, which differ by group: like rows score alike, and nothing may be found."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 400)
    X = rng.normal(size=(400, 2)) + group[:, None]
    found = audit(X.sum(axis=1), sensitive_features=NAMES[group], X=X, **PLAIN)
    m = found.get("individual_unfairness")
    assert np.isnan(m.p)
    assert found.get("individual_unfairness_shuffled").value != m.value
    assert "  the same with shuffled groups" in repr(found)


def decile_scores(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    hidden = rng.normal(size=n) + 0.4 * (group == 2)
    return np.clip(np.ceil(10 * norm.cdf(hidden - 0.3)), 1, 10).astype(int), group


def test_a_decile_score_is_flagged_by_the_nearest_share_or_by_its_threshold():
    y, group = decile_scores()
    found = audit(y, sensitive_features=NAMES[group], **PLAIN)
    shares = {cut: float((y >= cut).mean()) for cut in range(2, 11)}
    nearest = min(shares, key=lambda cut: abs(shares[cut] - 0.1))
    assert found.flagged_counts.sum() == (y >= nearest).sum()
    assert f"{100 * shares[nearest]:.3g}% flagged (10% asked for: ties)" in repr(found).splitlines()[0]
    eight = audit(y, sensitive_features=NAMES[group], threshold=8, **PLAIN)
    column = audit(y, sensitive_features=NAMES[group], flags=(y >= 8).astype(int), **PLAIN)
    assert "flagged: score of 8 or more" in repr(eight)
    for g, name in enumerate(NAMES):
        assert eight.get("flag_rate", name).value == pytest.approx((y[group == g] >= 8).mean())
    for a, b in zip(eight.measures, column.measures, strict=True):
        assert [a.value, a.low, a.high, a.p] == pytest.approx([b.value, b.low, b.high, b.p], nan_ok=True)


def test_flags_that_are_no_function_of_the_score_are_measured_as_given():
    rng = np.random.default_rng(1)
    y, group = rng.normal(size=2000), rng.integers(0, 2, 2000)
    flags, labels = rng.random(2000) < np.where(group, 0.3, 0.2), rng.random(2000) < 0.2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = audit(y, sensitive_features=NAMES[group], flags=flags, labels=labels, **PLAIN)
    assert found.get("flag_rate", "b").value == pytest.approx(flags[group == 1].mean())
    assert found.get("true_positive_rate", "a").value == pytest.approx(flags[labels & (group == 0)].mean())
    assert found.get("flag_rate_ratio").p <= 0.01
    assert found.get("demographic_parity").value < 0.02


def test_a_gap_in_average_precision_agrees_with_its_test():
    """Unequal shares of outliers make average precision differ; shuffling groups within labels keeps that."""
    rng = np.random.default_rng(2)
    group = rng.integers(0, 2, 2000)
    labels = rng.random(2000) < np.where(group, 0.4, 0.15)
    y = rng.normal(size=2000) + labels
    found = audit(y, sensitive_features=NAMES[group], labels=labels, resamples=400)
    for name in ("auc_gap", "average_precision_gap", "precision_gap"):
        m = found.get(name)
        assert (m.low > 0) == (m.p <= 0.05), m
    assert found.get("average_precision_gap").p <= 0.01
