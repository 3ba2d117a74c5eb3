"""A model on scores of its own making: three groups from two protected columns, small enough to refit at will."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble
from evenout.report import collect

DATE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    model: FairOutlierEnsemble
    X: np.ndarray
    sensitive: pd.DataFrame
    y: np.ndarray

    @property
    def groups(self):
        return ("sex=" + self.sensitive["sex"] + ", age=" + self.sensitive["age"]).to_numpy()

    def collect(self, **options: Any):
        given = {"X": self.X, "sensitive_features": self.sensitive, "labels": self.y, "date": DATE} | options
        return collect(self.model, **given)


def make_case(sizes=(500, 300, 200), *, k=5, gap=0.6, seed=0, **settings) -> Case:
    rng = np.random.default_rng(seed)
    names = [("f", "old"), ("f", "young"), ("m", "old"), ("m", "young")][: len(sizes)]
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    y = (rng.random(len(codes)) < 0.1).astype(int)
    X = rng.gamma(2.0, 1.0, (len(codes), k)) + 1.5 * y[:, None]
    X += gap * codes[:, None] * np.linspace(0.2, 1.0, k)
    sensitive = pd.DataFrame([names[code] for code in codes], columns=["sex", "age"])
    options = {"alpha": 3000.0, "random_state": 0} | settings
    model = FairOutlierEnsemble("precomputed", **options).fit(X, sensitive_features=sensitive)
    return Case(model, X, sensitive, y)


@pytest.fixture
def make():
    return make_case


@pytest.fixture(scope="session")
def case() -> Case:
    return make_case()


@pytest.fixture(scope="session")
def data(case):
    return case.collect()


@pytest.fixture(scope="session")
def date():
    return DATE
