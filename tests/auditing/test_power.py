import numpy as np
import pytest
from scipy import stats

from evenout.auditing import audit
from evenout.auditing.measures import mean_gap, rate_gap

PLAIN = {"resamples": 199}


def shuffled(freedom, size=200_000):
    """A chi-square distribution, in equal parts."""
    return stats.chi2.ppf((np.arange(size) + 0.5) / size, freedom)


def test_gap_of_two_means_is_the_textbooks():
    """Two groups, 5 % level, 80 % power: 1.960 + 0.842 standard errors."""
    gap = mean_gap(0.3, shuffled(1), 1, 0.95)
    assert gap / 0.3 == pytest.approx(stats.norm.ppf(0.975) + stats.norm.ppf(0.8), abs=0.002)


@pytest.mark.parametrize("freedom", [2, 3, 9])
def test_gap_with_more_groups_is_that_of_a_noncentral_chi_square(freedom):
    gap = mean_gap(1.0, shuffled(freedom), freedom, 0.99)
    critical = stats.chi2.ppf(0.99, freedom)
    assert stats.ncx2.sf(critical, freedom, gap**2) == pytest.approx(0.8, abs=0.002)


def test_clusters_make_the_unit_larger_but_not_the_gap_in_it():
    """A chi-square that clusters make five times as large says nothing more, if the error knows of them."""
    assert mean_gap(1.0, 5 * shuffled(3), 3, 0.95) == pytest.approx(mean_gap(1.0, shuffled(3), 3, 0.95))
    one, five = (rate_gap(n, n, 0.3, unit * shuffled(1), 1, 0.95) for n, unit in ((100, 1), (500, 5)))
    assert five[0] == pytest.approx(one[0], abs=1e-3)


def test_difference_of_two_rates_is_the_textbooks():
    """200 in each group, 30 % of all: z_a sqrt(2 p q) + z_b sqrt(p1 q1 + p2 q2) = d sqrt(n)."""
    d = rate_gap(200, 200, 0.3, shuffled(1), 1, 0.95)[0]
    low, high = 0.3 - d / 2, 0.3 + d / 2
    right = 1.95996 * np.sqrt(2 * 0.3 * 0.7) + 0.84162 * np.sqrt(low * (1 - low) + high * (1 - high))
    assert d * np.sqrt(200) == pytest.approx(right, rel=0.003)


def test_a_difference_that_cannot_be_is_not_promised():
    difference, power = rate_gap(30, 400, 0.05, shuffled(1), 1, 0.95)
    assert np.isnan(difference)
    assert 0 < power < 0.5
    assert np.isnan(mean_gap(1.0, np.ones(10), 1, 0.95))  # ten permutations never reject


@pytest.mark.nightly
@pytest.mark.long
def test_stated_gap_of_means_is_seen_80_percent_of_the_time():
    """Three groups, one small, of unequal spread; the third lies between by the precision of the two means."""
    rng = np.random.default_rng(0)
    sizes, spread = np.array([40, 60, 200]), np.array([1.5, 1.0, 1.0])
    groups = np.repeat([0, 1, 2], sizes)

    def draw(gap):
        noise = spread**2 / sizes
        place = np.array([0.0, gap, gap * noise[0] / (noise[0] + noise[1])])
        return rng.normal(size=300) * spread[groups] + place[groups]

    stated = []
    for seed in range(40):
        found = audit(draw(0.0), sensitive_features=groups, **PLAIN, random_state=seed)
        m = found.get("mean_score_detectable")
        if m.note.startswith(("between '0' and '1'", "between '1' and '0'")):
            stated.append(m.value * found.scores.std())
    gap = float(np.mean(stated))
    p = [
        audit(draw(gap), sensitive_features=groups, **PLAIN, random_state=i).get("mean_score_test").p
        for i in range(280)
    ]
    assert 0.75 < np.mean(np.array(p) <= 0.05) < 0.85


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(60, 240), pytest.param((50, 90, 260), marks=pytest.mark.nightly)])
def test_stated_difference_of_flag_rates_is_seen_80_percent_of_the_time(sizes):
    rng = np.random.default_rng(1)
    n, groups = sum(sizes), np.repeat(np.arange(len(sizes)), sizes)

    def draw(rates):
        """A fifth of the population is flagged, of each group at its rate."""
        return rng.normal(size=n) + (stats.norm.isf(0.2) - stats.norm.isf(rates))[groups]

    options = {"sensitive_features": groups, "contamination": 0.2, **PLAIN}
    even = [audit(draw([0.2] * len(sizes)), **options, random_state=i) for i in range(40)]
    stated = [m.value for m in (a.get("flag_rate_detectable") for a in even) if m.note.startswith("'0' above '1'")]
    d, two = float(np.mean(stated)), sizes[0] + sizes[1]
    rates = [0.2 + d * sizes[1] / two, 0.2 - d * sizes[0] / two, *[0.2] * (len(sizes) - 2)]
    p = [audit(draw(rates), **options, random_state=i).get("flag_rate_test").p for i in range(280)]
    assert 0.75 < np.mean(np.array(p) <= 0.05) < 0.85


@pytest.mark.long
def test_stated_difference_in_finding_outliers_is_seen_80_percent_of_the_time():
    rng = np.random.default_rng(2)
    groups, y = np.repeat([0, 1], 300), np.tile([0, 0, 1], 200)

    def draw(rates):
        """Half of the outliers is flagged, of each group at its rate, and no inlier; one in six of all rows."""
        return np.where(y == 1, rng.normal(size=600) - stats.norm.isf(rates)[groups], -9.0 + rng.random(600))

    options = {"sensitive_features": groups, "labels": y, "contamination": 1 / 6, **PLAIN}
    even = [audit(draw((0.5, 0.5)), **options, random_state=i) for i in range(40)]
    d = float(np.mean([a.get("true_positive_rate_detectable").value for a in even]))
    p = [
        audit(draw((0.5 - d / 2, 0.5 + d / 2)), **options, random_state=i).get("true_positive_rate_test").p
        for i in range(280)
    ]
    assert 0.75 < np.mean(np.array(p) <= 0.05) < 0.85


@pytest.mark.long
def test_stated_gap_within_strata_is_seen_80_percent_of_the_time():
    """The mix of groups differs between strata, and so does the spread."""
    rng = np.random.default_rng(3)
    strata = np.repeat([0, 1, 2], [120, 100, 80])
    groups = np.concatenate([np.arange(n) < part for n, part in ((120, 30), (100, 50), (80, 60))]).astype(int)
    spread = np.array([1.0, 0.7, 1.5])[strata]
    options = {"sensitive_features": groups, "given": strata.astype(str), **PLAIN}

    def draw(gap):
        return rng.normal(size=300) * spread + 2 * strata + gap * groups

    even = [audit(draw(0.0), **options, random_state=i) for i in range(40)]
    gap = float(np.mean([a.get("conditional_detectable").value * a.scores.std() for a in even]))
    p = [audit(draw(gap), **options, random_state=i).get("strata_test").p for i in range(280)]
    assert 0.75 < np.mean(np.array(p) <= 0.05) < 0.85
