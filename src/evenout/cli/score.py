"""evenout score and evenout explain."""

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenout.cli.messages import Announce, one_line, plain_messages, progress
from evenout.cli.options import (
    NonEmptyPath,
    common_options,
    engine_options,
    estimator_options,
    id_option,
    new_groups_option,
    reasons_option,
    score_option,
    split_names,
    trust_option,
)

if TYPE_CHECKING:
    import pandas as pd

    from evenout.core.types import FloatArray, IntArray
    from evenout.estimator import FairOutlierEnsemble
    from evenout.reasons import Explanation
    from evenout.tables.encoder import TableEncoder

_BATCH = 65536  # rows scored between two moves of the progress bar

_EXAMPLES = """
\b
Examples:
  evenout score evenout-out/model.skops new.csv --out new-scores.csv
  evenout score model.skops new.parquet --id person --out new-scores.csv
  evenout score model.skops new.csv --reasons 3 --out new-scores.csv
"""


@click.command(epilog=_EXAMPLES)
@click.argument("model", type=NonEmptyPath())
@click.argument("file", type=NonEmptyPath())
@click.option(
    "--out", required=True, type=NonEmptyPath(), metavar="FILE", help="The scores, as .csv; for folders, a folder."
)
@id_option
@score_option
@new_groups_option
@reasons_option
@trust_option
@estimator_options("device")
@engine_options
@common_options
def score(
    model: Path, file: Path, out: Path, id_column: str | None, score: str | None, sensitive: Sequence[str],
    reasons: int | None, everybody: bool, trust: Sequence[str], device: str, engine: str, scheduler: str | None,
    n_jobs: int, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Score the rows of FILE (.csv, .csv.gz or .parquet) with MODEL, of "evenout fit" or "evenout repair".

    No group is needed: the fairness is in the model, unless it was made by "repair --aware". A repair needs the score
    that it repairs. FILE must have the columns that served as features; others are
    ignored. Rows are encoded as in fitting; text values that did not occur there are scored as none of the known ones,
    and counted in a note.

    The result has the columns id, fair_score (higher = more outlying) and flagged (1 or 0, at the threshold of the
    training rows); with --reasons also what fairness changed for the row (change: flagged, entered, left or not
    flagged) and, if it is flagged before or after fairness, why (reason_1, ...). A model file is data alone: loading it
    runs no code, and a damaged or foreign file is refused.

    FILE may be a folder or a pattern of Parquet files ("data/*.parquet"), of any size; --out is then a folder,
    and reasons of flagged rows are in reasons-*.parquet.
    """
    with plain_messages():
        from evenout.cli.inputs import check_out, is_folder, parts_of, require_ensemble, require_outside
        from evenout.persistence import load_model
        from evenout.storage.output import atomic_file, atomic_folder
        from evenout.tables.files import sha256

        many = is_folder(str(file))
        if many:
            require_outside(out, out, str(file))
        else:
            check_out(out, model, file)
        stale = ("scores-*.parquet", "reasons-*.parquet")
        with progress(quiet=quiet) as step, atomic_folder(out, stale=stale) if many else atomic_file(out) as target:
            step(f"Loading {model}")
            table, fitted = parts_of(load_model(model, trusted=trust))
            for needs, what in ((many, "a folder"), (reasons is not None, "--reasons"), (device != "cpu", "--device")):
                if needs:
                    require_ensemble(fitted, model, what)
            set_machine(fitted, n_jobs=n_jobs, device=device)
            told = {"reasons": reasons, "everybody": everybody}
            if many:
                workers = {"engine": engine, "scheduler": scheduler}
                result = _score_folder(table, fitted, model, str(file), target, n_jobs, workers, told, step)
            else:
                roles = Roles.of(fitted, model, id_column, score, sensitive)
                result = _score_file(table, fitted, model, file, target, roles, told, step)
        if as_json:
            result = {"input": {"name": str(file), "sha256": None if many else sha256(file)}} | result
            result |= {"model": {"sha256": sha256(model)}, "out": str(out)}
            click.echo(json.dumps(result, indent=2, ensure_ascii=False))
        elif not quiet:
            share = result["flagged"] / result["rows"]
            click.echo(one_line(f"{result['rows']:,} rows, {result['flagged']:,} flagged ({share:.1%}): {out}"))


def set_machine(model: Any, **settings: Any) -> None:
    """Set how a model computes, as far as it knows these parameters."""
    known = model.get_params(deep=False)
    model.set_params(**{name: value for name, value in settings.items() if name in known})


def _score_file(
    table: "TableEncoder | None", model: Any, path: Path, file: Path, target: Path, roles: "Roles",
    told: dict[str, Any], step: Announce,
) -> dict[str, Any]:  # fmt: skip
    """Write the scores of a table to ``target``; the figures to report."""
    import pandas as pd

    from evenout.cli.inputs import row_ids
    from evenout.storage.output import write_table

    step(f"Reading {file}")
    frame = read_rows(file, path, table, model, roles)
    ids, unknown = row_ids(frame, roles.id), {} if table is None else table.unknown_values(frame)
    scores = row_scores(table, model, frame, roles, step(f"Scoring {len(frame):,} rows", total=len(frame)))
    threshold = model.threshold_ if hasattr(model, "threshold_") else -model.offset_
    flagged = (scores > threshold).astype(int)
    result = pd.DataFrame({"id": ids, "fair_score": scores, "flagged": flagged})
    if told["reasons"] is not None:
        step("Finding reasons")
        result = with_reasons(result, table, model, frame, roles.groups(frame), **told)
    write_table(result, target)
    counts = {name: sum(values.values()) for name, values in unknown.items()}
    return {"rows": len(frame), "flagged": int(flagged.sum()), "threshold": threshold, "unknown_values": counts}


def _score_folder(
    table: "TableEncoder | None", model: Any, path: Path, data: str, target: Path, n_jobs: int,
    workers: dict[str, Any], told: dict[str, Any], step: Announce,
) -> dict[str, Any]:  # fmt: skip
    """Write one Parquet file of scores per part of the input into the folder ``target``; the figures to report."""
    from joblib import effective_n_jobs

    from evenout.cli.inputs import feature_names
    from evenout.out_of_core.parquet import count_unknown, encoded, open_folder
    from evenout.reasons import explain_partitions

    step(f"Scoring {data}")
    workers |= {"features": feature_names(table or model, path), "n_threads": effective_n_jobs(n_jobs)}
    with open_folder(data, text=table is not None, **workers) as source:
        rows = source if table is None else encoded(source, table)
        n_rows, flagged = model.score_partitions(rows, target).sum(axis=0).tolist()
        if not n_rows:
            raise ValueError(f"{data} has no rows in any file")
        unknown = {} if table is None else count_unknown(source, table)
        if told["reasons"] is not None:
            step("Finding reasons")
            explain_partitions(rows, model, told["reasons"], target, table=table, everybody=told["everybody"])
    for name, count in unknown.items():
        warnings.warn(
            f"column {name!r}: {count} of {n_rows} rows have text that the training table did not have; "
            "it counts as none of the known values",
            stacklevel=2,
        )
    return {"rows": n_rows, "flagged": flagged, "threshold": -model.offset_, "unknown_values": unknown}


@dataclass(frozen=True)
class Roles:
    """Columns of new rows that are no features."""

    id: str | None = None
    score: str | None = None
    sensitive: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: Any, path: Path, id_column: str | None, score: str | None, sensitive: Sequence[str]) -> "Roles":
        """What a model asks for; names that it does not know must be given."""
        from evenout.detectors.adapt import GroupAware
        from evenout.estimator import FairOutlierEnsemble

        protected = tuple(split_names(sensitive)) or tuple(getattr(model, "sensitive_names_", ()))
        ensemble = isinstance(model, FairOutlierEnsemble)
        if ensemble and score is not None:
            raise ValueError(f"{path} repairs no score; leave --score out")
        column = None if ensemble else score or model.score_name_
        if not ensemble and column is None:
            raise ValueError(f"{path} repairs a score, but does not know its column; name it as --score")
        parts = model._result.scores.pool.parts if ensemble else ()
        aware = any(isinstance(part, GroupAware) for part in parts) or hasattr(model, "strength_")
        if aware and not protected:
            raise ValueError(f"{path} uses the group of each row; name its column as --sensitive")
        return cls(id_column, column, protected if aware else ())

    def groups(self, frame: "pd.DataFrame") -> Any:
        """The groups of the rows, where they are asked for."""
        names = list(self.sensitive)
        return None if not names else frame[names[0]] if len(names) == 1 else frame[names]


def read_rows(
    file: Path, path: Path, table: "TableEncoder | None", model: Any, roles: Roles, text: Sequence[str] = ()
) -> "pd.DataFrame":
    """The rows of a file, text columns as in fitting, with all the columns that the model at ``path`` needs."""
    from evenout.cli.inputs import feature_names
    from evenout.tables.files import read_table, require_columns

    names = [] if hasattr(model, "strength_") else feature_names(table or model, path)
    as_text = {*getattr(table, "categories_", ()), *roles.sensitive, *text}
    frame = read_table(file, text=as_text, verbatim={roles.id or ""})
    asked = {"--id": roles.id, "--score": roles.score}
    for use, wanted in {use: [name] for use, name in asked.items() if name is not None}.items():
        require_columns(wanted, frame.columns, where=str(file), use=use)
    require_columns(roles.sensitive, frame.columns, where=str(file), use="--sensitive")
    require_columns(names, frame.columns, where=str(file), use="needed by the model")
    return frame


def row_scores(
    table: "TableEncoder | None", model: Any, frame: "pd.DataFrame", roles: Roles, done: Callable[[int], None]
) -> "FloatArray":
    """Scores of the rows by an ensemble or a repair, a batch after the other."""
    from evenout.cli.inputs import score_column
    from evenout.tables.encoder import number_columns

    groups, given = roles.groups(frame), None if roles.score is None else score_column(roles.score, frame)
    rows = None
    if not hasattr(model, "strength_"):
        rows = number_columns(frame, model.feature_names_in_) if table is None else table.transform(frame)
    found = []
    for start in range(0, len(frame), _BATCH):
        part = slice(start, start + _BATCH)
        beside = {} if groups is None else {"sensitive_features": groups.iloc[part]}
        few = () if rows is None else (rows.iloc[part] if hasattr(rows, "iloc") else rows[part],)
        score = model.outlier_scores if given is None else model.transform
        found.append(score(*(() if given is None else (given.iloc[part],)), *few, **beside))
        done(len(found[-1]))
    return np.concatenate(found)


_EXPLAIN_EXAMPLES = """
\b
Examples:
  evenout explain evenout-out/model.skops people.csv --person 17
      row 17 of the file
  evenout explain model.skops people.csv --id person --person p017 --person p020
      two people by their ids
  evenout explain model.skops people.csv --person 17 --reasons 5 --baseline typical
      five reasons, beside the typical row of all
"""


@click.command(epilog=_EXPLAIN_EXAMPLES)
@click.argument("model", type=NonEmptyPath())
@click.argument("file", type=NonEmptyPath())
@id_option
@click.option(
    "--person", "people", required=True, multiple=True, metavar="ID",
    help="Whom to explain, by the value of --id. Repeatable.",
)  # fmt: skip
@click.option("--reasons", type=click.IntRange(1, 20), default=3, show_default=True, metavar="N", help="How many.")
@click.option(
    "--baseline", type=click.Choice(["alike", "typical"]), default="alike", show_default=True,
    help="Hold the row against those most like it, or against the typical row of all.",
)  # fmt: skip
@new_groups_option
@trust_option
@common_options
def explain(
    model: Path, file: Path, id_column: str | None, people: Sequence[str], reasons: int, baseline: str,
    sensitive: Sequence[str], trust: Sequence[str], n_jobs: int, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Say why a row of FILE (.csv, .csv.gz or .parquet) stands out, by MODEL, the model.skops of "evenout fit".

    The score is split over the columns of the file: what each adds, beside a typical row, before and after fairness.
    The parts of all columns add up. A value that is common by itself is named with the column that makes it rare. No
    other row of the file, and nothing of the training table, is needed.
    """
    with plain_messages():
        from evenout.cli.inputs import parts_of, require_ensemble
        from evenout.persistence import load_model
        from evenout.reasons import explain as explain_rows
        from evenout.tables.encoder import number_columns

        with progress(quiet=quiet) as step:
            step(f"Loading {model}")
            table, ensemble = parts_of(load_model(model, trusted=trust))
            require_ensemble(ensemble, model, "evenout explain")
            step("Finding reasons")
            roles = Roles.of(ensemble, model, id_column, None, sensitive)
            frame = read_rows(file, model, table, ensemble, roles)
            chosen = frame.iloc[_places(frame, id_column, people, file)]
            chosen.index = list(people)
            ensemble.set_params(n_jobs=n_jobs)
            rows = number_columns(chosen, ensemble.feature_names_in_) if table is None else chosen
            beside = {"table": table, "sensitive_features": roles.groups(chosen)}
            told = explain_rows(ensemble, rows, **beside, n_reasons=reasons, baseline=baseline)
        if as_json:
            entries = {"baseline": baseline, "rows": [_entry(told, row) for row in range(len(told))]}
            click.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        elif not quiet:
            for line in [line for row in range(len(told)) for line in told.lines(row)]:
                click.echo(line[: len(line) - len(line.lstrip())] + one_line(line))


def with_reasons(
    scores: "pd.DataFrame", table: "TableEncoder | None", ensemble: "FairOutlierEnsemble", frame: "pd.DataFrame",
    sensitive_features: Any = None, *, reasons: int, everybody: bool,
) -> "pd.DataFrame":  # fmt: skip
    """A table of scores with the columns ``change``, ``reason_1``, ...; ``frame`` has the rows, in the same order."""
    import pandas as pd

    from evenout.exceptions import UnknownCategoryWarning
    from evenout.reasons import reason_columns
    from evenout.tables.encoder import number_columns

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownCategoryWarning)  # told when the rows were scored
        names = getattr(ensemble, "feature_names_in_", [])
        rows = number_columns(frame, names) if table is None else table.transform(frame)
    beside = {"table": table, "frame": None if table is None else frame, "sensitive_features": sensitive_features}
    added = reason_columns(ensemble, rows, reasons, **beside, everybody=everybody)
    return pd.concat([scores.reset_index(drop=True), added], axis=1)


