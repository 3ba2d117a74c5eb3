"""``evenout explain``: why a row of a file stands out, in the terminal; reasons as columns beside scores."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenout.cli.messages import one_line, plain_messages, progress
from evenout.cli.options import NonEmptyPath, common_options

if TYPE_CHECKING:
    import pandas as pd

    from evenout.core.types import IntArray
    from evenout.estimator import FairOutlierEnsemble
    from evenout.inputs.table import TableEncoder
    from evenout.reasons import Explanation

_EXAMPLES = """
\b
Examples:
  evenout explain evenout-out/model.skops people.csv --id 17
      row 17 of the file
  evenout explain model.skops people.csv --id-column person --id p017 --id p020
      two people by their ids
  evenout explain model.skops people.csv --id 17 --reasons 5 --baseline typical
      five reasons, beside the typical row of all
"""


@click.command(epilog=_EXAMPLES, short_help="Say why a row stands out, and what fairness changed.")
@click.argument("model", type=NonEmptyPath())
@click.argument("file", type=NonEmptyPath())
@click.option("--id", "ids", required=True, multiple=True, metavar="ID", help="The row; may be given several times.")
@click.option("--id-column", metavar="COL", help="Column that tells rows apart.  [default: row number from 1]")
@click.option("--reasons", type=click.IntRange(1, 20), default=3, show_default=True, metavar="N", help="How many.")
@click.option(
    "--baseline", type=click.Choice(["alike", "typical"]), default="alike", show_default=True,
    help="Hold the row against those most like it, or against the typical row of all.",
)  # fmt: skip
@common_options
def explain(
    model: Path, file: Path, ids: tuple[str, ...], id_column: str | None, reasons: int, baseline: str, n_jobs: int,
    quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Say why a row of FILE (.csv, .csv.gz or .parquet) stands out, by MODEL, the model.skops of "evenout fit".

    The score is split over the columns of the file: what each adds, beside a typical row, before and after fairness.
    The parts of all columns add up. No other row of the file, and nothing of the training table, is needed.
    """
    with plain_messages():
        with progress(quiet=quiet) as step:
            step(f"Loading {model}")
            found = _explain(model, file, ids, id_column, reasons, baseline, n_jobs)
        if as_json:
            told = {"baseline": baseline, "rows": [_entry(found, row) for row in range(len(found))]}
            click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        elif not quiet:
            for row in range(len(found)):
                for line in found.lines(row):
                    click.echo(line[: len(line) - len(line.lstrip())] + one_line(line))


def with_reasons(
    scores: "pd.DataFrame",
    table: "TableEncoder | None",
    ensemble: "FairOutlierEnsemble",
    frame: "pd.DataFrame",
    n_reasons: int,
    sensitive_features: Any = None,
) -> "pd.DataFrame":
    """A table of scores with the columns ``change``, ``reason_1``, ...; ``frame`` has the rows, in the same order."""
    import warnings

    import pandas as pd

    from evenout.core.exceptions import UnknownCategoryWarning
    from evenout.inputs.table import number_columns
    from evenout.reasons import reason_columns

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownCategoryWarning)  # told when the rows were scored
        names = getattr(ensemble, "feature_names_in_", [])
        rows = number_columns(frame, names) if table is None else table.transform(frame)
    beside = {"table": table, "frame": None if table is None else frame, "sensitive_features": sensitive_features}
    found = reason_columns(ensemble, rows, n_reasons, **beside)
    return pd.concat([scores.reset_index(drop=True), found], axis=1)


def _explain(
    path: Path, file: Path, ids: tuple[str, ...], id_column: str | None, n_reasons: int, baseline: str, n_jobs: int
) -> "Explanation":
    from evenout.cli.inputs import parts_of, require_ensemble
    from evenout.cli.score import Roles, read_rows
    from evenout.inputs.table import number_columns
    from evenout.persistence import load_model
    from evenout.reasons import explain as explain_rows

    table, ensemble = parts_of(load_model(path))
    require_ensemble(ensemble, path, "evenout explain")
    frame = read_rows(file, path, table, ensemble, Roles(id_column))
    chosen = frame.iloc[_places(frame, id_column, ids, file)]
    chosen.index = list(ids)
    ensemble.set_params(n_jobs=n_jobs)
    rows = number_columns(chosen, ensemble.feature_names_in_) if table is None else chosen
    return explain_rows(ensemble, rows, n_reasons, baseline=baseline, table=table)


def _places(frame: "pd.DataFrame", id_column: str | None, ids: tuple[str, ...], file: Path) -> "IntArray":
    """Where the rows with these ids stand in the file."""
    known = np.arange(1, len(frame) + 1).astype(str) if id_column is None else frame[id_column].astype(str).to_numpy()
    places = []
    for wanted in ids:
        found = np.flatnonzero(known == wanted)
        if not len(found):
            where = (
                f"rows are numbered from 1 to {len(frame)}" if id_column is None else f"no row has it in {id_column!r}"
            )
            raise ValueError(f"{file}: --id {wanted} is unknown; {where}")
        if len(found) > 1:
            raise ValueError(f"{file}: --id {wanted} stands in {len(found)} rows; name a column that tells rows apart")
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
    return {"id": str(found.index[row]), "change": found.changes[row], **scores, "reasons": reasons}
