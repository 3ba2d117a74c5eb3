import numpy as np
import pytest

from evenout import Groups
from evenout.report.privacy import guard_counts, pool_bins

SMALLEST = 10


def test_large_cells_are_exact():
    counts, rest = np.array([10, 40]), np.array([90, 60])
    low, high = guard_counts(counts, rest, SMALLEST)
    assert low.tolist() == high.tolist() == [10, 40]


def test_all_but_a_few_is_as_telling_as_a_few():
    low, high = guard_counts(np.array([95, 100]), np.array([5, 400]), SMALLEST)
    assert (low[0], high[0]) == (91, 100)
    assert (low[1], high[1]) == (95, 104)


def test_size_of_a_small_group_is_not_given_away():
    for size in (1, 3, 9):
        _, high = guard_counts(np.array([1, 100]), np.array([size - 1, 900]), SMALLEST)
        assert high[0] == 9


def test_no_hidden_count_follows_from_the_others_and_the_total():
    """A reader who knows the total and all ranges must find every value of a small cell's range possible."""
    rng = np.random.default_rng(0)
    hidden = 0
    for _ in range(3000):
        sizes = rng.integers(1, 400, size=rng.integers(2, 6))
        counts = rng.binomial(sizes, rng.choice([0.02, 0.1, 0.5, 0.97]))
        low, high = guard_counts(counts, sizes - counts, SMALLEST)
        assert (low <= counts).all()
        assert (counts <= high).all()
        for g in np.flatnonzero((counts < SMALLEST) | (sizes - counts < SMALLEST)):
            others = np.arange(len(sizes)) != g
            spare = counts.sum() - np.array([high[g], low[g]])  # what the other cells must add up to
            if low.sum() == 0:  # nothing is shown at all
                continue
            hidden += 1
            assert low[others].sum() <= spare[0]
            assert spare[1] <= high[others].sum()
            assert high[g] - low[g] >= min(SMALLEST - 1, sizes[g])
    assert hidden > 500


def test_pooled_bins_keep_the_sum_and_hold_enough_people():
    rng = np.random.default_rng(1)
    for _ in range(500):
        counts = rng.poisson(30 * np.exp(-0.5 * np.linspace(-3, 6, 40) ** 2))
        pooled = pool_bins(counts, SMALLEST)
        assert pooled.sum() == pytest.approx(counts.sum())
        edges = np.flatnonzero(np.diff(pooled) != 0) + 1
        held = [part.sum() for part in np.split(pooled, edges)]
        assert all(people == 0 or people >= SMALLEST - 1e-9 for people in held)


def test_few_people_become_one_even_block():
    assert pool_bins(np.array([0, 4, 0, 5, 3, 0]), SMALLEST).tolist() == [0, 3, 3, 3, 3, 0]


def test_without_a_limit_everything_is_exact():
    counts = np.array([0, 1, 7, 0, 2])
    assert pool_bins(counts, 0).tolist() == counts.tolist()
    low, high = guard_counts(counts, counts, 0)
    assert low.tolist() == high.tolist() == counts.tolist()


def test_small_group_is_hidden_everywhere(make):
    case = make(sizes=(500, 300, 200, 6), groups=Groups(min_size=2))
    data = case.collect()
    tiny = [group.name for group in data.groups].index("sex=m, age=young")
    assert data.groups[tiny].size == (0, 9)
    assert sum(low < high for low, high in (group.size for group in data.groups)) == 2
    for score in (data.base, *(step.score for step in data.steps)):
        assert score.flags.counts[tiny] == (0, 9)
        assert score.flags.rates[tiny] == (0, 1)
        assert score.flags.ratio[0] == 0
        assert score.spread.heights[tiny] is None
        assert score.spread.means[tiny] is None
        assert score.beyond is None
        assert score.apart <= np.ptp([mean for mean in score.spread.means if mean is not None]) + 1e-12
        assert all(low == high or high - low >= 9 for low, high in score.flags.counts)
    shown = case.collect(show_small_cells=True)
    assert shown.groups[tiny].size == (6, 6)
    assert all(low == high for low, high in shown.base.flags.counts)


@pytest.mark.filterwarnings("ignore::evenout.exceptions.SmallGroupWarning")
def test_groups_too_small_to_compare_are_named_but_not_counted(make):
    data = make(sizes=(500, 300, 6, 3)).collect()
    assert data.left_out_groups == ("sex=m, age=old", "sex=m, age=young")
    assert data.groups[-1].name == "too few people to compare"
    assert data.groups[-1].size == (0, 9)
    assert data.base.spread.means[-1] is None


def test_few_movers_are_neither_counted_nor_named(case, data):
    exact = case.collect(show_small_cells=True)
    hidden = 0
    named = set()
    for step, truth in zip(data.steps, exact.steps, strict=True):
        for shown, real in ((step.moves.enter, truth.moves.enter), (step.moves.leave, truth.moves.leave)):
            assert shown == ((1, 9) if 0 < real[0] < SMALLEST else real)
            hidden += 0 < real[0] < SMALLEST
        leaving = [data.people[i].leaves for i in step.moves.listed]
        assert leaving.count(True) in (0, truth.moves.leave[0])
        assert leaving.count(False) in (0, truth.moves.enter[0])
        named |= set(step.moves.listed)
    assert hidden > 0
    assert named == set(range(len(data.people)))  # nobody is in the file who is not on the page


def test_groups_stand_beside_ids_only_if_asked(case, data):
    assert {person.group for person in data.people} == {None}
    groups = {person.id: person.group for person in case.collect(show_small_cells=True).people}
    assert all(case.groups[int(row)] == group for row, group in groups.items())


def test_few_known_outliers_hide_the_auc(case):
    y = np.zeros(1000, dtype=int)
    y[:9] = 1
    data = case.collect(labels=y)
    assert (data.labels, data.base.auc) == ("too few", None)
    assert case.collect(labels=y, show_small_cells=True).base.auc is not None


def test_people_of_unknown_group_are_a_cell_of_their_own(make):
    case = make(groups=Groups(unknown="ignore"))
    sensitive = case.sensitive.copy()
    sensitive.loc[:3, "sex"] = None
    case.model.fit(case.X, sensitive_features=sensitive)
    data = case.collect(sensitive_features=sensitive)
    assert data.groups[-1].name == "group not known"
    assert data.groups[-1].size == (0, 9)
    assert data.n_groups == 3
