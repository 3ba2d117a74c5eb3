"""The bundled data sets: a table of their contents, and the loader."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import TypeAlias

import pandas as pd

from evenout.datasets._dataset import Dataset, RandomState, sample_groups
from evenout.exceptions import InputError

# Features (n x d), labels (n) and one column per protected attribute (n x number of attributes).
Parts: TypeAlias = tuple[pd.DataFrame, pd.Series, pd.DataFrame]


def load_dataset(
    name: str, *, random_state: RandomState = 0, sensitive: str | Sequence[str] | None = None, strength: float = 1.0
) -> Dataset:
    """Load a bundled data set with its groups.

    ``communities``, ``german`` and ``credit`` have protected attributes of their own. The other six have
    none: theirs is drawn by `sample_groups`. Features are as published, not standardised, and never hold a
    protected attribute.

    Parameters
    ----------
    name : str
        One of `list_datasets`.
    random_state : int, RandomState, Generator or None
        The seed of a sampled attribute.
    sensitive : str, list of str or None
        ``credit`` only: which of ``"education"`` (the default), ``"age"``, ``"sex"`` and ``"marriage"`` is
        protected. A list gives a DataFrame with these columns. Age is in bands: under 30, 30-39, 40-49,
        50 and over.
    strength : float
        How strongly a sampled attribute depends on the label: see `sample_groups`; 0 means not at all.

    Returns
    -------
    Dataset
        With `X` of shape (n, d), `y` of shape (n,), `sensitive` of n rows, `name` and `description`.

    Examples
    --------
    >>> load_dataset("german")
    Dataset('german': 1000 rows, 23 features, 300 outliers; personal_status_sex: 4 groups)
    >>> load_dataset("credit", sensitive=["age", "sex"])
    Dataset('credit': 30000 rows, 19 features, 6636 outliers; age: 4 groups, sex: 2 groups)
    """
    if name not in BUNDLED:
        near = get_close_matches(str(name).lower(), BUNDLED, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"name is {name!r}; the data sets are {', '.join(BUNDLED)}.{hint}")
    bundled = BUNDLED[name]
    if bundled.protected and strength != 1.0:
        raise ValueError(f"strength is {strength}, but {name!r} has groups of its own; leave strength out.")
    if sensitive is not None:
        if len(bundled.protected) < 2:
            raise InputError(
                "{sensitive=} was given, but only 'credit' has a choice; leave it out here", sensitive=sensitive
            )
        asked, known = [sensitive] if isinstance(sensitive, str) else list(sensitive), ", ".join(bundled.protected)
        if not asked or len(set(asked)) < len(asked) or not set(asked) <= set(bundled.protected):
            raise InputError(
                "{sensitive=} is not allowed; choose from {known}, each once", sensitive=asked, known=known
            )
    with (files("evenout.datasets") / "data" / f"{name}.csv.gz").open("rb") as file:
        X, y, protected = bundled.split(pd.read_csv(file, compression="gzip"))
    y = y.astype("int64").rename("outlier")
    groups: pd.Series | pd.DataFrame
    if bundled.protected:
        columns = bundled.protected[0] if sensitive is None else sensitive
        groups = protected[columns if isinstance(columns, str) else list(columns)]
    else:
        groups = sample_groups(y, bundled.n_groups, strength=strength, random_state=random_state)
    parts = ("row", "outlier", "groups", "source", "licence")
    description = "\n".join(f"{part.capitalize()}: {getattr(bundled, part)}." for part in parts)
    return Dataset(X.astype("float64"), y, groups, name, description)


def list_datasets() -> list[str]:
    """List the names that `load_dataset` knows: the paper's eight in its order, then credit.

    Examples
    --------
    >>> list_datasets()  # doctest: +NORMALIZE_WHITESPACE
    ['communities', 'german', 'annthyroid', 'cardio', 'vowels', 'breastw', 'mammography', 'pima', 'credit']
    """
    return list(BUNDLED)


def _split_communities(frame: pd.DataFrame) -> Parts:
    races = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]
    n_identifiers = 5
    predictive = frame.iloc[:, n_identifiers:-1].drop(columns=races)
    X = predictive.loc[:, predictive.isna().sum() <= 1]  # leaves out 22 columns on the police, mostly missing
    # Eight rows have two largest shares; the first in the order above is taken.
    largest = frame[races].set_axis(["black", "white", "asian", "hispanic"], axis=1).idxmax(axis=1)
    return X.fillna(X.median()), frame["ViolentCrimesPerPop"] > 0.5, largest.to_frame("race")


def _split_german(frame: pd.DataFrame) -> Parts:
    status = frame["personal_status_sex"].map(
        {
            "A91": "male divorced/separated",
            "A92": "female divorced/separated/married",
            "A93": "male single",
            "A94": "male married/widowed",
        }
    )
    X = frame.drop(columns=["A7", "personal_status_sex", "label"])  # A7 is the group in another coding
    return X, frame["label"] == 2, status.to_frame()


def _split_credit(frame: pd.DataFrame) -> Parts:
    protected = frame[["EDUCATION", "AGE", "SEX", "MARRIAGE"]].rename(columns=str.lower)
    bands = ["under 30", "30-39", "40-49", "50 and over"]
    protected["age"] = pd.cut(protected["age"], [0, 30, 40, 50, 200], right=False, labels=bands).astype(str)
    return frame.drop(columns=["EDUCATION", "AGE", "SEX", "MARRIAGE", "default"]), frame["default"], protected


@dataclass(frozen=True)
class BundledFile:
    """Contents of ``data/<name>.csv.gz``, with the counts after loading.

    `protected` names the data set's own protected attributes, the default first; it is empty where the attribute is
    sampled.
    """

    sha256: str
    n_rows: int
    n_features: int
    n_outliers: int
    n_groups: int
    row: str
    outlier: str
    source: str
    groups: str = "sampled by evenout.datasets.sample_groups; the data has none of its own"
    licence: str = "CC BY 4.0"
    protected: tuple[str, ...] = ()
    split: Callable[[pd.DataFrame], Parts] = lambda frame: (frame.drop(columns="outlier"), frame["outlier"], frame[[]])


BUNDLED = {
    "communities": BundledFile(
        "25b6fb38952841141e2119cecfb0ff4e1b8ab0a51adb97a7fbf4b26dee9019e8",
        n_rows=1994, n_features=96, n_outliers=277, n_groups=4,
        row="a community of the United States: census of 1990 and crime report of 1995, scaled to [0, 1]",
        outlier="more than 0.5 on the scaled number of violent crimes per head",
        groups="the largest of the four scaled shares of population: black, white, asian or hispanic",
        source="UCI, Communities and Crime (M. Redmond), doi:10.24432/C53W3X",
        protected=("race",),
        split=_split_communities,
    ),
    "german": BundledFile(
        "efd183540fa65a24233f08c2b628aa089cce28b1414c80ef77c0217fdddc4980",
        n_rows=1000, n_features=23, n_outliers=300, n_groups=4,
        row="a person who took a credit in Germany, numeric coding",
        outlier="a bad credit risk",
        groups="personal status and sex: three groups of men, one of women",
        source="UCI, Statlog German Credit Data (H. Hofmann), doi:10.24432/C5NC77",
        protected=("personal_status_sex",),
        split=_split_german,
    ),
    "annthyroid": BundledFile(
        "d18fe5e6c2bf9a2401551806bceb483a76b2d61a04fda39032fa2db1a22861a1",
        n_rows=7200, n_features=6, n_outliers=534, n_groups=2,
        row="a patient: age and five measurements of thyroid hormones",
        outlier="a thyroid that does not function normally",
        source="UCI, Thyroid Disease (R. Quinlan; this part R. Werner), doi:10.24432/C5D010",
    ),
    "cardio": BundledFile(
        "785583b5a31c1ca323de67aaf2a1530749f9ad27102f06994240598758cab1dd",
        n_rows=1831, n_features=21, n_outliers=176, n_groups=2,
        row="a cardiotocogram (heart rate of a fetus, contractions), z-scored",
        outlier="judged pathologic; suspect ones are left out",
        source="UCI, Cardiotocography (D. Campos, J. Bernardes), doi:10.24432/C51S4N, in the form of ODDS",
    ),
    "vowels": BundledFile(
        "03d2c077044c3b1d2306184d5747b1574b439ece70247c1052a627528db01bf8",
        n_rows=1456, n_features=12, n_outliers=50, n_groups=3,
        row="a frame of a Japanese vowel as spoken by a man: 12 cepstrum coefficients, z-scored",
        outlier="spoken by speaker 1; the others are by speakers 6, 7 and 8",
        source="UCI, Japanese Vowels (M. Kudo et al.), doi:10.24432/C5NS47, in the form of ODDS",
    ),
    "breastw": BundledFile(
        "ffeef0f72dc6237b3f3aaa4d95f5013710b83490ed10418be9b3340a6b9a5d2e",
        n_rows=683, n_features=9, n_outliers=239, n_groups=3,
        row="a sample of breast tissue: nine properties of its cells, graded 1 to 10",
        outlier="malignant",
        source="UCI, Breast Cancer Wisconsin Original (W. Wolberg), doi:10.24432/C5HP4Z, in the form of ODDS",
    ),
    "mammography": BundledFile(
        "d8c31a8a4e2cd63608baea5579c273b4025d8eadcbb8d66e4a95ee2775a4c5df",
        n_rows=11183, n_features=6, n_outliers=260, n_groups=4,
        row="a candidate spot in a mammogram: six measurements of the image",
        outlier="a calcification",
        source="Woods et al. 1993, in the form of ODDS and OpenML",
        licence="none stated; widely redistributed for research, credit the authors",
    ),
    "pima": BundledFile(
        "701ba92495aa22b652d20028636b979a4a20da380889c6f07b8895b54bd2ea77",
        n_rows=768, n_features=8, n_outliers=268, n_groups=4,
        row="a woman of Pima heritage, 21 or older: eight medical measurements",
        outlier="has diabetes",
        source="NIDDK (donor V. Sigillito; Smith et al. 1988), in the form of ODDS",
        licence="none stated (see data/README.md); widely redistributed for research, credit the donor",
    ),
    "credit": BundledFile(
        "4a276ea74be1c98ee602e5cb259d4ad6d330b045a1bfae1ef6255d7b457029ae",
        n_rows=30000, n_features=19, n_outliers=6636, n_groups=4,
        row="a holder of a credit card in Taiwan, 2005: limit, and six months of bills and payments",
        outlier="did not pay in the next month",
        groups="education, age, sex or marriage, as chosen by `sensitive`",
        source="UCI, Default of Credit Card Clients (I-C. Yeh), doi:10.24432/C55S3H",
        protected=("education", "age", "sex", "marriage"),
        split=_split_credit,
    ),
}  # fmt: skip
