"""Write two tables with every trouble that a first table of one's own tends to have.

python tools/make_strangers.py FOLDER [--rows 1500]

``arrests.csv`` has whole-number ages, one-hot race columns with spaces in their names, gaps, dates, text, the later
outcome as "yes" and "no", and a vendor's decile score with ties. ``claims.csv`` has amounts with a dollar sign, shares
with a percent sign, a member number, a gap in nearly every column and an outcome as "Y" and "N".
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd


def with_gaps(column: pd.Series, share: float, rng: np.random.Generator) -> pd.Series:
    """Blank out a share of the values."""
    return column.mask(rng.random(len(column)) < share)


def deciles(risk: np.ndarray) -> np.ndarray:
    """A vendor's score from 1 to 10, with more people in the low ones."""
    return np.ceil(10 * pd.Series(risk).rank(pct=True).to_numpy() ** 1.5).astype(int)


def make_arrests(n: int, seed: int) -> pd.DataFrame:
    """People who were arrested, with a vendor's score and what happened in the two years after."""
    rng = np.random.default_rng(seed)
    race = rng.choice(["African American", "Caucasian", "Hispanic", "Other"], n, p=[0.4, 0.35, 0.15, 0.1])
    sex = rng.choice(["Male", "Female"], n, p=[0.75, 0.25])
    age = np.clip(rng.gamma(3.0, 6.0, n) + 18, 18, 80).astype(int)
    record = rng.negative_binomial(1, 0.25, n) + 2 * (race == "African American")  # more often stopped, not worse
    jail = np.round(rng.lognormal(1.5 + 0.05 * record, 1.0), 1)
    risk = 0.25 * record - 0.04 * age + rng.normal(size=n)
    again = rng.random(n) < 1 / (1 + np.exp(1.5 - 0.15 * record + 0.02 * (age - 30)))
    booked = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    frame = pd.DataFrame({"person_id": 100_000 + rng.permutation(n), "sex": sex, "age": age})
    for value in np.unique(race):
        frame[f"race_{value}"] = (race == value).astype(int)
    frame["priors count"] = with_gaps(pd.Series(record), 0.03, rng)
    frame["days in jail"] = with_gaps(pd.Series(jail), 0.1, rng)
    frame["booked"] = booked.strftime("%Y-%m-%d")
    frame["charge"] = with_gaps(
        pd.Series(rng.choice(["theft", "assault", "drugs", "driving, no licence"], n)), 0.05, rng
    )
    frame["decile_score"] = deciles(risk)
    frame["two_year_recid"] = np.where(again, "yes", "no")
    return frame


def make_claims(n: int, seed: int) -> pd.DataFrame:
    """Members of an insurance, their claims and whether an audit found fraud."""
    rng = np.random.default_rng(seed)
    gender = rng.choice(["F", "M"], n)
    age = rng.integers(18, 96, n)
    days = rng.poisson(2 + 0.05 * age)
    amount = rng.lognormal(6.5 + 0.03 * days + 0.3 * (gender == "F"), 0.8)
    fraud = rng.random(n) < 0.06
    amount *= np.where(fraud, 3.0, 1.0)
    share = np.clip(rng.beta(2, 5, n) + 0.2 * fraud, 0, 1)
    frame = pd.DataFrame(
        {"MemberID": [f"M{number:06d}" for number in rng.permutation(n)], "Gender": gender, "Age": age}
    )
    frame["Claimed"] = with_gaps(pd.Series([f"${value:,.2f}" for value in amount]), 0.04, rng)
    frame["Paid share"] = with_gaps(pd.Series([f"{value:.0%}" for value in share]), 0.04, rng)
    frame["Days in care"] = with_gaps(pd.Series(days), 0.06, rng)
    frame["First visit"] = (pd.Timestamp("2025-03-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D")).strftime(
        "%d.%m.%Y"
    )
    frame["Clinic"] = with_gaps(pd.Series(rng.choice(["north", "south", "mobile unit", "St. Mary's"], n)), 0.08, rng)
    frame["Notes"] = with_gaps(pd.Series([f"called on day {day}, file {i}" for i, day in enumerate(days)]), 0.5, rng)
    frame["RiskScore"] = deciles(np.log(amount) + rng.normal(size=n) * 0.3)
    frame["FraudFound"] = np.where(fraud, "Y", "N")
    return frame


TABLES = {"arrests": make_arrests, "claims": make_claims}


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1500)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, make in TABLES.items():
        make(arguments.rows, 0).to_csv(arguments.folder / f"{name}.csv", index=False)


if __name__ == "__main__":
    main()
