import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from evenout import FairOutlierEnsemble, Individual
from evenout.datasets import load_dataset
from evenout.metrics import demographic_parity, individual_unfairness, misfit, roc_auc
from evenout.reproduce.experiment import COLUMNS, TITLES, derive_seeds, run_repeat, score, weighted_aucs

SEED = 3


@pytest.fixture(scope="module")
def points():
    return run_repeat("pima", SEED, 0)


@pytest.mark.filterwarnings("ignore::evenout.exceptions.NoGapWarning")
@pytest.mark.parametrize(
    ("base", "fairness", "framework"),
    [
        ("maximum", "group", "weighted"),
        ("greedy", "group", "unweighted"),
        ("maximum", "individual", "unweighted"),
        ("greedy", "individual", "weighted"),
    ],
)
def test_points_agree_with_the_estimator_and_the_definitions(points, base, fairness, framework):
    own = points[(points["base"] == base) & (points["fairness"] == fairness)]
    row = own[(own["framework"] == framework) & (own["kind"] == "random")].iloc[50]
    seeds = derive_seeds(SEED, "pima", 0)
    data = load_dataset("pima", random_state=seeds.groups)
    weighting = {"weighted": "rank", "unweighted": "uniform"}[framework]
    model = FairOutlierEnsemble.paper(
        combination=base,
        fairness={"group": "demographic_parity", "individual": Individual("minmax")}[fairness],
        weighting=weighting,
        alpha=row["alpha"],
        random_state=seeds.forest,
    ).fit(data.X, sensitive_features=data.sensitive)
    y, groups = model.outlier_scores_, data.sensitive
    if fairness == "group":
        f2, bias = (demographic_parity(y, sensitive_features=groups, scale_free=free) for free in (False, True))
    else:
        f2, bias = (
            individual_unfairness(y, data.X, sensitive_features=groups, scale_free=free, length_scale="minmax")
            for free in (False, True)
        )
    assert row["f1"] == pytest.approx(misfit(y, model.target_, weighting=weighting), rel=1e-6)
    assert row["f2"] == pytest.approx(f2, rel=1e-4)
    assert row["bias"] == pytest.approx(bias, rel=1e-4)
    assert row["auc"] == pytest.approx(roc_auc(data.y, y), abs=1e-4)
    assert row["negative"] == (model.weights_ < 0).sum()
    target = own[own["kind"] == "target"].iloc[0]
    assert target["auc"] == pytest.approx(roc_auc(data.y, model.target_))


def test_points_have_every_setting_once(points):
    assert list(points.columns) == list(COLUMNS)
    kinds = points.groupby(["kind", "base", "fairness", "framework"]).size()
    assert kinds["curve"].to_dict() == dict.fromkeys(kinds["curve"].index, 41)
    assert kinds["random"].to_dict() == dict.fromkeys(kinds["random"].index, 100)
    assert len(kinds["curve"]) == len(kinds["random"]) == 8
    assert len(kinds["target"]) == 6
    assert (points["dataset"] == "pima").all()
    assert points.drop(columns=["alpha", "negative"]).notna().all(axis=None)


def test_the_range_of_alpha_comes_from_the_problem(points):
    for _, curve in points[points["kind"] == "curve"].groupby(["base", "fairness", "framework"]):
        f2, alpha = curve["f2"].to_numpy(), curve["alpha"].to_numpy()
        assert alpha[0] == 0
        assert f2[[1, -1]] / f2[0] == pytest.approx([0.999, 0.01], rel=1e-6)
        assert np.diff(np.log(alpha[1:])) == pytest.approx(np.log(alpha[-1] / alpha[1]) / 39)


def test_both_frameworks_see_the_same_random_alphas_within_the_weighted_range(points):
    for _, rows in points[points["kind"] != "target"].groupby(["base", "fairness"]):
        drawn = rows[rows["kind"] == "random"]
        alphas = {name: part["alpha"].to_numpy() for name, part in drawn.groupby("framework")}
        assert np.array_equal(alphas["weighted"], alphas["unweighted"])
        curve = rows[(rows["kind"] == "curve") & (rows["framework"] == "weighted") & (rows["alpha"] > 0)]["alpha"]
        assert curve.min() <= alphas["weighted"].min() < alphas["weighted"].max() <= curve.max()


def test_the_number_of_threads_changes_nothing(points):
    pd.testing.assert_frame_equal(run_repeat("pima", SEED, 0, n_threads=2), points, check_exact=True)


def test_a_repeat_draws_forest_and_sampled_groups_but_keeps_groups_of_the_data():
    first, second = (derive_seeds(SEED, "pima", repeat) for repeat in (0, 1))
    a, b = score("pima", first), score("pima", second)
    assert (a.groups != b.groups).any()
    assert np.array_equal(a.S[:, :11], b.S[:, :11])  # LOF and neighbour distances have no seed
    assert (a.S[:, 11:] != b.S[:, 11:]).any(axis=0).all()
    a, b = score("german", first), score("german", second)
    assert np.array_equal(a.groups, b.groups)


def test_seeds_differ_by_seed_data_set_and_repeat():
    seeds = {derive_seeds(seed, name, repeat) for seed in (0, 1) for name in TITLES for repeat in range(5)}
    assert len(seeds) == 2 * 8 * 5
    assert len({s.forest for s in seeds} | {s.groups for s in seeds} | {s.alphas for s in seeds}) == 3 * 2 * 8 * 5


def test_aucs_agree_with_scikit_learn_also_where_rows_repeat():
    rng = np.random.default_rng(0)
    S = np.repeat(rng.integers(0, 3, (40, 4)) / 7, 3, axis=0)
    W, outlier = rng.normal(size=(70, 4)), rng.random(120) < 0.3
    distinct, place = np.unique(S, axis=0, return_inverse=True)
    expected = [roc_auc_score(outlier, (distinct @ w)[place]) for w in W]
    assert weighted_aucs(S, W, outlier, n_threads=2) == pytest.approx(expected, abs=1e-3)
    assert weighted_aucs(S, np.eye(4), outlier) == pytest.approx([roc_auc_score(outlier, column) for column in S.T])
