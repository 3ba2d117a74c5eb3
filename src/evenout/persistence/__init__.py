"""Models in files that run no code when loaded.

A model file is a skops file of plain data: numbers, text and arrays (`evenout.storage.archive`). Objects that are none,
such as detectors of other libraries, are bytes in it, which are opened only if the caller trusts every type. evenout
rebuilds the model from them after it has checked every shape and bound (`evenout.persistence.parts`), so a damaged or
crafted file is refused and never reaches compiled code. The file holds the feature values of the training rows, which
neighbour detectors and reasons need: keep it as safe as the data.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from sklearn.pipeline import Pipeline

import evenout
from evenout.core.types import AnyArray
from evenout.estimator import FairOutlierEnsemble
from evenout.persistence.ensemble import describe_ensemble, read_ensemble
from evenout.persistence.repair import describe_aware, describe_blind, read_aware, read_blind
from evenout.persistence.table import describe_table, read_table
from evenout.repair import BlindRepair, ScoreRepair
from evenout.storage.archive import ModelFileError, read_plain, write_plain
from evenout.storage.fields import Fields
from evenout.storage.output import atomic_file
from evenout.tables.encoder import TableEncoder

__all__ = ["ModelFileError", "load_model", "save_model"]

FORMAT = 6
_OURS = ("evenout.detectors.adapt.Foreign", "evenout.detectors.adapt.GroupAware")
_VERSION = 30  # characters of the name of a version


def save_model(model: FairOutlierEnsemble | BlindRepair | ScoreRepair | Pipeline, path: str | Path) -> None:
    """Write a fitted model to a file, by convention ``.skops``. The file appears whole or not at all.

    Equal models give equal files, byte for byte.

    Parameters
    ----------
    model : FairOutlierEnsemble, BlindRepair, ScoreRepair or Pipeline
        A fitted ensemble or repair, or a ``Pipeline`` of a fitted `TableEncoder` and one of the first two. Detectors
        and classifiers of other libraries, notions and functions of your own are kept as skops objects, which
        `load_model` takes only by name.
    path : str or Path
    """
    objects: list[Any] = []
    data: dict[str, Any] = {"format": FORMAT, "evenout": evenout.__version__}
    table, last = _steps(model)
    data["table"] = None if table is None else describe_table(table)
    if isinstance(last, FairOutlierEnsemble):
        data["ensemble"] = describe_ensemble(last, objects)
    else:
        data["repair"] = describe_blind(last, objects) if isinstance(last, BlindRepair) else describe_aware(last)
    data["objects"] = _dumped(objects) if objects else None
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
        return _restore(Fields(read_plain(Path(path))), trusted)
    except ModelFileError as error:
        raise ModelFileError("{path} was not loaded: {error}", path=path, error=error) from error.__cause__


def _dumped(objects: list[Any]) -> AnyArray:
    """Objects that are not plain data, as the bytes of a skops file."""
    import skops.io

    try:
        kept = skops.io.dumps(objects)
        skops.io.loads(kept, trusted=skops.io.get_untrusted_types(data=kept))  # what cannot come back is not kept
        return np.frombuffer(kept, dtype=np.uint8)
    except Exception as error:  # whatever an object says that cannot be kept
        named = ", ".join(sorted({type(thing).__name__ for thing in objects}))
        raise ValueError(
            f"the model holds objects that cannot be saved ({named}: {error}); define classes and functions in a "
            "module that can be imported, or keep the model in Python"
        ) from None


def _objects(data: Fields, trusted: Sequence[str]) -> list[Any]:
    """The objects, if every type among them is trusted."""
    if "objects" not in data:
        return []
    import skops.io

    kept = data.bytes("objects")
    try:
        with ZipFile(io.BytesIO(kept)) as members:
            data.require(all(m.compress_type == ZIP_STORED for m in members.infolist()), "objects", "is compressed")
        unknown = [name for name in skops.io.get_untrusted_types(data=kept) if name not in (*trusted, *_OURS)]
        if not unknown:
            return list(skops.io.loads(kept, trusted=[*trusted, *_OURS]))
    except ModelFileError:
        raise
    except Exception as error:  # whatever a damaged file makes an object's class say
        raise ModelFileError(f"its objects are damaged ({type(error).__name__})") from error
    raise ModelFileError(
        "it holds objects of {listed}; loading them can run code. If you trust whoever wrote it, pass {trusted=}",
        listed=", ".join(map(repr, unknown)), trusted=unknown,
    )  # fmt: skip


def _restore(data: Fields, trusted: Sequence[str]) -> Any:
    found = data.whole("format", 1, 2**31)
    if found != FORMAT:
        raise ModelFileError(_other_format(found, data.text("evenout")))
    name = "repair" if "repair" in data else "ensemble"
    fields, objects = data.fields(name), _objects(data, trusted)
    if name == "repair" and fields.text("kind", ("blind", "aware")) == "aware":
        return read_aware(fields)
    model = read_blind(fields, objects) if name == "repair" else read_ensemble(fields, objects)
    if "table" not in data:
        return model
    table = read_table(data.fields("table"))
    if not hasattr(model, "feature_names_in_"):
        table.set_output(transform="default")
    fits = len(table.get_feature_names_out()) == model.n_features_in_
    data.require(fits, "table", f"has other features than its {name}")
    return Pipeline([("table", table), (name, model)])


def _other_format(found: int, writer: str) -> str:
    """Which version wrote the file, which reads it here, and what to do."""
    written_by = "".join(c for c in writer[:_VERSION] if c.isprintable())
    earlier = found < FORMAT
    return (
        f"{'an earlier' if earlier else 'a later'} evenout ({written_by}, format {found}) wrote it, and this one "
        f"({evenout.__version__}) reads format {FORMAT}; "
        f"{'fit the model anew and save it' if earlier else 'update evenout'}"
    )


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
