"""Notions of fairness in a fit: each does the right thing where plain parity does the wrong one."""

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, GroupProbabilities, Groups
from evenout.core.notions import Notion
from evenout.exceptions import AttributeWarning, InputError, NoGapWarning, SmallGroupWarning
from evenout.persistence import load_model, save_model


def _column(j):
    def score(X):
        return X[:, j]

    return score


DETECTORS = [(f"x{j}", _column(j)) for j in range(4)]


def model_of(**settings):
    return FairOutlierEnsemble(DETECTORS, random_state=0, **settings)


def share_between(y, codes):
    """Share of the variance of y that lies between the groups."""
    means = np.array([y[codes == g].mean() for g in np.unique(codes)])
    share = np.array([(codes == g).mean() for g in np.unique(codes)])
    return float(share @ (means - share @ means) ** 2 / y.var())


def test_a_legitimate_stratum_is_left_alone():
    """Loans are larger than cards, and women take more loans; with the same product nothing differs."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 3000)
    loan = rng.random(3000) < 0.2 + 0.5 * sex
    X = rng.normal(size=(3000, 4)) + 1.5 * loan[:, None]
    given = pd.DataFrame({"product": np.where(loan, "loan", "card")})
    plain = model_of().fit(X, sensitive_features=sex)
    assert plain.gap_detected_
    assert plain.path_.correlation(plain.alpha_) < 0.99  # parity takes the difference of the products away
    with pytest.warns(NoGapWarning):
        within = model_of().fit(X, sensitive_features=sex, given=given)
    np.testing.assert_array_equal(within.outlier_scores_, within.target_)


def test_a_gap_within_strata_is_removed_where_the_strata_hide_it():
    """Women score higher with each product, and take more often the product that scores low: overall all is even."""
    rng = np.random.default_rng(1)
    sex = rng.integers(0, 2, 4000)
    loan = rng.random(4000) < 0.75 - 0.5 * sex
    X = rng.normal(size=(4000, 4))
    X[:, :3] += 1.2 * loan[:, None]
    X[:, 3] += 2.4 * sex
    shift = X.mean(axis=1)
    X[:, 3] -= (shift[sex == 1].mean() - shift[sex == 0].mean()) * 4 * sex  # even overall
    with pytest.warns(NoGapWarning):
        model_of().fit(X, sensitive_features=sex)
    within = model_of().fit(X, sensitive_features=sex, given=loan)
    assert within.gap_detected_
    gaps = []
    for y in (within.target_, within.outlier_scores_):
        apart = [y[(sex == 1) & (loan == b)].mean() - y[(sex == 0) & (loan == b)].mean() for b in (False, True)]
        gaps.append(np.mean(np.square(apart)) / y.var())
    assert gaps[1] < 0.35 * gaps[0]


def test_a_smooth_trend_that_two_bins_miss_is_removed():
    """The young and the old score higher alike: halves at the median age do not differ."""
    rng = np.random.default_rng(2)
    age = rng.uniform(20, 70, 4000)
    X = rng.normal(size=(4000, 4))
    X[:, 0] += 3.0 * ((age - 45) / 25) ** 2
    halves = np.where(age < 45, "young", "old")
    with pytest.warns(NoGapWarning):
        model_of().fit(X, sensitive_features=halves)
    smooth = model_of(groups=Groups(continuous=("age",))).fit(X, sensitive_features=pd.DataFrame({"age": age}))
    deciles = np.searchsorted(np.quantile(age, np.arange(0.1, 1, 0.1)), age)
    before, after = (share_between(y, deciles) for y in (smooth.target_, smooth.outlier_scores_))
    assert after < 0.35 * before
    assert smooth.attribute_bias_["age"].before == pytest.approx(smooth.path_.target_bias())
    assert smooth.attribute_bias_["age"].after == pytest.approx(float(smooth.path_.bias(smooth.alpha_)))
    assert smooth.group_names_[0].startswith("age 1: below ")


@pytest.mark.long
def test_attributes_whose_crossings_are_tiny_are_compared_one_by_one():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"sex": rng.integers(0, 2, 1200), "town": rng.integers(0, 30, 1200), "kin": rng.integers(0, 20, 1200)}
    ).astype(str)
    X = rng.normal(size=(1200, 4))
    X[:, 0] += 1.5 * (frame["sex"] == "1")
    with pytest.warns(SmallGroupWarning, match="fewer than two groups are left to compare"):
        crossed = model_of().fit(X, sensitive_features=frame)
    np.testing.assert_array_equal(crossed.outlier_scores_, crossed.target_)
    each = model_of(groups=Groups(cross=False, min_size=20)).fit(X, sensitive_features=frame)
    bias = each.attribute_bias_
    assert list(bias) == ["sex", "town", "kin"]
    assert bias["sex"].after < 0.35 * bias["sex"].before
    assert each.path_.target_bias() == pytest.approx(np.mean([found.before for found in bias.values()]), rel=0.05)


def test_one_attribute_that_rises_while_another_falls_is_told():
    """Two columns hide a gap of sex from each other; to remove that of age, one of them is taken out."""
    rng = np.random.default_rng(4)
    old, sex = rng.integers(0, 2, (2, 6000))
    X = rng.normal(size=(6000, 4))
    X[:, 0] += 1.5 * old - 0.8 * sex
    X[:, 1] += 0.8 * sex
    frame = pd.DataFrame({"old": old, "sex": sex})
    with pytest.warns(AttributeWarning, match=r"the bias of 'sex' \(.* to .*\) rises while that of 'old' falls"):
        model = model_of(groups=Groups(cross=False)).fit(X, sensitive_features=frame)
    assert model.attribute_bias_["old"].after < 0.3 * model.attribute_bias_["old"].before
    assert model.attribute_bias_["sex"].after > model.attribute_bias_["sex"].before


def people(n, rng, false_alarms=0.0):
    """More outliers in the second group; inliers of it score higher by ``false_alarms``."""
    group = rng.integers(0, 2, n)
    outlier = rng.random(n) < 0.1 + 0.3 * group
    X = rng.normal(size=(n, 4)) + 2.0 * outlier[:, None]
    X[:, 0] += false_alarms * (group & ~outlier)
    return X, group, outlier


def test_base_rates_that_differ_are_no_gap_among_known_inliers():
    X, group, outlier = people(3000, np.random.default_rng(5))
    labels = np.where(np.random.default_rng(6).random(3000) < 0.5, outlier, np.nan)
    plain = model_of().fit(X, sensitive_features=group)
    assert plain.gap_detected_
    for fairness in ("equal_false_alarms", "equal_opportunity", "equalized_odds"):
        with pytest.warns(NoGapWarning):
            even = model_of(fairness=fairness).fit(X, sensitive_features=group, labels=labels, label_propensity=0.5)
        np.testing.assert_array_equal(even.outlier_scores_, even.target_)


def test_false_alarms_are_evened_out_and_real_outliers_stay():
    X, group, outlier = people(6000, np.random.default_rng(7), false_alarms=2.0)
    labels = np.where(np.random.default_rng(8).random(6000) < 0.5, outlier, np.nan)
    model = model_of(fairness="equal_false_alarms")
    model.fit(X, sensitive_features=group, labels=labels, label_propensity=0.5)
    assert model.path_.fairness == {"equal_false_alarms": 1.0}

    def gap(y):
        return abs(y[(group == 1) & ~outlier].mean() - y[(group == 0) & ~outlier].mean()) / y.std()

    assert gap(model.outlier_scores_) < 0.5 * gap(model.target_)


def test_notions_of_outcome_need_labels():
    X, group, _ = people(300, np.random.default_rng(9))
    with pytest.raises(InputError, match="fairness='equal_opportunity' compares rows of known outcome, but labels is"):
        model_of(fairness="equal_opportunity").fit(X, sensitive_features=group)
    with pytest.raises(InputError, match="labels is '2' in row 1; labels must be 0, or 1 for an outlier"):
        model_of(fairness="equal_opportunity").fit(X, sensitive_features=group, labels=[0, 2, *[1] * 298])
    with pytest.raises(InputError, match="fairness='individual' compares rows of crossed groups"):
        model_of(fairness="individual").fit(X, sensitive_features=group, given=group < 2)


class Spread(Notion):
    """A form of one's own: the variance of all rows, whatever the group."""

    name = "spread"

    def __init__(self, **needs):
        self.__dict__.update(needs)

    def form(self, cells):
        return cells.total[:, 1:, 1:] / cells.counts[:, None, None]


