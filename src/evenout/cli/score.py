"""``evenout score``: a model and a file of new rows in, their fair scores out."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenout.cli.folder import engine_options, is_folder, score_folder
from evenout.cli.messages import Announce, one_line, plain_messages, progress
from evenout.cli.options import NonEmptyPath, common_options, estimator_options, reasons_option

if TYPE_CHECKING:
    import pandas as pd

    from evenout.core.types import FloatArray
    from evenout.estimator import FairOutlierEnsemble
    from evenout.inputs.table import TableEncoder

_BATCH = 65536  # rows scored between two moves of the progress bar

_EXAMPLES = """
\b
Examples:
  evenout score evenout-out/model.skops new.csv --out new-scores.csv
  evenout score model.skops new.parquet --id person --out new-scores.csv
  evenout score model.skops new.csv --reasons 3 --out new-scores.csv
"""


@click.command(epilog=_EXAMPLES, short_help="Score new rows with a fitted model.")
@click.argument("model", type=NonEmptyPath())
@click.argument("file", type=NonEmptyPath())
@click.option(
    "--out",
    required=True,
    type=NonEmptyPath(),
    metavar="FILE",
    help="The scores, as .csv; for folders, a folder.",
)
@click.option("--id", "id_column", metavar="COL", help="Column that tells rows apart.  [default: row number from 1]")
@reasons_option
@estimator_options("device")
@engine_options
@common_options
def score(
    model: Path, file: Path, out: Path, id_column: str | None, reasons: int | None, device: str, engine: str,
    scheduler: str | None, n_jobs: int, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Score the rows of FILE (.csv, .csv.gz or .parquet) with MODEL, the model.skops of "evenout fit".

    No group is needed: the fairness is in the model. FILE must have the columns that served as features; others are
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
        from evenout.cli.inputs import check_out
        from evenout.inputs.files import sha256
        from evenout.storage.output import atomic_file

        if is_folder(str(file)):
            score_folder(
                model, str(file), out, device=device, engine=engine, scheduler=scheduler, n_jobs=n_jobs, quiet=quiet,
                as_json=as_json, reasons=reasons,
            )  # fmt: skip
            return
        check_out(out, model, file)
        with progress(quiet=quiet) as step, atomic_file(out) as target:
            result = _score(model, file, target, id_column, reasons, {"n_jobs": n_jobs, "device": device}, step)
        if as_json:
            hashes = {
                "input": {"name": str(file), "sha256": sha256(file)},
                "model": {"sha256": sha256(model)},
            }
            click.echo(json.dumps(hashes | result | {"out": str(out)}, indent=2, ensure_ascii=False))
        elif not quiet:
            share = result["flagged"] / result["rows"]
            click.echo(one_line(f"{result['rows']:,} rows, {result['flagged']:,} flagged ({share:.1%}): {out}"))


def _score(
    path: Path,
    file: Path,
    target: Path,
    id_column: str | None,
    reasons: int | None,
    machine: dict[str, Any],
    step: Announce,
) -> dict[str, Any]:
    """Write the scores to ``target``, by so many threads or a GPU; the figures to report."""
    import pandas as pd

    from evenout.cli.inputs import parts_of, row_ids
    from evenout.inputs.table import number_columns
    from evenout.persistence import load_model
    from evenout.storage.output import write_table

    step(f"Loading {path}")
    table, ensemble = parts_of(load_model(path))
    step(f"Reading {file}")
    frame = read_rows(file, path, table or ensemble, id_column)
    ids, unknown = row_ids(frame, id_column), {} if table is None else table.unknown_values(frame)
    rows = number_columns(frame, ensemble.feature_names_in_) if table is None else table.transform(frame)
    done = step(f"Scoring {len(frame):,} rows", total=len(frame))
    ensemble.set_params(**machine)
    scores = np.concatenate([_batch(ensemble, rows, start, done) for start in range(0, len(frame), _BATCH)])
    flagged = (scores > -ensemble.offset_).astype(int)
    told = pd.DataFrame({"id": ids, "fair_score": scores, "flagged": flagged})
    if reasons is not None:
        from evenout.cli.explain import with_reasons

        step("Finding reasons")
        told = with_reasons(told, table, ensemble, frame, reasons)
    write_table(told, target)
    return {
        "rows": len(frame),
        "flagged": int(flagged.sum()),
        "threshold": -ensemble.offset_,
        "unknown_values": {name: sum(counts.values()) for name, counts in unknown.items()},
    }


def read_rows(
    file: Path, model: Path, reader: "TableEncoder | FairOutlierEnsemble", id_column: str | None
) -> "pd.DataFrame":
    """The table, text columns as in fitting, with all the columns that ``reader`` needs."""
    from evenout.cli.inputs import feature_names
    from evenout.inputs.files import read_table, require_columns

    names = feature_names(reader, model)
    frame = read_table(file, text=getattr(reader, "categories_", ()), verbatim={id_column or ""})
    require_columns([] if id_column is None else [id_column], frame.columns, where=str(file), use="--id")
    require_columns(names, frame.columns, where=str(file), use="needed by the model")
    return frame


def _batch(ensemble: Any, rows: "FloatArray | pd.DataFrame", start: int, done: Any) -> "FloatArray":
    scores = ensemble.outlier_scores(rows[start : start + _BATCH])
    done(len(scores))
    return scores
