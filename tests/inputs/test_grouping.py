"""Columns become memberships: values, bands, strata and attributes, for any rows as for those of the fit."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, GroupProbabilities, Groups, audit
from evenout.exceptions import ContinuousWarning, InputError, SmallGroupWarning
from evenout.groups.model import (
    CUTS,
    Attribute,
    ColumnTally,
    Cut,
    count_rows,
    read_crossed,
    read_grouping,
    settle_grouping,
)
from evenout.out_of_core.engines import Engine, Partition

N = 400
RNG = np.random.default_rng(0)
AGE = RNG.normal(40, 12, N).round(2)
PEOPLE = pd.DataFrame({"age": AGE, "sex": RNG.choice(["f", "m"], N), "region": RNG.integers(0, 3, N)})
GIVEN = pd.DataFrame({"limit": RNG.lognormal(8, 1, N), "product": RNG.choice(["card", "loan"], N)})
LABELS = np.where(RNG.random(N) < 0.2, np.nan, RNG.integers(0, 2, N))
RULES = Groups(min_size=5)


def read(columns, among=("all",), given=None, labels=None, **changes):
    rules = RULES.but(**changes)
    crossed = read_crossed(PEOPLE[columns], rules, N, given=given, labels=labels)
    grouping = read_grouping(crossed, among, rules)
    return crossed, None if grouping is None else grouping.members(crossed.numbers)


def hats(values, knots):
    """Bands by the textbook: each is 1 at its knot and falls to 0 at the knots beside it."""
    at = np.eye(len(knots))
    return np.column_stack([np.interp(values, knots, row) for row in at])


def test_plain_groups_need_no_membership():
    crossed, members = read(["sex", "region"])
    assert members is None
    assert crossed.groups.labels == tuple(f"sex={sex}, region={place}" for sex in "fm" for place in range(3))
    assert crossed.sensitive is not None


def test_bands_are_hats_at_the_quantiles():
    _, members = read(["age"], continuous=("age",))
    knots = np.quantile(AGE, [0.1, 0.3, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(members.weights.toarray(), hats(AGE, knots))
    (block,) = members.compared.blocks
    assert (block.groups, block.by_size, block.of) == ((0, 1, 2, 3, 4), True, "age")
    assert members.compared.overlaps == ((0, 1), (1, 2), (2, 3), (3, 4))
    np.testing.assert_allclose(members.weights.sum(axis=0), N / 5, rtol=0.2)


def test_bands_crossed_with_values_are_products():
    crossed, members = read(["age", "sex"], continuous=("age",), bands=3)
    bands, female = hats(AGE, np.quantile(AGE, [1 / 6, 0.5, 5 / 6])), (PEOPLE["sex"] == "f").to_numpy()
    expected = np.column_stack([bands[:, g] * sex for g in range(3) for sex in (female, ~female)])
    np.testing.assert_allclose(members.weights.toarray(), expected)
    assert members.compared.overlaps == ((0, 2), (1, 3), (2, 4), (3, 5))
    assert [name[:5] for name in crossed.groups.labels] == ["age 1", "age 1", "age 2", "age 2", "age 3", "age 3"]
    np.testing.assert_array_equal(crossed.groups.codes, members.codes)


def test_attributes_side_by_side_count_alike():
    _, members = read(["sex", "region"], cross=False)
    sex, region = members.compared.blocks
    assert (sex.groups, sex.of, sex.weight) == ((0, 1), "sex", 0.5)
    assert (region.groups, region.of, region.weight) == ((2, 3, 4), "region", 0.5)
    assert set(members.compared.overlaps) == {(g, h) for g in (0, 1) for h in (2, 3, 4)}
    _, both = read(["sex", "region"], cross="both")
    crossing = both.compared.blocks[-1]
    assert (len(crossing.groups), crossing.of, crossing.weight) == (6, "sex & region", pytest.approx(1 / 3))
    # female is shared with the crossings of females alone
    assert [h for g, h in both.compared.overlaps if g == 0] == [2, 3, 4, 5, 6, 7]


def test_crossings_that_are_too_small_are_no_matter_where_attributes_stand_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crossed, members = read(["sex", "region"], cross=False, min_size=80, small="error")
    assert len(crossed.groups.labels) < 6
    assert members.n_groups == 5


def test_strata_are_cut_at_quantiles_and_count_by_their_rows():
    _, members = read(["sex"], given=GIVEN)
    limit = np.searchsorted(np.quantile(GIVEN["limit"], np.arange(1, CUTS) / CUTS), GIVEN["limit"], side="left")
    place = 2 * limit + (GIVEN["product"] == "loan").to_numpy()
    assert members.n_groups == 2 * 2 * CUTS
    for block, stratum in zip(members.compared.blocks, range(2 * CUTS), strict=True):
        female, male = ((place == stratum) & (PEOPLE["sex"] == sex).to_numpy() for sex in "fm")
        found = members.weights.toarray()[:, block.groups]
        np.testing.assert_array_equal(found, np.column_stack([female, male]))
        assert block.weight == pytest.approx((place == stratum).mean())
    assert members.compared.overlaps == ()


def test_strata_without_two_groups_are_left_out_with_a_word():
    lone = pd.DataFrame({"product": np.where(PEOPLE["sex"] == "f", GIVEN["product"], "loan")})
    with pytest.warns(SmallGroupWarning, match=r"1 strata of given have no two groups of 5 rows"):
        _, members = read(["sex"], given=lone)
    assert members.n_groups == 2
    with pytest.raises(InputError, match=r"no two groups of 5 rows in any of . strata"):
        read(["sex"], given=PEOPLE["sex"])


def test_rows_of_known_outcome_are_told_apart():
    _, members = read(["sex"], among=("outliers", "inliers"), labels=LABELS)
    assert [(block.among, block.groups, block.weight) for block in members.compared.blocks] == [
        ("outliers", (0, 1), 1.0),
        ("inliers", (2, 3), 1.0),
    ]
    female = (PEOPLE["sex"] == "f").to_numpy()
    expected = np.column_stack([(label == LABELS) & of for label in (1, 0) for of in (female, ~female)])
    np.testing.assert_array_equal(members.weights.toarray(), expected)


def test_groups_of_too_few_known_outliers_are_named():
    few = np.where((PEOPLE["region"] == 1) & (np.cumsum(PEOPLE["region"] == 1) > 3), np.nan, 1.0)
    with pytest.warns(SmallGroupWarning, match=r"fewer than 5 known outliers are left out: 'region=1' \(3\)"):
        _, members = read(["region"], among=("outliers",), labels=few)
    assert members.n_groups == 2
    with pytest.raises(InputError, match="no two groups of 5 known inliers"):
        read(["region"], among=("inliers",), labels=few)


@pytest.mark.filterwarnings("ignore::evenout.exceptions.SmallGroupWarning")
@pytest.mark.parametrize("changes", [{"continuous": ("age",)}, {"continuous": ("age",), "cross": False}])
def test_rows_that_come_in_chunks_have_the_same_columns(changes):
    rules = RULES.but(**changes, min_size=2)
    columns = PEOPLE[["age", "sex"]].assign(sex=PEOPLE["sex"].where(AGE > 25))
    crossed = read_crossed(columns, rules.but(unknown="ignore"), N, given=GIVEN, labels=LABELS)
    among = ("all", "inliers")
    grouping = settle_grouping(crossed.coder, count_rows(crossed.coder, crossed.numbers), among, rules)
    whole = grouping.members(crossed.numbers)
    for rows in np.array_split(np.arange(N), [1, 7, 250]):
        beside = columns.iloc[rows], GIVEN.iloc[rows], LABELS[rows]
        part = grouping.members(crossed.coder.encode(*beside, len(rows)))
        np.testing.assert_array_equal(part.weights.toarray(), whole.weights.toarray()[rows])
        assert part.compared == whole.compared


def test_fractions_of_many_values_are_a_number_and_others_are_not():
    with pytest.warns(ContinuousWarning, match="more than 20 values with fractions in column 'age'"):
        crossed, members = read(["age"])
    assert members.n_groups == 5
    assert crossed.coder.attributes[0].knots is not None
    for values in (PEOPLE["age"].round(), PEOPLE["age"].astype(str), PEOPLE["age"].astype("category")):
        seen = ColumnTally.of(values)
        assert not seen.continuous
    assert not ColumnTally.of(pd.Series([0.5, 1.5] * 30)).continuous


def test_numbers_that_are_none_are_refused():
    with pytest.raises(InputError, match=r"column 'sex' must hold numbers, but has 'm?f?' in row 0"):
        read(["sex"], continuous=("sex",))
    with pytest.raises(InputError, match=r"continuous=...\) names 'height', but the columns of .* are 'age'"):
        read(["age"], continuous=("height",))
    with pytest.raises(InputError, match="column 'age', which has one value only"):
        Attribute.of_bands("age", ColumnTally.of(pd.Series([3.0, 3.0])).numbers, 5)


def test_a_number_of_few_values_is_cut_between_them():
    values = pd.Series([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, np.nan])
    cut = Cut.of("binary", ColumnTally.of(values))
    assert cut.encode(values)[[0, 9]].tolist() == [0.0, 1.0]
    assert np.isnan(cut.encode(values)[10])
    assert len(cut.part_names) == 2


def test_probabilities_are_memberships_with_a_bound():
    sure = RNG.dirichlet([2.0, 1.0, 1.0], N)
    frame = pd.DataFrame(sure, columns=["a", "b", "c"])
    frame.iloc[3] = np.nan
    found = GroupProbabilities(frame)
    crossed = read_crossed(found, RULES.but(unknown="ignore"), N)
    members = read_grouping(crossed, ("all",), RULES).members(crossed.numbers)
    expected = sure.copy()
    expected[3] = 0.0
    np.testing.assert_allclose(members.weights.toarray(), expected)
    assert members.compared.overlaps == ((0, 1), (0, 2), (1, 2))
    assert not members.compared.blocks[0].by_size
    p = np.delete(sure[:, 1], 3)
    assert found.bound()["b"] == pytest.approx(np.sqrt((p * (1 - p)).mean()) / p.mean())
    with pytest.raises(InputError, match=r"row 1 that are negative, or do not sum to 1: \[0.5, 0.6\]"):
        GroupProbabilities([[0.5, 0.5], [0.5, 0.6]])


def told(sensitive, **changes):
    """What is said of protected columns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rules = RULES.but(**changes)
        crossed = read_crossed(sensitive, rules, len(sensitive))
        read_grouping(crossed, ("all",), rules)
    return [str(warning.message) for warning in caught]


