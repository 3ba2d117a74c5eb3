"""People of known truth: score columns, and all that the options of evenout are about.

Each option that a case has matters here: without it, what is said of the population would be wrong. Rows of a person go
together where clusters are given. A survey looks for people by group and score where weights are given. A product or an
income goes with the group and moves the score where it is given. Known outliers are more frequent in one group, and
whoever labels rows looks at high scores first. Probabilities of groups are right among people of all kinds, and where
they are not sufficient the score knows the group itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matrix_design import Case

from evenout import GroupProbabilities
from evenout.core.types import BoolArray, FloatArray, IntArray

SHARE = 0.2  # of the rows that is flagged
LOADINGS = np.array([1.0, 0.6, 0.2, 0.0])  # of each column on what differs between groups
REGIONS, REGION_SHARES = np.array(["east", "north", "south"]), np.array([0.4, 0.35, 0.25])
OUTLIERS, BANDS, PARTS = 0.4, 5, 5
GAP = 0.8
_MEAN_ROWS = 4  # of a person, where there are several


@dataclass(frozen=True)
class People:
    """Rows of a sample or of the population.

    Parameters
    ----------
    columns : frame of shape (n, ...)
        sex, region, age, product, income, f and m (probabilities), person.
    S : array of shape (n, 4)
        Score columns.
    outcome, looked : arrays of shape (n,)
        Whether a row is an outlier, and whether somebody looked.
    chance, weight : arrays of shape (n,)
        The chance that somebody looked, and the survey's weight.
    """

    columns: pd.DataFrame
    S: FloatArray
    outcome: BoolArray
    looked: BoolArray
    chance: FloatArray
    weight: FloatArray

    def at(self, rows: Any) -> "People":
        """Some of the rows."""
        arrays = (self.S, self.outcome, self.looked, self.chance, self.weight)
        return People(self.columns.iloc[rows].reset_index(drop=True), *(array[rows] for array in arrays))

    def sensitive(self, case: Case) -> Any:
        """The protected columns that the case compares."""
        if case.probable:
            return GroupProbabilities(self.columns[["f", "m"]], sufficient=case.groups == "sufficient")
        return self.columns[list(case.attributes)]

    def beside(self, case: Case) -> dict[str, Any]:
        """What a fit of the case is given beside the columns."""
        found: dict[str, Any] = {"sensitive_features": self.sensitive(case)}
        if case.given != "none":
            found["given"] = self.columns[[case.justifies]]
        if case.labelled:
            found["labels"] = self.labels(case)
        if case.notion == "opportunity, propensity":
            found["label_propensity"] = self.chance
        if case.clusters:
            found["clusters"] = self.columns["person"].to_numpy()
        if case.sample_weight:
            found["sample_weight"] = self.weight
        return found

    def labels(self, case: Case) -> FloatArray:
        """1, 0, or missing where nobody looked."""
        known = self.outcome.astype(float)
        return known if case.notion == "opportunity" else np.where(self.looked, known, np.nan)


def draw(case: Case, n: int, rng: np.random.Generator, gap: float = GAP, *, sampled: bool = True) -> People:
    """So many rows: as a sample comes, or one by one from the population, of which each row is as likely.

    ``gap`` is how far groups that are compared are apart in the first column, in standard deviations of its noise.
    """
    if not sampled:
        return _draw(case, np.arange(n), rng, gap, surveyed=False)
    if not case.clusters:
        return _draw(case, np.arange(n), rng, gap, surveyed=case.sample_weight)
    each = rng.integers(1, 2 * _MEAN_ROWS, n // _MEAN_ROWS)
    return _draw(case, np.repeat(np.arange(len(each)), each), rng, gap, surveyed=case.sample_weight)


def _draw(case: Case, person: IntArray, rng: np.random.Generator, gap: float, *, surveyed: bool) -> People:
    m = int(person.max()) + 1
    z, u, sex, accepted = _whom(case, m, rng, surveyed=surveyed)
    member = (z > 0) if case.probable else sex  # whom products, outcomes and the survey go by
    region = rng.choice(3, m, p=REGION_SHARES)
    age = rng.uniform(20.0, 70.0, m)
    justified = case.given != "none"
    loan = rng.random(m) < (np.where(member, 0.6, 0.4) if justified else 0.5)
    income = np.exp(rng.normal(10.0 + 0.3 * (member & justified), 0.5))
    weight = 1.0 / accepted
    z, u, age, income, weight = (part[person] for part in (z, u, age, income, weight))
    sex, member, loan, region = sex[person], member[person], loan[person], region[person]
    n = len(person)
    shift = np.zeros(n)
    if case.groups in ("hard", "crossed", "each"):
        shift += 1.0 * sex
    if case.groups in ("crossed", "each"):
        shift += np.where(region == 2, 0.8, 0.0)
    if case.groups == "bands":
        shift += 2.0 * (age - 45.0) / 25.0
    if case.probable:
        shift += member if case.groups == "sufficient" else sex
    moved = np.zeros(n)
    if case.given == "text":
        moved += 0.8 * loan
    if case.given == "number":
        moved += 1.2 * (np.log(income) - 10.0)
    outlier = rng.random(n) < (np.where(member, 1.25, 0.8) * OUTLIERS if case.labelled else OUTLIERS)
    latent = 0.8 * u + moved + (1.2 * outlier if case.labelled else 0.0)
    S = latent[:, None] + gap * shift[:, None] * LOADINGS + rng.normal(size=(n, 4))
    chance = np.clip(0.2 + 0.7 * (S.mean(axis=1) > np.median(latent)), 0.0, 1.0)
    likely = 1.0 / (1.0 + np.exp(-2.0 * z))
    columns = pd.DataFrame(
        {
            "sex": np.where(sex, "f", "m"),
            "region": REGIONS[region],
            "age": age,
            "product": np.where(loan, "loan", "card"),
            "income": income,
            "f": likely,
            "m": 1.0 - likely,
            "person": person,
        }
    )
    return People(columns, S, outlier, rng.random(n) < chance, chance, weight)


def _whom(
    case: Case, m: int, rng: np.random.Generator, *, surveyed: bool
) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray]:
    """What tells the group, what a person's rows share, the group, and the chance to be in the sample: m people.

    The survey looks for women who score high and for men who score low.
    """
    many = 4 * m if surveyed else m
    z, u = rng.normal(size=(2, many))
    sex = rng.random(many) < (1.0 / (1.0 + np.exp(-2.0 * z)) if case.probable else 0.45)
    chance = np.ones(many)
    if surveyed:
        chance = np.where((u > 0) == ((z > 0) if case.probable else sex), 1.0, 0.3)
        drawn = np.flatnonzero(rng.random(many) < chance)[:m]
        z, u, sex, chance = z[drawn], u[drawn], sex[drawn], chance[drawn]
    return z, u, sex, chance


@dataclass(frozen=True)
class Truth:
    """What is true of a score in the population.

    Parameters
    ----------
    ratio : float
        Lowest over highest flag rate among the groups that are compared.
    difference : float
        Highest less lowest flag rate among these.
    bias : float
        Squared gaps of means over the variance, as the groups are compared.
    """

    ratio: float
    difference: float
    bias: float


def judge(case: Case, sample: People, fresh: People, y: FloatArray, parts: int = PARTS, finer: int = 6) -> Truth:
    """What a score, higher than a threshold for `SHARE` of the population, makes of fresh rows.

    Bands, and so many parts of a number, are those of the sample. Within a part groups are as if the number were spread
    among them as among all its rows, by so many finer parts.
    """
    flagged = y > np.quantile(y, 1.0 - SHARE)
    among = np.ones(len(y), dtype=bool)
    if case.labelled:
        among = fresh.outcome & (fresh.looked if case.notion == "opportunity, some" else True)
    finer = finer if case.given == "number" else 1
    cells = _strata(case, sample, fresh, parts * finer)
    ratio, apart, bias, attributes = 1.0, 0.0, 0.0, _memberships(case, sample, fresh)
    for phi in attributes:
        sizes, gaps = [], []
        for stratum in range(int(cells.max()) // finer + 1):
            size, rates, means, noise = np.zeros((4, phi.shape[1]))
            every = int((among & (cells // finer == stratum)).sum())
            for cell in range(finer):
                rows = np.flatnonzero(among & (cells == finer * stratum + cell))
                inside, z, part = phi[rows], y[rows], len(rows) / every
                own = inside.sum(axis=0)
                mean = inside.T @ z / own
                noise += part**2 * (inside.T @ z**2 / own - mean**2) / own  # of fresh rows, which are not all
                rates += part * (inside.T @ flagged[rows] / own)
                means += part * mean
                size += own
            ratio, apart = min(ratio, float(rates.min() / rates.max())), max(apart, float(np.ptp(rates)))
            sizes.append(size.sum())
            share = size / size.sum() if case.groups == "bands" else np.full(len(size), 1.0)
            pairs = np.triu(np.outer(share, share), 1)
            pairs = pairs if case.groups == "bands" else pairs / pairs.sum()
            gaps.append(float((pairs * ((means[:, None] - means) ** 2 - noise[:, None] - noise)).sum()))
        bias += float(np.average(gaps, weights=sizes)) / len(attributes)
    return Truth(ratio, apart, bias / float(y.var()))


def _strata(case: Case, sample: People, fresh: People, parts: int) -> IntArray:
    if case.given == "none":
        return np.zeros(len(fresh.S), dtype=np.intp)
    if case.given == "text":
        return (fresh.columns["product"] == "loan").to_numpy().astype(np.intp)
    edges = np.quantile(sample.columns["income"], np.arange(1, parts) / parts)
    return np.searchsorted(edges, fresh.columns["income"].to_numpy())


def _memberships(case: Case, sample: People, fresh: People) -> list[FloatArray]:
    """How much each row belongs to each group, (n, G), for each attribute; by what is true of probable groups."""
    sex = (fresh.columns["sex"] == "f").to_numpy().astype(np.intp)
    region = np.searchsorted(REGIONS, fresh.columns["region"].to_numpy())
    if case.groups == "crossed":
        return [np.eye(6)[3 * sex + region]]
    if case.groups == "each":
        return [np.eye(2)[sex], np.eye(3)[region]]
    if case.groups == "regions":
        return [np.eye(3)[region]]
    if case.groups != "bands":
        return [np.eye(2)[sex]]
    knots = np.quantile(sample.columns["age"], (np.arange(BANDS) + 0.5) / BANDS)
    place = np.interp(fresh.columns["age"].to_numpy(), knots, np.arange(BANDS))
    return [np.maximum(1.0 - np.abs(place[:, None] - np.arange(BANDS)), 0.0)]
