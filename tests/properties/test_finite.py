"""Any finite input gives finite output, or one clear error.

Two rows in a group, one detector, constant columns, heavy ties, numbers from 1e-300 to 1e30. NaN is an answer only
where a score is constant, so that nothing can be measured in units of its spread.
"""

import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenout import Groups, Individual, audit, metrics
from evenout.core.base_score import COMBINATIONS, SCALINGS, learn_scaling
from evenout.core.cells import variances
from evenout.core.problem import WEIGHTS
from evenout.detectors.fairlof import FairLOF
from evenout.detectors.tails import Tails
from evenout.repair import ScoreRepair

REQUESTS = st.sampled_from(
    [
        {},
        {"bias_reduction": 1.0},
        {"judged_on": "training"},
        {"alpha": 0.0},
        {"alpha": 1e300},
        {"flag_rate_ratio": 0.8},
        {"confidence": 0.9},
        {"correction": "published"},
        {"correction": "published", "judged_on": "training"},
    ]
)
LENGTHS = st.sampled_from(["minmax", 1e-20, 1.0, 1e20, ("median", 0.05)])


def assert_finite(**named):
    for name, values in named.items():
        assert np.isfinite(values).all(), f"{name}: {values}"


def assert_finite_fit(model):
    assert_finite(
        scores=model.outlier_scores_,
        target=model.target_,
        weights=model.weights_,
        alpha=model.alpha_,
        offset=model.offset_,
    )
    alphas = np.r_[0.0, model.path_.grid(5), 1e300]
    path = model.path_
    assert_finite(weights=path.weights(alphas), f1=path.f1(alphas), f2=path.f2(alphas))


def assert_finite_on_new_rows(model, X, **groups):
    base = model.base_scores(X, **groups)
    assert_finite(new=model.outlier_scores(X, **groups), base=base, decision=model.decision_function(X, **groups))
    assert set(model.predict(X, **groups)) <= {-1, 1}


@given(data=st.data())
def test_fit_and_scores_of_new_rows_are_finite(data, wild_tables, fit):
    table = data.draw(wild_tables())
    asked = {
        **data.draw(REQUESTS),
        "scaling": data.draw(st.sampled_from(SCALINGS)),
        "combination": data.draw(st.sampled_from(COMBINATIONS)),
        "weighting": data.draw(st.sampled_from(["rank", "uniform"])),
    }
    model = fit(table, **asked)
    assert_finite_fit(model)
    new = data.draw(wild_tables(max_width=1)).values
    assert_finite_on_new_rows(model, np.repeat(new, table.values.shape[1], axis=1))


@given(data=st.data())
def test_constrained_fit_is_finite(data, wild_tables, fit):
    asked = {
        "correction": data.draw(st.sampled_from(WEIGHTS[1:])),
        "combination": data.draw(st.sampled_from(["average", "maximum"])),
        "alpha": data.draw(st.sampled_from([0.0, 1.0])),
    }
    assert_finite_fit(fit(data.draw(wild_tables()), **asked))


@given(data=st.data())
def test_biases_are_finite_unless_the_score_is_constant(data, wild_tables, fit):
    table = data.draw(wild_tables())
    path = fit(table, correction=data.draw(st.sampled_from(["weights", "published"]))).path_
    alphas = np.r_[0.0, path.grid(4)]
    measurable = ((path.cross.held.effective_counts > 1.5).sum(axis=1) >= 2).any()  # two rows of two groups in a fold
    for target in ("unseen", "training"):
        V = path.fold_weights(alphas, target)
        cells = path.cross.held if target == "unseen" else path.cross.whole
        unit = np.abs(V).max(axis=2, keepdims=True)
        spread = variances(cells, V / np.where(unit > 0, unit, 1.0))
        for m, alpha in enumerate(alphas):
            unknown = (spread[:, m] <= 1e-12).any()  # constant; in one of the folds is enough
            if target == "unseen":
                unknown |= not measurable
                found = [path.standard_error(alpha), path.choice(alpha), *path.interval(alpha)]
                assert np.isfinite(found).all() or unknown
            assert np.isfinite(path.bias(alpha, target)) or unknown
    assert 0.0 <= path.gap_p_value <= 1.0


@pytest.mark.filterwarnings("ignore::evenout.exceptions.ManyColumnsWarning")
@pytest.mark.usefixtures("few_trees")
@given(data=st.data())
def test_named_pools_are_finite(data, wild_tables, fit):
    table = data.draw(wild_tables(most=4))
    notion = Individual(data.draw(LENGTHS))
    fairness = data.draw(st.sampled_from(["demographic_parity", notion, {"demographic_parity": 1.0, notion: 1.0}]))
    asked = {"fairness": fairness, **data.draw(REQUESTS)}
    asked["standardize"] = data.draw(st.booleans())
    model = fit(table, data.draw(st.sampled_from(["paper", "diverse", "default"])), **asked)
    assert_finite_fit(model)
    np.testing.assert_array_equal(model.outlier_scores(table.values), model.outlier_scores_)
    new = data.draw(wild_tables(max_width=1)).values
    assert_finite_on_new_rows(model, np.repeat(new, table.values.shape[1], axis=1))


@given(data=st.data())
def test_detectors_that_use_groups_are_finite(data, wild_tables, fit):
    table = data.draw(wild_tables())
    pairs = data.draw(st.sampled_from(["exact", "sampled"]))
    asked = {"fairness": Individual(length_scale=data.draw(LENGTHS), pairs=pairs)}
    model = fit(table, [FairLOF(2), FairLOF(1, lambda_=1.0)], **asked)
    assert_finite_fit(model)
    new = -table.values[::-1]
    assert_finite_on_new_rows(model, new, sensitive_features=table.names)