def test_many_whole_numbers_are_answered_by_the_two_ways_to_compare_them():
    rng = np.random.default_rng(0)
    ages = pd.DataFrame({"SEX": rng.integers(1, 3, 3000), "AGE": rng.integers(20, 50, 3000)})
    first, *others = told(ages, min_size=50)
    assert "'AGE', and each is a group of its own; set groups=Groups(continuous=('AGE',))" in first
    assert "or give the column as text if each number is meant as a group" in first
    assert len(others) == 1  # the small groups, a few of them by name
    assert " more; their rows are scored" in others[0]
    assert others[0].count("AGE=") == 4
    assert not [text for text in told(ages.astype({"AGE": str}), min_size=5) if "continuous" in text]
    assert told(ages, continuous=("AGE",)) == []


def test_fits_audits_and_fits_over_partitions_say_the_same_of_whole_numbers():
    rng = np.random.default_rng(0)
    X, ages = pd.DataFrame(rng.normal(size=(900, 3))).add_prefix("x"), pd.DataFrame({"AGE": rng.integers(20, 45, 900)})
    parts = [Partition(i, f"part-{i}", partial(tuple, (X[i::3], ages[i::3]))) for i in range(3)]
    uses = {
        "fit": lambda model: model.fit(X, sensitive_features=ages),
        "audit": lambda _: audit(X["x0"], sensitive_features=ages, resamples=0, groups=Groups(min_size=5)),
        "all partitions": lambda model: model.fit_partitions(Engine(parts, X[:0])),
        "a reference": lambda model: model.set_params(reference_size=300).fit_partitions(Engine(parts, X[:0])),
    }
    for name, use in uses.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            use(FairOutlierEnsemble(random_state=0, alpha=1.0, groups=Groups(min_size=5)))
        said = [str(each.message) for each in caught if each.category is ContinuousWarning]
        assert said == [
            "sensitive_features has more than 20 whole numbers in column 'AGE', and each is a group of its own; set "
            "groups=Groups(continuous=('AGE',)) to compare along the number, or give the column as text if each number "
            "is meant as a group"
        ], name


def test_very_many_crossed_groups_are_answered_by_each_attribute_by_itself():
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"race": rng.integers(8, size=2000), "region": rng.integers(5, size=2000)})
    assert told(people) == [
        "'race' and 'region' make 40 groups where they are crossed; set groups=Groups(cross=False) to compare each by "
        "itself"
    ]
    assert told(people, cross=False) == []


def test_columns_of_one_attribute_are_told_from_several_attributes():
    rng = np.random.default_rng(0)
    race = pd.get_dummies(pd.Series(rng.choice(["asian", "black", "white"], 500)), prefix="race")
    (text,) = told(race)
    assert text.startswith("each row has a 1 in exactly one of 'race_asian', 'race_black' and 'race_white'")
    assert "they look like one attribute, but are crossed as 3" in text
    assert [t for t in told(race.assign(sex=rng.integers(2, size=500))) if "exactly one of 'race_asian'" in t]
    assert told(race.assign(race_white=rng.integers(2, size=500))) == []
