"""Inputs of commands: bundled data sets, files whose columns have roles, saved models and the rows they score."""

import glob
import os
import re
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from click.core import ParameterSource
from sklearn.pipeline import Pipeline

from evenout.cli.messages import Announce
from evenout.cli.options import OF_GROUPS, split_names
from evenout.core.individual import Individual
from evenout.core.types import FloatArray
from evenout.datasets import list_datasets, load_dataset
from evenout.detectors.adapt import GroupAware
from evenout.estimator import FairOutlierEnsemble
from evenout.exceptions import EvenoutWarning, InputError, Message, warn
from evenout.groups.model import MANY, warn_whole_numbers
from evenout.groups.read import GroupProbabilities, coded
from evenout.groups.rules import Groups
from evenout.metrics import read_labels
from evenout.persistence import load_model
from evenout.repair import ScoreRepair
from evenout.storage.output import require_apart
from evenout.tables.columns import column_numbers
from evenout.tables.encoder import TableEncoder, number_columns
from evenout.tables.files import SUFFIXES, read_table, require_columns, sha256
from evenout.tables.rows import read_outcomes

_DOUBTS = {"outcome": "an outcome", "score": "the score of another model", "person number": "a person number"}
_NAMED = 5
_BATCH = 65536  # rows scored between two moves of the progress bar
_WHOLE = re.compile(r"-?\d+")


@dataclass(frozen=True, eq=False)
class FitInputs:
    """Rows to fit on, each part of the table in its role; all but ``name``, ``sha256`` and ``keep`` have n rows.

    ``name`` is as the user gave it. ``features`` never have a protected column, label, id or cluster among them;
    those in ``keep`` are features even if they look like ids, and those in ``given``, which may justify a difference,
    are features as well. ``labels``, 1 for an outlier, are for evaluation; ``known`` for the fit, NaN where nobody
    knows. Rows of one value of ``clusters`` belong together. ``score`` is a finished score, to be repaired.
    """

    name: str
    sha256: str
    features: pd.DataFrame
    sensitive: pd.DataFrame | GroupProbabilities
    labels: Any
    ids: Any
    clusters: pd.Series | None = None
    known: Any = None
    given: pd.DataFrame | None = None
    keep: Sequence[str] = ()
    score: pd.Series | None = None


