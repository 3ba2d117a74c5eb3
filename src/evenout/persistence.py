"""Models in files that run no code when loaded.

A model file is a skops file of plain data: numbers, text and arrays (`evenout.storage.archive`). It holds the
parameters of an estimator and what a fit has learnt, written and read by the fields of their classes
(`evenout.storage.walker`) after every shape and bound has been checked: a damaged or crafted file is refused and never
reaches compiled code. Objects that are no plain data, such as detectors of other libraries, are bytes in it, which are
opened only if the caller trusts every type. The file holds the feature values of the training rows, which neighbour
detectors and reasons need: keep it as safe as the data.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import evenout
from evenout.core.individual import Individual
from evenout.core.types import AnyArray, require
from evenout.estimator import FairOutlierEnsemble
from evenout.fitting.result import FitResult
from evenout.groups.rules import Groups, Resemblance
from evenout.repair import BlindRepair, GroupMaps, Repaired, ScoreRepair
from evenout.storage.archive import ModelFileError, plain, read_plain, write_plain
from evenout.storage.output import atomic_file
from evenout.storage.walker import describe, read, sound
from evenout.tables.columns import Column
from evenout.tables.encoder import TableEncoder

__all__ = ["ModelFileError", "load_model", "save_model"]

FORMAT = 7
# The estimators that a file may hold, and what each has learnt.
_MODELS: dict[str, tuple[Any, Any]] = {
    "ensemble": (FairOutlierEnsemble, FitResult),
    "blind": (BlindRepair, Repaired),
    "aware": (ScoreRepair, GroupMaps),
}
_SETTINGS: dict[str, Any] = {cls.__name__: cls for cls in (Groups, Individual, Resemblance)}  # may be parameters
_OURS = ("evenout.detectors.adapt.Foreign", "evenout.detectors.adapt.GroupAware")
_MACHINE = ("n_jobs", "device")  # parameters that belong to the machine, not to the model
_VERSION = 30  # characters of the name of a version
_MOST = 2**31 - 1  # features are numbered in 32 bits


def save_model(
    model: FairOutlierEnsemble | BlindRepair | ScoreRepair | Pipeline, path: str | Path, *, updatable: bool = False
) -> None:
    """Write a fitted model to a file, by convention ``.skops``. The file appears whole or not at all.

    Equal models give equal files, byte for byte.

    Parameters
    ----------
    model : FairOutlierEnsemble, BlindRepair, ScoreRepair or Pipeline
        A fitted ensemble or repair, or a ``Pipeline`` of a fitted `TableEncoder` and one of the first two. Detectors
        and classifiers of other libraries, notions and functions of your own are kept as skops objects, which
        `load_model` takes only by name.
    path : str or Path
    updatable : bool, default=False
        Keep the group of every training row of an ensemble, its cluster and its weight, and what
        `FairOutlierEnsemble.update`, ``at(flag_rate_ratio=...)``, `costs` and `FairnessMonitor.of` make of them.
        Without it the file tells the group of no row, is smaller, and these say that they need it; scores, flags and
        reasons are the same.
    """
    objects: list[Any] = []
    table, last = _steps(model)
    for step in filter(None, (table, last)):
        check_is_fitted(step)
    name, learnt = next((name, learnt) for name, (kind, learnt) in _MODELS.items() if isinstance(last, kind))
    result, features = last._result, getattr(last, "feature_names_in_", None)
    if isinstance(result, FitResult) and not updatable:
        result = result.without_groups()
    saved = {
        "parameters": _parameters(last, objects),
        "n_features": getattr(last, "n_features_in_", None),
        "feature_names": None if features is None else [*features],
        "result": describe(result, learnt, objects=objects),
    }
    data = {
        "format": FORMAT,
        "evenout": evenout.__version__,
        "table": None if table is None else describe(_Columns(table.columns_)),
        name: plain(saved),
        "objects": _dumped(objects) if objects else None,
    }
    with atomic_file(Path(path)) as file:
        write_plain(data, file)


def load_model(path: str | Path, *, trusted: Sequence[str] = ()) -> Any:
    """Read a model that `save_model` wrote: no code from the file is run, and every bound is checked.

    Parameters
    ----------
    path : str or Path
    trusted : sequence of str
        Names of types, such as ``"sklearn.svm._classes.OneClassSVM"``, that the file may bring back. Only a model with
        detectors of other libraries, notions or functions of your own has any; the error names those that are missing
        here. Loading them can run code: trust no file from strangers.

    Returns
    -------
    FairOutlierEnsemble, BlindRepair, ScoreRepair or Pipeline
        What was saved. Threads belong to the machine, not to the model: set ``n_jobs`` anew.

    Raises
    ------
    ModelFileError
        In one line, if the file is damaged, of another kind, or asks for more than plain data.
    """
    try:
        return _restore(read_plain(Path(path)), trusted)
    except ModelFileError as error:
        raise ModelFileError("{path} was not loaded: {error}", path=path, error=error) from error.__cause__


@dataclass(frozen=True)
class _Columns:
    """Learned columns of a `TableEncoder`."""

    columns: tuple[Column, ...]

    def check(self) -> None:
        require(len({column.name for column in self.columns}) == len(self.columns), "columns", "names one twice")
        require(any(column.features for column in self.columns), "columns", "holds no feature")


@dataclass(frozen=True)
class _Head:
    """Columns of the training rows, saved beside the result of a fit."""

    n_features: int | None
    feature_names: tuple[str, ...] | None

    def check(self) -> None:
        require(self.n_features is None or 1 <= self.n_features <= _MOST, "n_features", "is out of range")
        fits = self.feature_names is None or len(self.feature_names) == self.n_features
        require(fits, "feature_names", "has the wrong length")


def _restore(data: Any, trusted: Sequence[str]) -> Any:
    import pandas as pd

    written = data.get("format") if isinstance(data, dict) else None
    if type(written) is not int or not 1 <= written < 2**31:
        raise ModelFileError("its model.format is no whole number of a format")
    if written != FORMAT:
        raise ModelFileError(_other_format(written, data.get("evenout")))
    name = next((name for name in _MODELS if isinstance(data.get(name), dict)), None)
    if name is None:
        raise ModelFileError("its model.ensemble is missing")
    for key in {*data} ^ {"format", "evenout", "table", name, "objects"}:
        raise ModelFileError(f"its model.{key} is {'unknown: update evenout' if key in data else 'missing'}")
    saved, (kind, learnt), objects = data[name], _MODELS[name], _objects(data["objects"], trusted)
    where = f"model.{name}"
    head = read(_Head, {key: saved.get(key) for key in ("n_features", "feature_names")}, where)
    result = read(learnt, saved.get("result"), f"{where}.result", objects=objects)
    estimator = _unfitted(kind, saved.get("parameters"), f"{where}.parameters", objects)
    if kind is ScoreRepair:
        return sound(where, lambda: estimator._take(result))
    if head.n_features is None:
        raise ModelFileError(f"its {where}.n_features is missing")
    no_rows: Any = np.empty((0, head.n_features))
    if head.feature_names is not None:
        no_rows = pd.DataFrame(no_rows, columns=list(head.feature_names))
    filled = sound(f"{where}.result", lambda: result.filled(head.n_features))
    with np.errstate(all="ignore"):
        model = sound(f"{where}.parameters", lambda: estimator._take(filled, no_rows))
    if data["table"] is None:
        return model
    table = sound(
        "model.table", lambda: TableEncoder().take_columns(read(_Columns, data["table"], "model.table").columns)
    )
    if head.feature_names is None:
        table.set_output(transform="default")
    features = table.get_feature_names_out()
    if len(features) != model.n_features_in_ or (features != getattr(model, "feature_names_in_", features)).any():
        raise ModelFileError(f"its model.table has other features than its {name}")
    return Pipeline([("table", table), ("ensemble" if name == "ensemble" else "repair", model)])


def _other_format(written: int, writer: Any) -> str:
    """A message with the versions of writer and reader, and what to do."""
    if not isinstance(writer, str):
        return "its model.evenout is no text"
    written_by = "".join(c for c in writer[:_VERSION] if c.isprintable())
    earlier = written < FORMAT
    return (
        f"{'an earlier' if earlier else 'a later'} evenout ({written_by}, format {written}) wrote it, and this one "
        f"({evenout.__version__}) reads format {FORMAT}; "
        f"{'fit the model anew and save it' if earlier else 'update evenout'}"
    )


def _parameters(model: Any, objects: list[Any]) -> dict[str, Any]:
    """The parameters of an estimator, as plain data."""
    values = {name: value for name, value in model.get_params(deep=False).items() if name not in _MACHINE}
    if not isinstance(values.get("random_state", 0), int | np.integer):
        values["random_state"] = None  # a generator that has moved on since
    return {name: _parameter(value, objects) for name, value in values.items()}


def _parameter(value: Any, objects: list[Any]) -> Any:
    """Plain data as it is, evenout's settings by name and parameters, everything else by its number among objects."""
    match value:
        case list() | tuple():
            return [_parameter(item, objects) for item in value]
        case Mapping():
            return {"pairs": [[_parameter(key, objects), _parameter(item, objects)] for key, item in value.items()]}
        case _ if type(value) in _SETTINGS.values():
            return {"setting": type(value).__name__, "parameters": _parameters(value, objects)}
    try:
        return plain(value)
    except TypeError:
        objects.append(value)
        return {"object": len(objects) - 1}


