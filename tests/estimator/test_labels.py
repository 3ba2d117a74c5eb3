"""Labels where known: what the target learns, what it leaves alone, and that nothing else changes."""

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble
from evenout.exceptions import InputError, LabelCoverageWarning
from evenout.metrics import demographic_parity, read_labels, roc_auc
from evenout.persistence import load_model, save_model
from evenout.tables.rows import read_outcomes

pytestmark = pytest.mark.filterwarnings(
    "ignore::evenout.exceptions.TargetNotReachedWarning", "ignore::evenout.exceptions.NoGapWarning"
)


def draw(n, seed):
    """Outliers are far out in the first feature alone; the other nine are louder and say nothing."""
    rng = np.random.default_rng(seed)
    X, outlier = rng.standard_t(3, size=(n, 10)), rng.random(n) < 0.1
    X[:, 0] = rng.normal(size=n) + 2.5 * outlier
    groups = np.where(rng.random(n) < 0.4, "a", "b")
    X[:, 1] *= 1.0 + (groups == "a")
    return X, outlier.astype(float), groups


@pytest.fixture(scope="module")
def rows():
    X, outlier, groups = draw(2000, 0)
    labels = np.where(np.random.default_rng(5).random(2000) < 0.1, outlier, np.nan)
    return X, labels, groups


def make(**settings):
    return FairOutlierEnsemble("diverse", **{"random_state": 0, "bias_reduction": 0.5, **settings})


@pytest.fixture(scope="module")
def taught(rows):
    X, labels, groups = rows
    return make(learn=True).fit(X, sensitive_features=groups, labels=labels)


def test_labels_sharpen_the_target_on_rows_not_seen(rows, taught):
    X, _, groups = rows
    plain = make().fit(X, sensitive_features=groups)
    new, outlier, new_groups = draw(4000, 1)
    before, after = (roc_auc(outlier, model.base_scores(new)) for model in (plain, taught))
    assert after > before + 0.1
    assert roc_auc(outlier, taught.outlier_scores(new)) > before + 0.1
    assert 0.5 < taught.label_weight_ <= 1.0
    base, fair = (
        demographic_parity(scores(new), sensitive_features=new_groups, corrected=True)
        for scores in (taught.base_scores, taught.outlier_scores)
    )
    assert fair <= base
    assert taught.label_gap_[0] == pytest.approx(plain.path_.target_bias("training"), rel=1e-9)
    assert taught.label_gap_[1] == pytest.approx(taught.path_.target_bias("training"), rel=1e-9)


def test_without_learn_the_target_does_not_see_labels(rows):
    X, labels, groups = rows
    plain = make().fit(X, sensitive_features=groups)
    given = make().fit(X, sensitive_features=groups, labels=labels)
    np.testing.assert_array_equal(plain.outlier_scores_, given.outlier_scores_)
    assert given.label_weight_ == 0.0
    assert np.isnan(given.label_gap_).all()


def test_labels_of_one_kind_leave_the_base_score_bit_for_bit(rows):
    X, labels, groups = rows
    plain = make().fit(X, sensitive_features=groups)
    some = make(learn=True).fit(X, sensitive_features=groups, labels=np.where(labels == 0, 0.0, np.nan))
    np.testing.assert_array_equal(some.target_, plain.target_)
    assert some.label_weight_ == 0.0


def test_each_fold_learns_from_the_labels_outside_of_it(rows):
    """What is stated of unseen rows must not rest on their labels: those of one fold change nothing for it."""
    X, labels, groups = rows
    first = make(learn=True).fit(X, sensitive_features=groups, labels=labels)
    fold = first._result.seen.folds == 0
    changed = np.where(fold & ~np.isnan(labels), 1.0 - labels, labels)
    second = make(learn=True).fit(X, sensitive_features=groups, labels=changed)
    np.testing.assert_array_equal(first._result.seen.t[fold], second._result.seen.t[fold])
    assert not np.array_equal(first._result.seen.t[~fold], second._result.seen.t[~fold])