def read_fit_inputs(
    data: str, *, sensitive: Sequence[str], label: str | None, id_column: str | None, clusters: str | None = None,
    drop: Sequence[str], given: Sequence[str] = (), keep: Sequence[str] = (), probable: bool = False,
    learn: bool = False, gaps: bool = False, score: str | None = None,
) -> FitInputs:  # fmt: skip
    """Read ``data``, a bundled name or a file.

    To ``learn``, and where ``gaps`` are allowed, labels may be missing. Labels to learn from, and those with gaps, do
    not serve evaluation.
    """
    roles = {"--label": label, "--id": id_column, "--clusters": clusters, "--score": score}
    if data in list_datasets():
        return _bundled(data, sensitive, drop, given, keep, roles, probable=probable)
    if data == "" or not (Path(data).exists() or Path(data).name != data or "." in data):
        near = get_close_matches(data.lower(), list_datasets(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"those are {', '.join(list_datasets())}"
        raise ValueError(f"{data!r} is neither a file ({', '.join(SUFFIXES)}) nor a bundled data set; {hint}")
    path = Path(data)
    require_sensitive(path, sensitive)
    # Groups are read as text, so that 1 stays "1" where a value is missing, and ids keep their leading zeros.
    # Before the columns are known, a list may stand for each of these names.
    groups, left_out = (
        {*names, *(part for text in names for part in text.split(",")), *split_names(names)}
        for names in (sensitive, drop)
    )
    text = {clusters or ""} if probable else {*groups, clusters or ""}
    frame = read_table(
        path, text=text, verbatim={id_column or ""}, once={*groups, *left_out, *text, *filter(None, roles.values())}
    )
    if len(frame) == 1:
        raise ValueError(f"{path} has one row; outliers are found by holding many rows against each other")
    columns = list(frame.columns)
    protected, dropped, strata, kept = (split_names(names, columns) for names in (sensitive, drop, given, keep))
    used = {
        "--sensitive": protected, **{use: [name] for use, name in roles.items() if name is not None}, "--drop": dropped
    }  # fmt: skip
    for use, names in {"--given": strata, **used, "--keep": kept}.items():
        require_columns(names, columns, where=str(path), use=use)
    refuse_two_roles(used | {"--keep": kept})
    labels = None if label is None else label_column(label, frame[label], gaps=gaps or learn)
    return FitInputs(
        name=str(path),
        sha256=sha256(path),
        features=frame.drop(columns=[name for names in used.values() for name in names]),
        sensitive=GroupProbabilities(frame[protected]) if probable else frame[protected],
        labels=None if labels is None or learn or np.isnan(labels).any() else labels,
        ids=row_ids(frame, id_column),
        clusters=None if clusters is None else frame[clusters],
        known=labels,
        given=frame[strata] if strata else None,
        keep=kept,
        score=None if score is None else score_column(score, frame),
    )


def _bundled(
    name: str, sensitive: Sequence[str], drop: Sequence[str], given: Sequence[str], keep: Sequence[str],
    roles: dict[str, str | None], *, probable: bool,
) -> FitInputs:  # fmt: skip
    if probable:
        raise ValueError(f"{name} is bundled, with groups that are known; leave --probable out")
    if roles.pop("--score") is not None:
        raise ValueError(f"{name} is bundled, and has no finished score; give a file")
    if any(roles.values()):
        raise ValueError(f"{name} is bundled, with its labels and row numbers; leave --label, --id and --clusters out")
    dataset = load_dataset(name, sensitive=split_names(sensitive) or None)
    protected, labels, columns = pd.DataFrame(dataset.sensitive), dataset.y.to_numpy(), list(dataset.X.columns)
    dropped, strata, kept = (split_names(names, columns) for names in (drop, given, keep))
    refuse_two_roles({"--sensitive": list(map(str, protected.columns)), "--drop": dropped, "--keep": kept})
    for use, names in {"--drop": dropped, "--given": strata, "--keep": kept}.items():
        require_columns(names, columns, where=name, use=use)
    return FitInputs(
        name=name,
        sha256=sha256(files("evenout.datasets") / "data" / f"{name}.csv.gz"),
        features=dataset.X.drop(columns=dropped),
        sensitive=protected,
        labels=labels,
        ids=np.arange(1, len(dataset.X) + 1),
        known=labels,
        given=dataset.X[strata] if strata else None,
        keep=kept,
    )


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


def row_ids(frame: pd.DataFrame, id_column: str | None) -> Any:
    """The ids of the rows: a column, or the numbers from 1."""
    if id_column is None:
        return np.arange(1, len(frame) + 1)
    repeated = int(frame[id_column].duplicated().sum())
    if repeated:
        warnings.warn(
            f"column {id_column!r} (--id) does not tell rows apart: {repeated} of {len(frame)} repeat an earlier id",
            stacklevel=2,
        )
    return frame[id_column].to_numpy()


def offer_bands(protected: Any, continuous: Sequence[str]) -> None:
    """Say how to compare along whole numbers: files are read with groups as text, which the library takes by value."""
    for name in getattr(protected, "columns", ()):
        _, values = coded(protected[name])
        if name not in continuous and len(values) > MANY and all(map(_WHOLE.fullmatch, values)):
            warn_whole_numbers(str(name), text=True)


def score_column(name: str, frame: pd.DataFrame) -> pd.Series:
    """A finished score, a number in every row."""
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


def note_doubts(table: TableEncoder, *, labelled: bool) -> None:
    """Name features that are likely outcomes, scores or person numbers: outliers in those are no finding."""
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


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except ValueError as error:
        raise InputError("{file}: {error}", file=file, error=error) from None


def label_column(name: str, column: pd.Series, *, gaps: bool = False) -> Any:
    """0 and 1, from numbers or truth values, also as text; with ``gaps``, NaN where nothing stands."""
    title = Message("column {name!r} ({@labels})", name=name)
    return read_outcomes(column, name=title) if gaps else read_labels(column, both=True, name=title).astype(int)


def was_given(name: str) -> bool:
    """Whether the user gave this option of the command that runs."""
    return click.get_current_context().get_parameter_source(name) not in (None, ParameterSource.DEFAULT)


def ensemble_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Turn options into arguments of the ensemble: those of groups into `Groups`, those of pairs into `Individual`."""
    rules = {name: options[name] for name in OF_GROUPS if name in options}
    if "bands" in rules and was_given("bands") and not rules["continuous"]:
        raise ValueError(
            "--bands goes with --continuous, the protected columns that are numbers; name them, or leave --bands out"
        )
    settings = {name: value for name, value in options.items() if name not in rules}
    settings |= {"groups": Groups(**rules)} if rules else {}
    if "pairs" in settings:
        notion, asked = Individual(settings.pop("length_scale"), settings.pop("pairs")), settings["fairness"]
        weights = asked if isinstance(asked, dict) else {}
        named = {notion if name == notion.name else name: weight for name, weight in weights.items()}
        settings["fairness"] = named or (notion if asked == notion.name else asked)
    return settings


class SavedModel:
    """A model file, and the columns of new rows that the model needs.

    ``model`` is a `FairOutlierEnsemble`, `BlindRepair` or `ScoreRepair`, and computes as ``machine`` says, as far as it
    has these parameters. ``table`` is None if it was saved in Python without one. ``score`` is the column that a repair
    repairs, once rows have been read. A repair is refused for ``purpose``, if any, which only an ensemble serves.
    """

    def __init__(self, path: Path, trust: Sequence[str], step: Announce, purpose: str = "", **machine: Any) -> None:
        step(f"Loading {path}")
        model = load_model(path, trusted=trust)
        self.path, self.score, self._sensitive = path, "", list[str]()
        self.model: Any = model[1] if isinstance(model, Pipeline) else model
        self.table: TableEncoder | None = model[0] if isinstance(model, Pipeline) else None
        self._aware = isinstance(self.model, ScoreRepair)  # by the group and the score alone
        known = self.model.get_params(deep=False)
        self.model.set_params(**{name: value for name, value in machine.items() if name in known})
        if purpose and not isinstance(self.model, FairOutlierEnsemble):
            raise ValueError(f"{path} is a {type(self.model).__name__}; {purpose} needs a model of evenout fit")

    @property
    def features(self) -> list[str]:
        """The columns that the encoder or the model asks for."""
        if self._aware:
            return []
        names = getattr(self.table or self.model, "columns_used", getattr(self.model, "feature_names_in_", None))
        if names is None:
            raise ValueError(
                f"{self.path} knows no column names: it was fitted on an array; score arrays with it in Python"
            )
        return list(names)

    def read(
        self, file: Path, id_column: str | None, score: str | None, sensitive: Sequence[str], text: Sequence[str] = ()
    ) -> pd.DataFrame:
        """Read new rows, text columns as in fitting, and check that every column is there that the model needs.

        Columns of the score and of groups that the model does not know by name must be given; ``text`` names more
        columns to be read as text.
        """
        ensemble = isinstance(self.model, FairOutlierEnsemble)
        if ensemble and score is not None:
            raise ValueError(f"{self.path} repairs no score; leave --score out")
        self.score = "" if ensemble else score or self.model.score_name_
        if not ensemble and not self.score:
            raise ValueError(f"{self.path} repairs a score, but does not know its column; name it as --score")
        parts = self.model._result.scores.pool.parts if ensemble else ()
        if self._aware or any(isinstance(part, GroupAware) for part in parts):
            self._sensitive = split_names(sensitive) or [*getattr(self.model, "sensitive_names_", ())]
            if not self._sensitive:
                raise ValueError(f"{self.path} uses the group of each row; name its column as --sensitive")
        features, as_text = self.features, {*getattr(self.table, "categories_", ()), *self._sensitive, *text}
        frame = read_table(file, text=as_text, verbatim={id_column or ""})
        used = {"--id": [] if id_column is None else [id_column], "--score": [self.score] if self.score else []}
        for use, names in {**used, "--sensitive": self._sensitive, "needed by the model": features}.items():
            require_columns(names, frame.columns, where=str(file), use=use)
        return frame

    def groups(self, frame: pd.DataFrame) -> Any:
        """The groups of the rows, where the model uses them."""
        names = self._sensitive
        return None if not names else frame[names[0]] if len(names) == 1 else frame[names]

    def encoded(self, frame: pd.DataFrame) -> Any:
        """The features of the rows as the model takes them; None if it takes none."""
        if self._aware:
            return None
        names = getattr(self.model, "feature_names_in_", [])
        return number_columns(frame, names) if self.table is None else self.table.transform(frame)

    def scores(self, frame: pd.DataFrame, rows: Any, step: Announce) -> FloatArray:
        """Scores of the rows, a batch after the other; ``rows`` are encoded, and ``step`` tells of them."""
        done = step(f"Scoring {len(frame):,} rows", total=len(frame))
        groups, given = self.groups(frame), score_column(self.score, frame) if self.score else None
        score, scores = self.model.outlier_scores if given is None else self.model.transform, []
        for start in range(0, len(frame), _BATCH):
            part = slice(start, start + _BATCH)
            columns = [getattr(each, "iloc", each)[part] for each in (given, rows) if each is not None]
            beside = {} if groups is None else {"sensitive_features": groups.iloc[part]}
            scores.append(score(*columns, **beside))
            done(len(scores[-1]))
        return np.concatenate(scores)