def _unfitted(kind: Any, data: Any, where: str, objects: Sequence[Any]) -> Any:
    """An estimator with the parameters of a file."""
    if not isinstance(data, dict):
        raise ModelFileError(f"its {where} is no table of entries")
    for name in data:
        if name not in kind._get_param_names() or name in _MACHINE:
            raise ModelFileError(f"its {where}.{name} is unknown: update evenout")
    return sound(where, lambda: kind(**{name: _value(value, where, objects) for name, value in data.items()}))


def _value(data: Any, where: str, objects: Sequence[Any]) -> Any:
    """Undo `_parameter`."""
    match data:
        case list():
            return tuple(_value(item, where, objects) for item in data)
        case {"pairs": [*pairs]}:
            return {_value(key, where, objects): _value(item, where, objects) for key, item in pairs}
        case {"object": int(number)} if 0 <= number < len(objects):
            return objects[number]
        case {"setting": str(name), "parameters": values} if name in _SETTINGS:
            return _unfitted(_SETTINGS[name], values, where, objects)
        case dict():
            raise ModelFileError(f"its {where} is of no known kind")
    return data


def _dumped(objects: list[Any]) -> AnyArray:
    """Objects that are not plain data, as the bytes of a skops file."""
    import skops.io

    try:
        kept = skops.io.dumps(objects)
        skops.io.loads(kept, trusted=skops.io.get_untrusted_types(data=kept))  # what cannot come back is not kept
        return np.frombuffer(kept, dtype=np.uint8)
    except Exception as error:  # anything that an object raises that cannot be saved
        named = ", ".join(sorted({type(thing).__name__ for thing in objects}))
        raise ValueError(
            f"the model holds objects that cannot be saved ({named}: {error}); define classes and functions in a "
            "module that can be imported, or keep the model in Python"
        ) from None