@pytest.mark.parametrize("asked", [{}, {"alpha": 1.0}, {"judged_on": "training"}])
def test_notions_without_any_rows_that_are_alike_are_finite(asked, make_table, fit):
    both = {"demographic_parity": 1.0, Individual(1e-20): 1.0}
    model = fit(make_table(30, 2), [FairLOF(3), FairLOF(5)], fairness=both, **asked)
    assert_finite_fit(model)
    assert_finite(bias=model.path_.bias(np.array([0.0, 1.0])), base=model.path_.target_bias())


@given(data=st.data())
def test_tails_are_finite_and_tell_rows_apart(data, wild_tables):
    table, new = data.draw(wild_tables()), data.draw(wild_tables(max_width=1)).values
    tails, scores = Tails.fit(table.values)
    found = tails.score(np.repeat(new, table.values.shape[1], axis=1))
    assert_finite(known=scores, new=found)
    for known, column in zip(tails.known.T, found.T, strict=True):
        order = np.flatnonzero(new[:, 0] > known[-1])
        order = order[np.argsort(new[order, 0])]
        apart = np.diff(new[order, 0]) > 1e-9 * (new[order[1:], 0] - known[0])  # else rounding may tie them
        assert (np.diff(column[order])[apart] > 0).all()


@given(data=st.data())
def test_scalings_are_finite_on_training_and_new_rows(data, wild_tables):
    table = data.draw(wild_tables())
    new = data.draw(wild_tables(max_width=1)).values
    for kind in SCALINGS:
        scaling = learn_scaling(kind, table.values)
        assert_finite(
            known=scaling.transform(table.values),
            new=scaling.transform(np.repeat(new, table.values.shape[1], axis=1)),
            moments=[scaling.mean, scaling.std],
        )


@given(data=st.data())
def test_metrics_are_finite(data, wild_tables):
    table = data.draw(wild_tables())
    y, groups = table.values[:, 0], {"sensitive_features": table.names}
    assert_finite(
        misfit=metrics.misfit(y, table.values[:, -1]),
        unweighted=metrics.misfit(y, table.values[:, -1], weighting="uniform"),
        rates=list(metrics.flag_rates(y, **groups).values()),
        ratio=metrics.flag_rate_ratio(y, **groups),
    )
    assert 0.0 <= metrics.no_gap_test(y, **groups) <= 1.0
    length = data.draw(LENGTHS)
    for scale_free in (False, True):
        measured = [
            metrics.demographic_parity(y, scale_free=scale_free, **groups),
            metrics.demographic_parity(y, scale_free=scale_free, corrected=True, **groups),
            metrics.individual_unfairness(y, table.values, scale_free=scale_free, length_scale=length, **groups),
        ]
        constant = scale_free and np.ptp(y) == 0
        assert np.isnan(measured).all() if constant else np.isfinite(measured).all()


@pytest.mark.filterwarnings("ignore:individual fairness rests on")
@given(data=st.data())
def test_audits_are_finite(data, wild_tables):
    table = data.draw(wild_tables(least=1e-150))  # squares of smaller scores underflow
    labels = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(table), max_size=len(table))))
    assume(0 < labels.sum() < len(table))
    found = audit(
        table.values[:, 0],
        sensitive_features=table.names,
        groups=Groups(min_size=2),
        labels=labels,
        X=table.values,
        given=labels[::-1],
        resamples=10,
    )
    constant = np.ptp(table.values[:, 0]) == 0
    for m in found.measures:
        assert not np.isinf([m.value, m.low, m.high, m.p, m.p_adjusted]).any(), m
        if m.measure in ALWAYS_KNOWN or (m.measure in KNOWN_IF_VARIED and not constant):
            assert np.isfinite([m.value, m.low, m.high]).all(), m
    assert found.verdict
    assert repr(found)


# Others rest on rows that there may be none of: known outliers of a group, two groups in a stratum, rows on top.
ALWAYS_KNOWN = {
    "group_share",
    "mean_score",
    "score_quantile",
    "flag_rate",
    "flag_rate_ratio",
    "demographic_parity_raw",
    "threshold_free_gap",
    "individual_unfairness_raw",
    "outlier_rate",
}
KNOWN_IF_VARIED = {"demographic_parity", "demographic_parity_corrected", "individual_unfairness"}


@pytest.mark.parametrize("size", [-1.1e30, 1e300])
def test_features_too_large_are_one_clear_error(size, fit, make_table):
    table = make_table(20, 2)
    model = fit(table)
    table.values[3, 1] = size
    message = f"X has {size:.3g} in row 3, column 1; rescale values above 1e+30 in magnitude"
    for call in (lambda: fit(table), lambda: model.outlier_scores(table.values)):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call()


@pytest.mark.parametrize("size", [-1.1e30, 1e308])
def test_scores_too_large_are_one_clear_error(size, make_table):
    table = make_table(20, 1)
    table.values[4, 0] = size
    scores, groups = table.values[:, 0], {"sensitive_features": table.names}
    message = f"scores has the value {size:.3g} (first: row 4); rescale values above 1e+30 in magnitude"
    for call in (
        lambda: metrics.demographic_parity(scores, **groups),
        lambda: metrics.individual_unfairness(scores, table.values, **groups),
        lambda: metrics.no_gap_test(scores, **groups),
        lambda: metrics.misfit(scores, scores),
        lambda: ScoreRepair().fit(scores, **groups),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call()
