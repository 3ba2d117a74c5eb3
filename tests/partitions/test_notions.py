"""Every kind of groups over partitions is that of memory: bands, strata, attributes side by side, known outcomes."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, GroupProbabilities, Groups
from evenout.exceptions import InputError
from evenout.out_of_core.engines import Engine, Partition
from evenout.out_of_core.parquet import open_folder

N = 600
RNG = np.random.default_rng(5)
AGE = RNG.normal(45, 12, N).round(1)
SEX = np.where(RNG.random(N) < 0.5, "f", "m")
REGION = RNG.choice(["north", "south"], N)
PRODUCT = np.where(RNG.random(N) < 0.4, RNG.integers(0, 9, N), 9).astype(str)
X = pd.DataFrame(
    RNG.normal(size=(N, 3)) * (1 + 0.02 * (AGE - 20))[:, None] + (SEX == "f")[:, None], columns=list("abc")
)
LABELS = pd.Series(np.where(RNG.random(N) < 0.3, np.nan, (RNG.random(N) < 0.4).astype(float)))
SURE = np.clip(np.where(SEX == "f", 0.8, 0.3) + RNG.normal(0, 0.1, N), 0.0, 1.0)
PEOPLE = pd.DataFrame({"age": AGE, "sex": SEX, "region": REGION, "women": SURE, "men": 1.0 - SURE})
PROBABLE = ["women", "men"]
GIVEN = pd.DataFrame({"product": PRODUCT, "area": REGION})
KINDS = {
    "bands": ({"continuous": ("age",)}, ["age"], False, False),
    "bands by themselves": ({"bands": 3}, ["age"], False, False),
    "bands and sex crossed": ({"continuous": ("age",)}, ["age", "sex"], False, False),
    "each attribute": ({"cross": False, "continuous": ("age",)}, ["age", "sex", "region"], False, False),
    "both": ({"cross": "both"}, ["sex", "region"], False, False),
    "strata": ({}, ["sex"], True, False),
    "outliers": ({"fairness": "equal_opportunity"}, ["sex"], False, True),
    "odds": ({"fairness": {"equalized_odds": 1, "demographic_parity": 2}}, ["sex"], False, True),
    "probable": ({}, PROBABLE, False, False),
    "probable in strata": ({}, PROBABLE, True, False),
    "inliers in strata": ({"fairness": "equal_false_alarms"}, ["sex"], True, True),
}


def _radius(X):
    return np.linalg.norm(X, axis=1)


def _first(X):
    return np.abs(X[:, 0])


def _largest(X):
    return X.max(axis=1)


def _model(settings):
    rest = dict(settings)
    rules = {name: rest.pop(name) for name in ("continuous", "bands", "cross") if name in rest}
    groups = Groups(min_size=10, **rules)
    return FairOutlierEnsemble([_radius, _first, _largest], alpha=20.0, groups=groups, random_state=3, **rest)


def _protected(columns, rows=slice(None)):
    frame = PEOPLE[columns].iloc[rows]
    return GroupProbabilities(frame) if columns == PROBABLE else frame


def _load(columns, given, labels, rows):
    return (
        X.iloc[rows],
        _protected(columns, rows),
        GIVEN.iloc[rows] if given else None,
        LABELS.iloc[rows] if labels else None,
    )


def _engine(columns, given, labels, cuts):
    pieces = np.array_split(np.arange(N), cuts)
    load = partial(_load, columns, given, labels)
    return Engine([Partition(i, f"part-{i}", partial(load, rows)) for i, rows in enumerate(pieces)], X.iloc[:0])


def _fitted(kind):
    settings, columns, given, labels = KINDS[kind]
    beside = {"given": GIVEN if given else None, "labels": LABELS if labels else None}
    return _model(settings).fit(X, sensitive_features=_protected(columns), **beside)


def _same(model, memory, rtol=1e-8):
    np.testing.assert_allclose(model.weights_, memory.weights_, rtol=0, atol=rtol * np.abs(memory.weights_).max())
    assert model.path_.cross.whole.compared == memory.path_.cross.whole.compared
    for name in ("plain", "weighted", "joint_spread"):
        found = [getattr(m.path_.cross.whole, name) for m in (model, memory)]
        np.testing.assert_allclose(*found, rtol=rtol, atol=rtol)
    assert model.group_names_ == memory.group_names_
    assert model.group_counts_.tolist() == memory.group_counts_.tolist()
    assert model.left_out_groups_ == memory.left_out_groups_


pytestmark = pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")


@pytest.mark.parametrize("kind", KINDS)
def test_a_reference_of_all_rows_is_memory(kind):
    memory = _fitted(kind)
    model = _model(KINDS[kind][0]).fit_partitions(_engine(*KINDS[kind][1:], 4))
    _same(model, memory)
    found = [[m.path_.bias(20.0), m.path_.target_bias(), m.path_.gap_p_value] for m in (model, memory)]
    np.testing.assert_allclose(*found, rtol=1e-8)
    assert model.attribute_bias_.keys() == memory.attribute_bias_.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_passes_over_partitions_give_the_sums_of_memory(kind):
    """Detectors that learn nothing, so that a reference of a third of the rows scores as all of them do."""
    memory = _fitted(kind)
    settings = {**KINDS[kind][0], "reference_size": 200}
    for cuts in (1, 5):
        _same(_model(settings).fit_partitions(_engine(*KINDS[kind][1:], cuts)), memory)


@pytest.mark.parametrize("kind", ["each attribute", "inliers in strata", "probable"])
def test_parquet_and_dask_know_the_columns(kind, tmp_path):
    settings, columns, given, labels = KINDS[kind]
    memory = _fitted(kind)
    whole = pd.concat([X, PEOPLE[columns], GIVEN if given else GIVEN.iloc[:, :0], LABELS.rename("known")], axis=1)
    for part, rows in enumerate(np.array_split(np.arange(N), 3)):
        whole.iloc[rows].to_parquet(tmp_path / f"{part}.parquet")
    roles = {
        "probable": columns == PROBABLE,
        "sensitive": columns,
        "given": list(GIVEN) if given else [],
        "label": "known",
    }
    with open_folder(tmp_path, **roles, features=["a", "b", "c"]) as source:
        model = _model(settings).fit_partitions(source, scores_to=_folder(tmp_path / "out"))
    _same(model, memory)
    written = pd.concat([pd.read_parquet(file) for file in sorted((tmp_path / "out").iterdir())])
    assert set(written["group"].dropna()) == set(memory._result.groups.labels)
    dd = pytest.importorskip("dask.dataframe")
    frames = [X, PEOPLE[columns], GIVEN if given else None, LABELS if labels else None]
    parts = [None if frame is None else dd.from_pandas(frame, npartitions=3) for frame in frames]
    groups = GroupProbabilities(parts[1]) if columns == PROBABLE else parts[1]
    _same(_model(settings).fit(parts[0], sensitive_features=groups, given=parts[2], labels=parts[3]), memory)


def test_wrong_probabilities_are_told_with_their_file(tmp_path):
    for part, rows in enumerate(np.array_split(np.arange(N), 2)):
        frame = X.iloc[rows].assign(women=SURE[rows], men=1 - SURE[rows] + (0.5 if part else 0.0))
        frame.to_parquet(tmp_path / f"{part}.parquet")
    with (
        open_folder(tmp_path, sensitive=PROBABLE, probable=True) as source,
        pytest.raises(InputError, match=r"1.parquet: sensitive_features has probabilities in row 0 that are negative"),
    ):
        _model({}).fit_partitions(source)


def _folder(path):
    path.mkdir()
    return path
