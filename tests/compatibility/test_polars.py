"""Frames and series of polars give the results of pandas, to the last bit."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline

from evenout import BlindRepair, FairOutlierEnsemble, GroupProbabilities, Groups, ScoreRepair, TableEncoder, audit
from evenout.exceptions import InputError

pl = pytest.importorskip("polars")

pytestmark = pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")  # of small tables
GROUPS = Groups(min_size=10)


def in_polars(values):
    return pl.from_pandas(values)


@pytest.fixture(scope="module")
def table():
    rng, n = np.random.default_rng(0), 240
    region = rng.choice(["north", "south", "west"], n)
    X = pd.DataFrame(rng.normal(size=(n, 3)) + (region == "south")[:, None], columns=["income", "age", "visits"])
    protected = pd.DataFrame({"region": region, "sex": rng.choice(["f", "m"], n)})
    return X, protected, pd.Series((X.sum(axis=1) > 3).astype(int), name="known")


@pytest.fixture(scope="module")
def mixed():
    """A table of numbers with gaps, text with gaps, dates, whole numbers, truth values and categories."""
    rng, n = np.random.default_rng(1), 60
    days = pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 400, n), unit="D")
    columns = {"paid": np.where(rng.random(n) < 0.2, np.nan, rng.gamma(2.0, size=n)), "day": days}
    home = pd.Series(rng.choice(["own", "rent", "else"], n)).where(rng.random(n) > 0.1, None)
    columns |= {"home": home, "count": rng.integers(0, 9, n), "insured": rng.random(n) < 0.5}
    return pd.DataFrame(columns).assign(kind=pd.Categorical(rng.choice(["a", "b"], n)))


def test_an_ensemble_is_the_same(table):
    X, protected, known = table
    settings = {"learn": True, "groups": GROUPS, "random_state": 0}
    beside = {"labels": known, "given": protected["sex"], "sample_weight": pd.Series(np.linspace(1.0, 2.0, len(X)))}
    by_pandas = FairOutlierEnsemble(**settings).fit(X, sensitive_features=protected[["region"]], **beside)
    beside = {name: in_polars(values) for name, values in beside.items()}
    model = FairOutlierEnsemble(**settings)
    model.fit(in_polars(X), sensitive_features=in_polars(protected[["region"]]), **beside)
    np.testing.assert_array_equal(model.outlier_scores_, by_pandas.outlier_scores_)
    assert model.feature_names_in_.tolist() == list(X.columns)
    np.testing.assert_array_equal(model.outlier_scores(in_polars(X)), by_pandas.outlier_scores(X))
    with pytest.raises(ValueError, match="feature names"):
        model.outlier_scores(in_polars(X.rename(columns={"age": "years"})))


def test_columns_name_intersectional_groups(table):
    X, protected, _ = table
    model = FairOutlierEnsemble(groups=GROUPS, random_state=0).fit(X, sensitive_features=protected)
    other = FairOutlierEnsemble(groups=GROUPS, random_state=0).fit(
        in_polars(X), sensitive_features=in_polars(protected)
    )
    assert other.group_names_ == model.group_names_
    assert "region=north, sex=f" in other.group_names_
    np.testing.assert_array_equal(other.flag_rates_, model.flag_rates_)


def test_rows_without_an_index_go_by_position(table):
    """Polars has no index: groups belong to the rows of a shuffled pandas frame in the order given."""
    X, protected, _ = table
    X, protected = X[::-1], protected[::-1]
    model = FairOutlierEnsemble(groups=GROUPS, random_state=0).fit(X, sensitive_features=protected)
    other = FairOutlierEnsemble(groups=GROUPS, random_state=0).fit(X, sensitive_features=in_polars(protected))
    np.testing.assert_array_equal(other.outlier_scores_, model.outlier_scores_)
    soft = pd.get_dummies(protected["sex"], dtype=float)
    by_index = FairOutlierEnsemble(alpha=1.0, random_state=0).fit(X, sensitive_features=GroupProbabilities(soft))
    by_place = FairOutlierEnsemble(alpha=1.0, random_state=0)
    by_place.fit(X, sensitive_features=GroupProbabilities(in_polars(soft)))
    np.testing.assert_array_equal(by_place.outlier_scores_, by_index.outlier_scores_)


def test_groups_by_number_by_probability_and_missing_ones(table):
    X, protected, _ = table
    age = pd.DataFrame({"years": np.random.default_rng(2).uniform(18, 80, len(X))})
    gaps = protected["region"].where(np.arange(len(X)) % 9 > 0, None)
    south = np.where(protected["region"] == "south", 0.9, 0.2)
    probable = pd.DataFrame({"south": south, "other": 1.0 - south})
    for groups, values in (
        (Groups(continuous=("years",), min_size=10), age),
        (Groups(unknown="ignore", min_size=10), gaps),
    ):
        fits = [
            FairOutlierEnsemble(groups=groups, random_state=0).fit(X, sensitive_features=each)
            for each in (values, in_polars(values))
        ]
        assert fits[0].group_names_ == fits[1].group_names_
        np.testing.assert_array_equal(fits[0].outlier_scores_, fits[1].outlier_scores_)
    read = GroupProbabilities(in_polars(probable))
    assert read.names == ("south", "other")
    np.testing.assert_array_equal(read.values, probable.to_numpy())


def test_an_audit_is_the_same(table):
    X, protected, known = table
    scores = pd.Series(X.to_numpy().std(axis=1), name="score")
    by_pandas = audit(scores, sensitive_features=protected, labels=known, X=X, random_state=0)
    result = audit(
        in_polars(scores), sensitive_features=in_polars(protected), labels=in_polars(known), X=in_polars(X),
        random_state=0,
    )  # fmt: skip
    pd.testing.assert_frame_equal(result.to_frame(), by_pandas.to_frame())


@pytest.mark.parametrize("name", ["score", ""])
def test_repairs_are_the_same(table, name):
    X, protected, _ = table
    scores = pd.Series(X.sum(axis=1), name=name)
    aware = ScoreRepair(groups=GROUPS).fit(in_polars(scores), sensitive_features=in_polars(protected))
    expected = ScoreRepair(groups=GROUPS).fit_transform(scores, sensitive_features=protected)
    np.testing.assert_array_equal(aware.transform(in_polars(scores), sensitive_features=in_polars(protected)), expected)
    assert aware.sensitive_names_ == ("region", "sex")
    assert aware.score_name_ == (name or None)
    region = protected["region"]
    blind = BlindRepair(groups=GROUPS, random_state=0)
    expected = BlindRepair(groups=GROUPS, random_state=0).fit_transform(scores, X, sensitive_features=region)
    repaired = blind.fit_transform(in_polars(scores), in_polars(X), sensitive_features=in_polars(region))
    np.testing.assert_array_equal(repaired, expected)


def test_a_plan_has_reasons_and_is_learnt_from(table):
    X, protected, known = table
    region = protected["region"]
    model = FairOutlierEnsemble(groups=GROUPS, random_state=0).fit(X, sensitive_features=region)
    expected = model.plan(X, 40, sensitive_features=region, random_state=0)
    plan = model.plan(in_polars(X), 40, sensitive_features=in_polars(region), random_state=0)
    pd.testing.assert_frame_equal(plan.to_frame(reasons=2), expected.to_frame(reasons=2))
    model.learn_from(plan, known[plan.to_frame().index])
    assert model.feature_names_in_.tolist() == list(X.columns)
    again = model.plan(in_polars(X), 40, random_state=0)
    assert not set(again.chosen) & set(plan.chosen)  # outcomes are known by the same rows


def test_tables_are_encoded_alike(mixed):
    encoder, other = TableEncoder().fit(mixed), TableEncoder().fit(in_polars(mixed))
    assert other.columns_ == encoder.columns_
    pd.testing.assert_frame_equal(other.transform(in_polars(mixed)), encoder.transform(mixed))


def test_output_is_of_the_kind_that_is_set(mixed):
    expected = TableEncoder().fit_transform(mixed)
    for rows in (mixed, in_polars(mixed)):
        by_pandas = TableEncoder().set_output(transform="pandas").fit_transform(rows)
        pd.testing.assert_frame_equal(by_pandas, expected)
        by_polars = TableEncoder().set_output(transform="polars").fit_transform(rows)
        assert isinstance(by_polars, pl.DataFrame)
        assert by_polars.columns == list(expected.columns)
        np.testing.assert_array_equal(by_polars.to_numpy(), expected.to_numpy())
        with config_context(transform_output="polars"):
            assert isinstance(TableEncoder().fit(rows).transform(rows), pl.DataFrame)
        array = TableEncoder().set_output(transform="default").fit_transform(rows)
        np.testing.assert_array_equal(array, expected.to_numpy())


def test_a_pipeline_takes_a_polars_table(mixed):
    groups, scores = np.where(mixed["insured"], "yes", "no"), []
    for rows, output in ((mixed, "pandas"), (in_polars(mixed), "polars")):
        ensemble = FairOutlierEnsemble(alpha=1.0, groups=GROUPS, random_state=0)
        pipeline = make_pipeline(TableEncoder().set_output(transform=output), ensemble)
        pipeline.fit(rows, fairoutlierensemble__sensitive_features=groups)
        scores.append(pipeline.score_samples(rows))
    np.testing.assert_array_equal(*scores)


def test_columns_that_are_no_numbers_are_named(mixed):
    with pytest.raises(InputError, match=r"column 'paid', 'day', 'home', .*TableEncoder"):
        FairOutlierEnsemble().fit(in_polars(mixed), sensitive_features=["a", "b"] * 30)