def test_labels_come_in_any_form_and_models_come_back(rows, taught, tmp_path):
    X, labels, groups = rows
    for form in (pd.Series(labels).astype("Int64"), [None if np.isnan(x) else int(x) for x in labels]):
        again = make(learn=True).fit(X, sensitive_features=groups, labels=form)
        np.testing.assert_array_equal(again.outlier_scores_, taught.outlier_scores_)
    save_model(taught, tmp_path / "m.skops")
    loaded = load_model(tmp_path / "m.skops")
    np.testing.assert_array_equal(loaded.outlier_scores(X), taught.outlier_scores(X))
    assert (loaded.label_weight_, loaded.label_gap_) == (taught.label_weight_, taught.label_gap_)
    assert loaded.at(alpha=1.0).alpha_ == 1.0


def test_labels_of_flagged_rows_alone_are_told(rows):
    X, _, groups = rows
    plain = make().fit(X, sensitive_features=groups)
    top = plain.target_ > np.quantile(plain.target_, 0.95)
    labels = np.where(top, draw(2000, 0)[1], np.nan)
    with pytest.warns(LabelCoverageWarning, match="have some rows drawn at random labelled too"):
        make(learn=True).fit(X, sensitive_features=groups, labels=labels)


@pytest.mark.parametrize(
    ("labels", "more", "message"),
    [
        (None, {}, "learn=True needs labels"),
        (np.full(2000, np.nan), {}, "labels has no label at all"),
        (np.full(2000, 2.0), {}, r"labels is '2.0' in row 0; labels must be 0"),
        (["ja"] * 2000, {}, "labels is 'ja' in row 0"),
        (np.ones(3), {}, r"labels must hold one label per row, shape \(2000,\), got shape \(3,\)"),
        (np.ones(2000), {"label_propensity": np.zeros(2000)}, "label_propensity must be a chance above 0"),
    ],
)
def test_wrong_labels_are_one_line(labels, more, message, rows):
    with pytest.raises(ValueError, match=message):
        make(learn=True).fit(rows[0], sensitive_features=rows[2], labels=labels, **more)


@pytest.mark.parametrize("words", [("yes", "no"), ("True", "FALSE"), (" Yes", "No "), ("1", "0"), (True, False)])
def test_words_for_labels_are_read(words):
    outlier = np.array([1.0, 0.0, np.nan])
    read = read_outcomes([*words, None], 3)
    np.testing.assert_array_equal(read, outlier)
    np.testing.assert_array_equal(read_labels([*words]), [True, False])


@pytest.mark.parametrize("text", ["ja", "outlier", "2", "", "yep"])
def test_other_words_for_labels_are_refused_in_one_line(text):
    told = f"is {text!r} in row 1; labels"
    with pytest.raises(
        InputError, match=rf"labels {told} must be 0, or 1 for an outlier \(or no and yes\), or missing$"
    ):
        read_outcomes(["no", text], 2)
    with pytest.raises(InputError, match=rf"labels {told} must be 0, or 1 for an outlier \(or no and yes\)$"):
        read_labels(["no", text])


@pytest.mark.parametrize("setting", [{"learn": True}, {"fairness": "equal_opportunity"}])
def test_labels_given_as_y_are_named(setting):
    X, labels, groups = draw(80, 0)
    model = FairOutlierEnsemble(**setting)
    with pytest.raises(InputError, match="labels is missing: y is ignored, as in all outlier detectors; pass labels=y"):
        model.fit(X, labels, sensitive_features=groups)


def test_a_name_is_not_a_column():
    X, _, groups = draw(80, 0)
    with pytest.raises(InputError, match=r"^given is the text 'LIMIT_BAL'; pass the column itself, such as table\["):
        FairOutlierEnsemble().fit(X, sensitive_features=groups, given="LIMIT_BAL")
    with pytest.raises(InputError, match=r"^sensitive_features is the text 'sex'; pass the column itself"):
        FairOutlierEnsemble().fit(X, sensitive_features="sex")