def _objects(data: Any, trusted: Sequence[str]) -> list[Any]:
    """The objects, if every type among them is trusted."""
    if data is None:
        return []
    import skops.io

    if not isinstance(data, np.ndarray) or data.dtype != np.uint8:
        raise ModelFileError("its model.objects is no such array")
    kept = data.tobytes()
    try:
        with ZipFile(io.BytesIO(kept)) as members:
            if any(member.compress_type != ZIP_STORED for member in members.infolist()):
                raise ModelFileError("its model.objects is compressed")
        unknown = [name for name in skops.io.get_untrusted_types(data=kept) if name not in (*trusted, *_OURS)]
        if not unknown:
            return list(skops.io.loads(kept, trusted=[*trusted, *_OURS]))
    except ModelFileError:
        raise
    except Exception as error:  # anything that an object's class raises on a damaged file
        raise ModelFileError(f"its objects are damaged ({type(error).__name__})") from error
    raise ModelFileError(
        "it holds objects of {listed}; loading them can run code. If you trust whoever wrote it, pass {trusted=}",
        listed=", ".join(map(repr, unknown)), trusted=unknown,
    )  # fmt: skip


def _steps(model: Any) -> tuple[TableEncoder | None, Any]:
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    match steps:
        case [FairOutlierEnsemble() | BlindRepair() | ScoreRepair() as last]:
            return None, last
        case [TableEncoder() as table, FairOutlierEnsemble() | BlindRepair() as last]:
            return table, last
    raise ValueError(
        f"model is {' and '.join(type(step).__name__ for step in steps)}; a FairOutlierEnsemble, a BlindRepair, a "
        "ScoreRepair, or a Pipeline of a TableEncoder and one of the first two can be saved"
    )
