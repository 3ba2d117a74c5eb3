"""The data of ``evenout fit``: a bundled data set, or a file whose columns have been told apart."""

import glob
import os
import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.cli.options import split_names
from evenout.datasets import list_datasets, load_dataset
from evenout.exceptions import EvenoutWarning, Message, warn
from evenout.groups.model import MANY, warn_whole_numbers
from evenout.groups.read import GroupProbabilities, coded
from evenout.metrics import read_labels
from evenout.storage.output import require_apart
from evenout.tables.columns import NUMBER, column_numbers
from evenout.tables.files import SUFFIXES, read_table, require_columns, sha256
from evenout.tables.rows import read_outcomes

if TYPE_CHECKING:
    import pandas as pd

    from evenout.estimator import FairOutlierEnsemble
    from evenout.tables.encoder import TableEncoder


_DOUBTS = {"outcome": "an outcome", "score": "the score of another model", "person number": "a person number"}
_NAMED = 5
_WHOLE = re.compile(r"-?\d+")


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
    sensitive : DataFrame of shape (n, protected columns), or GroupProbabilities
    labels : array of shape (n,) or None
        1 for an outlier; for evaluation.
    ids : array or list of length n
    clusters : Series of length n or None
        Rows of one value belong together; never a feature.
    known : array of shape (n,) or None
        Labels for the fit, NaN where nobody knows.
    given : DataFrame of shape (n, columns) or None
        What may justify a difference; features as well.
    keep : sequence of str
        Features even if they look like ids.
    score : Series of length n or None
        A finished score, to be repaired.
    """

    name: str
    sha256: str
    features: "pd.DataFrame"
    sensitive: "pd.DataFrame | GroupProbabilities"
    labels: Any
    ids: Any
    clusters: "pd.Series | None" = None
    known: Any = None
    given: "pd.DataFrame | None" = None
    keep: Sequence[str] = ()
    score: "pd.Series | None" = None


def read_fit_inputs(
    data: str, *, sensitive: Sequence[str], label: str | None, id_column: str | None, clusters: str | None = None,
    drop: Sequence[str], given: Sequence[str] = (), keep: Sequence[str] = (), probable: bool = False,
    learn: bool = False, gaps: bool = False, score: str | None = None,
) -> FitInputs:  # fmt: skip
    """Read ``data``, a bundled name or a file.

    To ``learn``, and where ``gaps`` are allowed, labels may be missing. Labels to learn from, and those with gaps, are
    not there to evaluate by.
    """
    if probable and data in list_datasets():
        raise ValueError(f"{data} is bundled, with groups that are known; leave --probable out")
    if score is not None and data in list_datasets():
        raise ValueError(f"{data} is bundled, and has no finished score; give a file")
    if data in list_datasets():
        return _bundled(data, sensitive, drop, given, keep, label or id_column or clusters)
    if data == "" or not (Path(data).exists() or Path(data).name != data or "." in data):
        near = get_close_matches(data.lower(), list_datasets(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"those are {', '.join(list_datasets())}"
        raise ValueError(f"{data!r} is neither a file ({', '.join(SUFFIXES)}) nor a bundled data set; {hint}")
    roles = {"--label": label, "--id": id_column, "--clusters": clusters, "--score": score}
    inputs = _from_file(Path(data), sensitive, roles, drop, given, keep, gaps=gaps or learn, probable=probable)
    whole = inputs.labels is not None and not np.isnan(inputs.labels).any() and not learn
    return replace(inputs, labels=inputs.labels if whole else None, known=inputs.labels)


def is_folder(data: str) -> bool:
    """Whether the argument names many files: a folder, or a pattern."""
    pattern = not Path(data).exists() and any(mark in data for mark in "*?[")
    return pattern or (data != "" and Path(data).is_dir())


def require_outside(out: Path, results: Path, data: str) -> None:
    """Refuse to write into the folder that is read, where results would replace rows or be read as rows next time."""
    pattern = str(Path(glob.escape(data), "**", "*.parquet")) if Path(data).is_dir() else data
    sources = {os.path.realpath(Path(file).parent) for file in glob.glob(pattern, recursive=True)}  # noqa: PTH207
    nested = Path(data).is_dir() and Path(os.path.realpath(out)).is_relative_to(os.path.realpath(data))
    if sources and (nested or os.path.realpath(results) in sources):
        raise ValueError(f"--out {out} lies in the folder of the rows, {data}; choose a place outside of it")


def require_sensitive(data: object, sensitive: Sequence[str]) -> None:
    """Refuse rows without a protected group."""
    if not split_names(sensitive):
        raise ValueError(f"{data}: --sensitive is missing; name the column of the protected group")


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


def _bundled(
    name: str, sensitive: Sequence[str], drop: Sequence[str], given: Sequence[str], keep: Sequence[str],
    other: str | None,
) -> FitInputs:  # fmt: skip
    import pandas as pd

    if other:
        raise ValueError(f"{name} is bundled, with its labels and row numbers; leave --label, --id and --clusters out")
    dataset = load_dataset(name, sensitive=split_names(sensitive) or None)
    protected, columns = pd.DataFrame(dataset.sensitive), list(dataset.X.columns)
    dropped, strata, kept = (split_names(names, columns) for names in (drop, given, keep))
    refuse_two_roles({"--sensitive": list(map(str, protected.columns)), "--drop": dropped, "--keep": kept})
    for use, names in {"--drop": dropped, "--given": strata, "--keep": kept}.items():
        require_columns(names, columns, where=name, use=use)
    return FitInputs(
        name,
        sha256(files("evenout.datasets") / "data" / f"{name}.csv.gz"),
        dataset.X.drop(columns=dropped),
        protected,
        dataset.y.to_numpy(),
        np.arange(1, len(dataset.X) + 1),
        known=dataset.y.to_numpy(),
        given=dataset.X[strata] if strata else None,
        keep=kept,
    )


def _from_file(
    path: Path, sensitive: Sequence[str], roles: dict[str, str | None], drop: Sequence[str], given: Sequence[str],
    keep: Sequence[str], *, gaps: bool, probable: bool,
) -> FitInputs:  # fmt: skip
    label, id_column, clusters, score = roles.values()
    require_sensitive(path, sensitive)
    # Groups are read as text, so that 1 stays "1" where a value is missing, and ids keep their leading zeros.
    # Before the columns are known, a list may stand for each of these names.
    groups, left_out = (
        {*names, *(part for text in names for part in text.split(",")), *split_names(names)}
        for names in (sensitive, drop)
    )
    text = {clusters or ""} if probable else {*groups, clusters or ""}
    named = {*groups, *left_out, *text, *filter(None, roles.values())}
    frame = read_table(path, text=text, verbatim={id_column or ""}, once=named)
    if len(frame) == 1:
        raise ValueError(f"{path} has one row; outliers are found by holding many rows against each other")
    columns = list(frame.columns)
    protected, dropped, strata, kept = (split_names(names, columns) for names in (sensitive, drop, given, keep))
    require_columns(strata, columns, where=str(path), use="--given")
    used = {"--sensitive": protected, **{use: [name] for use, name in roles.items() if name is not None}}
    used["--drop"] = dropped
    for use, names in (used | {"--keep": kept}).items():
        require_columns(names, columns, where=str(path), use=use)
    refuse_two_roles(used | {"--keep": kept})
    features = frame.drop(columns=[name for names in used.values() for name in names])
    return FitInputs(
        str(path),
        sha256(path),
        features,
        GroupProbabilities(frame[protected]) if probable else frame[protected],
        None if label is None else label_column(label, frame[label], gaps=gaps),
        row_ids(frame, id_column),
        None if clusters is None else frame[clusters],
        given=frame[strata] if strata else None,
        keep=kept,
        score=None if score is None else score_column(score, frame),
    )


def offer_bands(protected: Any, continuous: Sequence[str]) -> None:
    """Say how to compare along whole numbers: files are read with groups as text, which the library takes by value."""
    for name in getattr(protected, "columns", ()):
        _, values = coded(protected[name])
        if name not in continuous and len(values) > MANY and all(map(_WHOLE.fullmatch, values)):
            warn_whole_numbers(str(name), text=True)


def score_column(name: str, frame: "pd.DataFrame") -> "pd.Series":
    """A finished score, a number in every row."""
    import pandas as pd

    values = pd.Series(column_numbers(name, frame[name]), frame.index, name=name)
    if values.isna().any():
        raise ValueError(f"column {name!r} (--score) is empty in row {int(values.isna().argmax()) + 1}; fill it in")
    return values


def refuse_two_roles(used: dict[str, list[str]]) -> None:
    """Refuse a column that is given two options that contradict each other."""
    roles: dict[str, str] = {}
    for use, names in used.items():
        for name in names:
            if name in roles and use != "--drop":
                raise ValueError(f"column {name!r} is given as {roles[name]} and as {use}; choose one")
            roles[name] = use


def note_doubts(table: "TableEncoder", *, labelled: bool) -> None:
    """Name features that are likely something else: outliers told by an outcome or another score are no finding."""
    for role, meant in _DOUBTS.items():
        names = [name for name, each in table.doubts_.items() if each == role]
        if names:
            named, more = ", ".join(map(repr, names[:_NAMED])), f" and {len(names) - _NAMED} more"
            one = len(names) == 1
            label = "name it as --label, or " if role == "outcome" and one and not labelled else ""
            warn(
                EvenoutWarning(
                    "column{s} {named} look{verb} like {meant} and {are} used as {a}feature{s}; {label}leave {it} out: "
                    "--drop {drop}",
                    s="" if one else "s", named=named + (more if len(names) > _NAMED else ""), verb="s" if one else "",
                    meant=meant, are="is" if one else "are", a="a " if one else "", label=label,
                    it="it" if one else "them", drop=shlex.quote(",".join(names)),
                )
            )  # fmt: skip


def check_out(out: Path, *inputs: Path) -> None:
    """Refuse a place for a table of results that is no CSV file, or one of the files that it is computed from."""
    if out.suffix.lower() != ".csv":
        raise ValueError(f"--out {out} must end in .csv")
    require_apart(out, *inputs)


def label_column(name: str, column: "pd.Series", *, gaps: bool = False) -> Any:
    """0 and 1, from numbers or truth values, also as text; with ``gaps``, NaN where nothing stands."""
    told = Message("column {name!r} ({@labels})", name=name)
    if not gaps:
        return read_labels(column, both=True, name=told).astype(int)
    return read_outcomes(column, name=told)


def refuse_text(table: "TableEncoder") -> None:
    """Refuse a column of scores that holds anything but numbers."""
    for column in table.columns_:
        if getattr(column, "way", "") != NUMBER or getattr(column, "unit", ""):
            raise ValueError(f"column {column.name!r} holds text; scores must be numbers")


def parts_of(model: Any) -> "tuple[TableEncoder | None, Any]":
    """Encoder, and ensemble or repair; a model that was saved in Python may have no encoder."""
    from sklearn.pipeline import Pipeline

    return (model[0], model[1]) if isinstance(model, Pipeline) else (None, model)


def require_ensemble(model: Any, path: Path, what: str) -> "FairOutlierEnsemble":
    """Refuse a repair where only an ensemble will do."""
    from evenout.estimator import FairOutlierEnsemble

    if not isinstance(model, FairOutlierEnsemble):
        raise ValueError(f"{path} is a {type(model).__name__}; {what} needs a model of evenout fit")
    return model


def feature_names(fitted: Any, model: Path) -> list[str]:
    """The columns that a fitted encoder or ensemble, read from the file ``model``, asks for."""
    names = getattr(fitted, "columns_used", getattr(fitted, "feature_names_in_", None))
    if names is None:
        raise ValueError(f"{model} knows no column names: it was fitted on an array; score arrays with it in Python")
    return list(names)