def test_what_a_notion_of_ones_own_needs_is_asked_for_in_its_name():
    X, group, outlier = people(300, np.random.default_rng(9))
    fit = {"X": X, "sensitive_features": group}
    with pytest.raises(InputError, match="fairness='spread' compares rows of known outcome, but labels is missing"):
        model_of(fairness=Spread(needs_labels=True), alpha=1.0).fit(**fit)
    model_of(fairness=Spread(needs_labels=True), alpha=1.0).fit(**fit, labels=outlier)
    pairs = model_of(fairness=Spread(needs_pairs=True), alpha=1.0)
    with pytest.raises(ValueError, match="sample_weight does not go with fairness='spread', which compares rows"):
        pairs.fit(**fit, sample_weight=np.ones(300))
    with pytest.raises(InputError, match="fairness='spread' compares rows of crossed groups"):
        pairs.fit(**fit, given=group < 2)
    with pytest.raises(InputError, match="fairness='spread' compares pairs of rows, whose sums do not add"):
        pairs.fit(**fit).update(X, sensitive_features=group)


def test_probabilities_tell_a_gap_that_the_likeliest_group_overstates():
    """The score depends on the place of residence, of which the probabilities tell, and on nothing else."""
    rng = np.random.default_rng(10)
    place = rng.random(20000)
    member = rng.random(20000) < place
    X = rng.normal(size=(20000, 4)) + 2.0 * place[:, None]
    sure = GroupProbabilities(pd.DataFrame({"other": 1 - place, "member": place}), sufficient=True)
    truth, weighted, likeliest = (
        model_of(alpha=0.0).fit(X, sensitive_features=groups).path_.target_bias()
        for groups in (member, sure, place > 0.5)
    )
    assert weighted == pytest.approx(truth, rel=0.15)
    assert likeliest > 1.5 * truth
    assert np.sqrt(truth) - np.sqrt(weighted) < sum(sure.bound().values())


def test_a_saved_model_knows_what_it_compared(tmp_path):
    rng = np.random.default_rng(11)
    frame = pd.DataFrame({"age": rng.uniform(20, 70, 900), "sex": rng.integers(0, 2, 900)})
    X, labels = rng.normal(size=(900, 4)) + 0.02 * frame[["age"]].to_numpy(), rng.integers(0, 2, 900)
    settings = {"groups": Groups(continuous=("age",), cross="both", bands=3), "alpha": 50.0}
    model = FairOutlierEnsemble(fairness="equalized_odds", random_state=0, **settings)
    model.fit(X, sensitive_features=frame, labels=labels, given=rng.integers(0, 2, 900))
    save_model(model, tmp_path / "model.skops", updatable=True)
    again = load_model(tmp_path / "model.skops")
    assert again.path_.cross.whole.compared == model.path_.cross.whole.compared
    assert again.attribute_bias_ == model.attribute_bias_
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(again.outlier_scores(X), model.outlier_scores(X))
    assert again.at(alpha=3.0).alpha_ == 3.0