def _places(frame: "pd.DataFrame", id_column: str | None, people: Sequence[str], file: Path) -> "IntArray":
    """Where the rows with these ids stand in the file."""
    known = np.arange(1, len(frame) + 1).astype(str) if id_column is None else frame[id_column].astype(str).to_numpy()
    places = []
    for wanted in people:
        found = np.flatnonzero(known == wanted)
        if not len(found):
            where = (
                f"rows are numbered from 1 to {len(frame)}, or name a column as --id"
                if id_column is None
                else f"no row has it in {id_column!r}"
            )
            raise ValueError(f"{file}: --person {wanted} is unknown; {where}")
        if len(found) > 1:
            raise ValueError(f"{file}: --person {wanted} stands in {len(found)} rows; --id must tell rows apart")
        places.append(found[0])
    return np.array(places, dtype=np.intp)


def _entry(found: "Explanation", row: int) -> dict[str, Any]:
    """One row as plain data."""
    base, fair = found.parts.scores[row].tolist()
    usual, fair_usual = found.parts.typical[row].tolist()
    reasons = [
        {
            "feature": found.feature_names[feature],
            "value": found.values[row, feature],
            "base_part": float(found.base_parts[row, feature]),
            "fair_part": float(found.fair_parts[row, feature]),
            "text": text,
        }
        for feature, text in zip(found.order[row].tolist(), found.texts(row), strict=True)
    ]
    scores = {"base_score": base, "fair_score": fair, "base_typical": usual, "fair_typical": fair_usual}
    told = {"id": str(found.index[row]), "change": found.changes[row], **scores, "reasons": reasons}
    return told | {"summary": found.summary(row) or None}
