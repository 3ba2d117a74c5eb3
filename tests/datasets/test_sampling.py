import numpy as np
import pandas as pd
import pytest

from evenout.datasets import sample_groups


def frequencies(groups):
    return groups.value_counts(normalize=True).sort_index().to_numpy()


@pytest.mark.parametrize(
    ("strength", "expected"),
    [
        (0.0, [1 / 3, 1 / 3, 1 / 3]),
        (1.0, [0.07061, 0.22329, 0.70610]),  # 1 : sqrt(10) : 10
        (2.0, [0.00901, 0.09009, 0.90090]),  # 1 : 10 : 100
        (-1.0, [0.70610, 0.22329, 0.07061]),
    ],
)
def test_sample_groups_has_the_documented_probabilities(strength, expected):
    n = 100_000
    y = np.tile([0, 1], n)
    groups = sample_groups(y, 3, strength=strength, random_state=0)
    four_sigma = 4 * 0.5 / np.sqrt(n)
    np.testing.assert_allclose(frequencies(groups[y == 1]), expected, atol=four_sigma)
    np.testing.assert_allclose(frequencies(groups[y == 0]), np.full(3, 1 / 3), atol=four_sigma)


def test_sample_groups_leaves_no_group_empty():
    for seed in range(20):
        groups = sample_groups(np.ones(4), 4, strength=500.0, random_state=seed)
        assert sorted(groups) == ["group 1", "group 2", "group 3", "group 4"]


def test_sample_groups_depends_on_the_seed_alone():
    y = np.repeat([0, 1], 50)
    same = sample_groups(y, 4, random_state=3)
    assert same.equals(sample_groups(list(y), 4, random_state=np.random.RandomState(3)))
    assert not same.equals(sample_groups(y, 4, random_state=4))


def test_sample_groups_accepts_and_advances_a_generator():
    y = np.repeat([0, 1], 50)
    generator = np.random.default_rng(0)
    first, second = (sample_groups(y, 2, random_state=generator) for _ in range(2))
    assert first.equals(sample_groups(y, 2, random_state=np.random.default_rng(0)))
    assert not first.equals(second)


def test_sample_groups_keeps_the_index_of_the_labels():
    y = pd.Series([0, 1, 0, 1], index=list("abcd"))
    groups = sample_groups(y, 2, random_state=0)
    assert groups.index.equals(y.index)
    assert groups.name == "group"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [0, 1, 1], "n_groups": 1}, "n_groups is 1; it must lie between 2 and the number of rows, 3"),
        ({"y": [0, 1, 1], "n_groups": 4}, "n_groups is 4"),
        ({"y": [0, 1, 2], "n_groups": 2}, "y is '2' in row 2; labels must be 0, or 1"),
        (
            {"y": [[0], [1]], "n_groups": 2},
            r"y must hold one label per row, shape \(n,\), got shape \(2, 1\)",
        ),
        ({"y": [0, 1], "n_groups": 2, "strength": np.nan}, "strength is nan; it must be a finite number"),
    ],
)
def test_sample_groups_rejects_with_the_value_found(arguments, message):
    with pytest.raises(ValueError, match=message):
        sample_groups(**arguments)
