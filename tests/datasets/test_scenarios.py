import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import minmax_scale

from evenout.datasets import list_scenarios, make_biased_outliers

SPURIOUS = ["variance", "shift", "measurement_noise", "under_representation"]


def codes(data):
    """Group numbers 0..g-1."""
    return data.sensitive.str.removeprefix("group ").astype(int).to_numpy() - 1


def parts(data):
    return data.X.filter(like="informative").to_numpy(), data.X.filter(like="nuisance").to_numpy()


def pair(scenario, n_groups, strength):
    """The data without and with the effect, from one seed."""
    return (
        make_biased_outliers(scenario, 1000, n_groups=n_groups, strength=s, random_state=5) for s in (0.0, strength)
    )


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("scenario", SPURIOUS)
def test_spurious_scenarios_leave_labels_and_groups_as_they_are(scenario, n_groups):
    plain, biased = pair(scenario, n_groups, 2.0)
    assert plain.y.equals(biased.y)
    assert plain.sensitive.equals(biased.sensitive)
    np.testing.assert_array_equal(parts(plain)[0], parts(biased)[0])
    first = codes(plain) == 0
    np.testing.assert_array_equal(plain.X[first], biased.X[first])


def test_variance_multiplies_nuisance_features():
    plain, biased = pair("variance", 3, 2.0)
    factor = np.array([1.0, 2.0, 3.0])[codes(plain)]  # 1 + s j / (g-1)
    np.testing.assert_allclose(parts(biased)[1], factor[:, None] * parts(plain)[1])


def test_shift_moves_nuisance_features():
    plain, biased = pair("shift", 3, 2.0)
    move = np.array([0.0, 2.5, 5.0])[codes(plain)]
    np.testing.assert_allclose(parts(biased)[1] - parts(plain)[1], np.tile(move[:, None], 4), atol=1e-12)


def test_measurement_noise_is_student_in_the_nuisance_features_alone():
    plain, biased = pair("measurement_noise", 3, 2.0)
    noise = (biased.X - plain.X).to_numpy()
    np.testing.assert_array_equal(noise[:, :4], 0)
    for group, scale in enumerate([0.0, 1.0, 2.0]):
        # Three quarters of a Student distribution with 3 degrees of freedom lie within 1.4226.
        errors = np.abs(noise[codes(plain) == group, 4:])
        np.testing.assert_allclose(np.quantile(errors, 0.75), 1.4226 * scale, rtol=0.1)


def test_under_representation_moves_each_small_group_along_its_own_axis():
    plain, biased = pair("under_representation", 3, 0.5)
    assert biased.sensitive.value_counts().to_dict() == {"group 1": 900, "group 2": 50, "group 3": 50}
    axes = np.array([[0, 0, 0, 0], [2, 0, 0, 0], [0, 2, 0, 0]])  # 4 s = 2
    np.testing.assert_allclose(parts(biased)[1] - parts(plain)[1], axes[codes(plain)], atol=1e-12)


def test_base_rate_has_the_rates_of_successive_weighted_draws():
    data = make_biased_outliers("base_rate", 40_000, n_groups=3, outlier_rate=0.2, random_state=0)
    share, weight = np.array([9, 3, 1]) / 13, np.array([1, 2.5, 4])
    # With many rows, drawing until a share 0.2 is taken includes a row of weight w with 1 - exp(-w t).
    t = brentq(lambda t: share @ (1 - np.exp(-weight * t)) - 0.2, 0, 10)
    rates = data.y.groupby(codes(data)).mean()
    np.testing.assert_allclose(rates, 1 - np.exp(-weight * t), atol=0.03)
    np.testing.assert_allclose(np.bincount(codes(data)) / 40_000, share, atol=1e-4)


@pytest.mark.parametrize("scenario", SPURIOUS)
def test_spurious_scenarios_have_labels_independent_of_group(scenario):
    data = make_biased_outliers(scenario, 40_000, n_groups=3, random_state=0)
    assert data.y.sum() == 4000
    np.testing.assert_allclose(data.y.groupby(codes(data)).mean(), 0.1, atol=0.02)


@pytest.mark.parametrize("scenario", ["variance", "shift", "under_representation"])
def test_informative_features_alone_give_even_flags(scenario):
    data = make_biased_outliers(scenario, 40_000, random_state=0)
    distance = (parts(data)[0] ** 2).sum(axis=1)
    assert roc_auc_score(data.y, distance) > 0.9
    assert flag_rate_ratio(distance, data) > 0.85


def flag_rate_ratio(score, data):
    """Flag the 10 % of highest score: the first group's rate over the last group's."""
    flagged = score >= np.quantile(score, 0.9)
    rates = np.bincount(codes(data), weights=flagged) / np.bincount(codes(data))
    return rates[0] / rates[-1]


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("scenario", list_scenarios())
def test_detectors_are_good_and_flag_the_last_group_more(scenario, n_groups):
    data = make_biased_outliers(scenario, n_groups=n_groups, random_state=0)
    X = data.X.to_numpy()
    forest = -IsolationForest(random_state=0).fit(X).score_samples(X)
    nearest = NearestNeighbors(n_neighbors=20).fit(X).kneighbors()[0].mean(axis=1)
    for score in (forest, nearest, minmax_scale(forest) + minmax_scale(nearest)):
        assert 0.84 < roc_auc_score(data.y, score) < 0.96
        assert flag_rate_ratio(score, data) < 0.8


def test_make_biased_outliers_depends_on_the_seed_alone():
    one, same, other = (make_biased_outliers("shift", 200, random_state=seed) for seed in (1, 1, 2))
    assert one.X.equals(same.X)
    assert one.sensitive.equals(same.sensitive)
    assert not one.X.equals(other.X)
    by_generator = [make_biased_outliers("shift", 200, random_state=np.random.default_rng(7)).X for _ in range(2)]
    assert by_generator[0].equals(by_generator[1])


def test_make_biased_outliers_says_what_it_simulates():
    data = make_biased_outliers("base_rate", 100, outlier_rate=0.001, strength=0.5, random_state=0)
    assert repr(data) == "Dataset('base_rate': 100 rows, 8 features, 1 outliers; group: 2 groups)"
    assert "this gap is real (strength 0.5)" in data.description


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scenario": "noise"}, "scenario is 'noise'; choose one of variance, shift, measurement_noise"),
        ({"n": 99}, "n is 99; ask for at least 100"),
        ({"n_groups": 4}, "n_groups is 4; it must be 2 or 3"),
        ({"outlier_rate": 0.6}, "outlier_rate is 0.6"),
        ({"strength": -1.0}, "strength is -1.0; it must be a finite number, at least 0"),
    ],
)
def test_make_biased_outliers_rejects_with_the_value_found(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_biased_outliers(**{"scenario": "shift", **arguments})
