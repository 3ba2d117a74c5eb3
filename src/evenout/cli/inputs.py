"""The data of ``evenout fit``: a bundled data set, or a file whose columns have been told apart."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.core.exceptions import Message
from evenout.datasets import list_datasets, load_dataset
from evenout.inputs.files import SUFFIXES, read_table, require_columns, sha256
from evenout.inputs.table import numbers_or_gaps
from evenout.metrics import read_labels
from evenout.storage.output import require_apart

if TYPE_CHECKING:
    import pandas as pd

    from evenout.estimator import FairOutlierEnsemble
    from evenout.inputs.table import TableEncoder


@dataclass(frozen=True, eq=False)
class FitInputs:
    """Rows to fit on, each part of the table in its role.

    Attributes
    ----------
    name : str
        As the user gave it.
    sha256 : str
        Of the file.
    features : DataFrame of shape (n, columns)
        Never with a protected column, label or id among them.
    sensitive : DataFrame of shape (n, protected columns)
    labels : array of shape (n,) or None
        1 for an outlier; for evaluation alone.
    ids : array or list of length n
    clusters : Series of length n or None
        Rows of one value belong together; never a feature.
    given : DataFrame of shape (n, columns) or None
        What may justify a difference; features as well.
    """

    name: str
    sha256: str
    features: "pd.DataFrame"
    sensitive: "pd.DataFrame"
    labels: Any
    ids: Any
    clusters: "pd.Series | None" = None
    given: "pd.DataFrame | None" = None


def read_fit_inputs(
    data: str,
    *,
    sensitive: str,
    label: str | None,
    id_column: str | None,
    clusters: str | None = None,
    drop: str,
    given: str = "",
) -> FitInputs:
    """Read ``data``, a bundled name or a file."""
    if data in list_datasets():
        return _bundled(data, sensitive, drop, given, label or id_column or clusters)
    if not _names_a_file(data):
        near = get_close_matches(data.lower(), list_datasets(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"those are {', '.join(list_datasets())}"
        raise ValueError(f"{data!r} is neither a file ({', '.join(SUFFIXES)}) nor a bundled data set; {hint}")
    roles = {"--label": label, "--id": id_column, "--clusters": clusters}
    return _from_file(Path(data), sensitive, roles, drop, given)


def split_names(text: str, columns: Sequence[str]) -> list[str]:
    """Column names separated by commas; a name that holds a comma itself may stand alone.

    >>> split_names("sex,age", ["sex", "age"]), split_names("name, first", ["name, first"])
    (['sex', 'age'], ['name, first'])
    """
    return [text] if text in columns else [part for part in text.split(",") if part]


def row_ids(frame: "pd.DataFrame", id_column: str | None) -> Any:
    """The ids of the rows: a column, or the numbers from 1."""
    if id_column is None:
        return np.arange(1, len(frame) + 1)
    repeated = int(frame[id_column].duplicated().sum())
    if repeated:
        warnings.warn(
            f"column {id_column!r} (--id) does not tell rows apart: {repeated} of {len(frame)} repeat an earlier id",
            UserWarning,
            stacklevel=2,
        )
    return frame[id_column].to_numpy()


def _names_a_file(data: str) -> bool:
    return data != "" and (Path(data).exists() or Path(data).name != data or "." in data)


def _bundled(name: str, sensitive: str, drop: str, given: str, other: str | None) -> FitInputs:
    import pandas as pd

    if other:
        raise ValueError(f"{name} is bundled, with its labels and row numbers; leave --label, --id and --clusters out")
    dataset = load_dataset(name, sensitive=sensitive.split(",") if sensitive else None)
    dropped = split_names(drop, list(dataset.X.columns))
    require_columns(dropped, dataset.X.columns, where=name, use="--drop")
    strata = split_names(given, list(dataset.X.columns))
    require_columns(strata, dataset.X.columns, where=name, use="--given")
    return FitInputs(
        name,
        sha256(files("evenout.datasets") / "data" / f"{name}.csv.gz"),
        dataset.X.drop(columns=dropped),
        pd.DataFrame(dataset.sensitive),
        dataset.y.to_numpy(),
        np.arange(1, len(dataset.X) + 1),
        given=dataset.X[strata] if strata else None,
    )


def _from_file(path: Path, sensitive: str, roles: dict[str, str | None], drop: str, given: str) -> FitInputs:
    label, id_column, clusters = roles.values()
    if not sensitive:
        raise ValueError(f"{path}: --sensitive is missing; name the column of the protected group")
    # Groups are read as text, so that 1 stays "1" where a value is missing, and ids keep their leading zeros.
    text = {sensitive, *sensitive.split(","), clusters or ""}
    frame = read_table(path, text=text, verbatim={id_column or ""})
    columns = list(frame.columns)
    protected, dropped, strata = (split_names(names, columns) for names in (sensitive, drop, given))
    require_columns(strata, columns, where=str(path), use="--given")
    used = {"--sensitive": protected, **{use: [name] for use, name in roles.items() if name is not None}}
    used["--drop"] = dropped
    for use, names in used.items():
        require_columns(names, columns, where=str(path), use=use)
    _refuse_two_roles(used)
    taken = [name for names in used.values() for name in names]
    return FitInputs(
        str(path),
        sha256(path),
        frame.drop(columns=taken),
        frame[protected],
        None if label is None else label_column(label, frame[label]),
        row_ids(frame, id_column),
        None if clusters is None else frame[clusters],
        frame[strata] if strata else None,
    )


def _refuse_two_roles(used: dict[str, list[str]]) -> None:
    roles: dict[str, str] = {}
    for use, names in used.items():
        for name in names:
            if name in roles and use != "--drop":
                raise ValueError(f"column {name!r} is given as {roles[name]} and as {use}; choose one")
            roles[name] = use


def check_out(out: Path, *inputs: Path) -> None:
    """Refuse a place for a table of results that is no CSV file, or one of the files that it is computed from."""
    if out.suffix.lower() != ".csv":
        raise ValueError(f"--out {out} must end in .csv")
    require_apart(out, *inputs)


def label_column(name: str, column: "pd.Series") -> Any:
    """0 and 1, from numbers or truth values, also as text."""
    numbers = numbers_or_gaps(column)
    values = numbers.astype(object).where(numbers.isin([0, 1]), column)  # others are shown as they stand
    return read_labels(values, both=True, name=Message("column {name!r} ({@y})", name=name)).astype(int)


def parts_of(model: Any) -> "tuple[TableEncoder | None, FairOutlierEnsemble]":
    """Encoder and ensemble; a model that was saved in Python may have no encoder."""
    from sklearn.pipeline import Pipeline

    return (model["table"], model["ensemble"]) if isinstance(model, Pipeline) else (None, model)


def feature_names(fitted: Any, model: Path) -> list[str]:
    """The columns that a fitted encoder or ensemble, read from the file ``model``, asks for."""
    names = getattr(fitted, "feature_names_in_", None)
    if names is None:
        raise ValueError(f"{model} knows no column names: it was fitted on an array; score arrays with it in Python")
    return list(names)
