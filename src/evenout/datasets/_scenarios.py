"""Simulations of spurious bias: one group is flagged more often, for a known reason."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenout.datasets._dataset import Dataset, RandomState, check_strength, group_series, random_generator

OUTLIER_SD = 2.5
SMALL_SHARE = 0.05
N_INFORMATIVE = N_NUISANCE = 4
NUISANCE = slice(N_INFORMATIVE, None)
COLUMNS = [f"{kind}_{i + 1}" for kind in ("informative", "nuisance") for i in range(N_INFORMATIVE)]


@dataclass(frozen=True)
class Scenario:
    """How the group enters the simulation; each number is 0 unless the scenario is about it.

    Group j has the effect s_j. Its nuisance features are multiplied by 1 + `spread` s_j and moved by `shift` s_j.
    Student noise (3 degrees of freedom) times `noise` s_j is added to them. Outliers are drawn with weight
    1 + `rate` s_j. Nuisance feature j of group j >= 1 is moved by `place` s; such groups are small if `place` is not 0.
    """

    cause: str
    spread: float = 0.0
    shift: float = 0.0
    noise: float = 0.0
    place: float = 0.0
    rate: float = 0.0


SCENARIOS = {
    "variance": Scenario("later groups vary more in the nuisance features", spread=1.0),
    "shift": Scenario("later groups are shifted in the nuisance features", shift=2.5),
    "measurement_noise": Scenario("later groups are measured with gross errors in the nuisance features", noise=1.0),
    "under_representation": Scenario("later groups are small and lie elsewhere", place=4.0),
    "base_rate": Scenario("later groups have more outliers, so this gap is real", rate=3.0),
}


def make_biased_outliers(
    scenario: str, n: int = 2000, *, n_groups: int = 2, outlier_rate: float = 0.1, strength: float = 1.0,
    random_state: RandomState = None,
) -> Dataset:  # fmt: skip
    """Simulate data on which detectors flag a group more, for a reason that is known.

    Eight features: four *informative* ones x, which make an outlier, and four *nuisance* ones z, which say
    nothing about outliers. Groups are j = 0..g-1; the effect s_j = s j / (g-1) grows from 0 in the first
    group to the strength s in the last. Before the scenario's change

        x | inlier ~ N(0, I),   x | outlier ~ N(0, 2.5² I),   z ~ N(0, I),   share of group j ∝ 3^-j,

    a share `outlier_rate` of the rows being outliers, drawn without regard to the group. The scenarios:

    ``"variance"``
        z ~ N(0, (1 + s_j)² I): a group varies more where variation means nothing.
    ``"shift"``
        z ~ N(2.5 s_j 1, I): a group lies elsewhere where the place means nothing.
    ``"measurement_noise"``
        z + s_j e, e of Student's t with 3 degrees of freedom: a group is measured with gross errors, now and then.
    ``"under_representation"``
        z_j ~ N(4 s, 1) in group j >= 1, whose share is 0.05: small groups from another place.
    ``"base_rate"``
        Outliers are drawn one by one with weight 1 + 3 s_j: a group has more outliers. The gap is real,
        and a fair score pays for closing it.

    In the first four the label is independent of the group, so every gap in flags is spurious. With the same
    `random_state` a change of `strength` changes nothing but the effect.

    Parameters
    ----------
    scenario : str
        One of the names above; `list_scenarios` lists them.
    n : int
        The number of rows, at least 100.
    n_groups : int
        2 or 3.
    outlier_rate : float
        The share of outliers, above 0 and at most 0.5; their number is rounded, and at least 1.
    strength : float
        s above, at least 0; 0 means that the groups do not differ.
    random_state : int, RandomState, Generator or None
        The seed. None gives other data each time.

    Returns
    -------
    Dataset
        Columns ``informative_1`` .. ``informative_4`` and ``nuisance_1`` .. ``nuisance_4``.

    Examples
    --------
    >>> make_biased_outliers("variance", n=500, random_state=0)
    Dataset('variance': 500 rows, 8 features, 50 outliers; group: 2 groups)
    """
    if scenario not in SCENARIOS:
        raise ValueError(f"scenario is {scenario!r}; choose one of {', '.join(SCENARIOS)}.")
    if n < 100:
        raise ValueError(f"n is {n}; ask for at least 100 rows, so that the smallest group is not empty.")
    if n_groups not in (2, 3):
        raise ValueError(f"n_groups is {n_groups}; it must be 2 or 3.")
    if not 0 < outlier_rate <= 0.5:
        raise ValueError(f"outlier_rate is {outlier_rate}; it must be above 0 and at most 0.5.")
    check_strength(strength, least=0.0)
    rng, rules = random_generator(random_state), SCENARIOS[scenario]

    small = np.array([1 - SMALL_SHARE * (n_groups - 1)] + [SMALL_SHARE] * (n_groups - 1))
    falling = 3.0 ** -np.arange(n_groups)
    ends = np.round(n * np.cumsum(small if rules.place else falling / falling.sum()))
    codes = rng.permutation(np.searchsorted(ends, np.arange(n), side="right"))
    effect = strength * codes[:, None] / (n_groups - 1)
    # Taking rows as their exponential clocks ring is drawing one by one, without replacement, by weight.
    clocks = rng.standard_exponential(n) / (1 + rules.rate * effect[:, 0])
    y = np.zeros(n, dtype=np.int64)
    y[np.argsort(clocks)[: max(1, round(outlier_rate * n))]] = 1
    X = rng.standard_normal((n, len(COLUMNS)))
    X[y == 1, :N_INFORMATIVE] *= OUTLIER_SD
    X[:, NUISANCE] = X[:, NUISANCE] * (1 + rules.spread * effect) + rules.shift * effect
    later = np.flatnonzero(codes)
    X[later, N_INFORMATIVE + codes[later] - 1] += rules.place * effect.max()
    X[:, NUISANCE] += rules.noise * effect * rng.standard_t(3, size=(n, N_NUISANCE))
    description = (
        "Row: one draw of a simulation with 4 informative and 4 nuisance features.\n"
        f"Outlier: its informative features are drawn with standard deviation {OUTLIER_SD} instead of 1.\n"
        f"Groups: {rules.cause} (strength {strength:g}); the first group is unaffected.\n"
        "Source: evenout.datasets.make_biased_outliers."
    )
    frame, labels = pd.DataFrame(X, columns=COLUMNS), pd.Series(y, name="outlier")
    return Dataset(frame, labels, group_series(codes), scenario, description)


def list_scenarios() -> list[str]:
    """List the scenarios that `make_biased_outliers` knows.

    Examples
    --------
    >>> list_scenarios()
    ['variance', 'shift', 'measurement_noise', 'under_representation', 'base_rate']
    """
    return list(SCENARIOS)
