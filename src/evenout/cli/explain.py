"""``evenout explain``: why a row of a file stands out, in the terminal; reasons as columns beside scores."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenout.cli.messages import one_line, plain_messages, progress
from evenout.cli.options import NonEmptyPath, columns_option, common_options, trust_option

if TYPE_CHECKING:
    import pandas as pd

    from evenout.core.types import IntArray
    from evenout.estimator import FairOutlierEnsemble
    from evenout.inputs.table import TableEncoder
    from evenout.reasons import Explanation

_EXAMPLES = """
\b
Examples:
  evenout explain evenout-out/model.skops people.csv --person 17
      row 17 of the file
  evenout explain model.skops people.csv --id person --person p017 --person p020
      two people by their ids
  evenout explain model.skops people.csv --person 17 --reasons 5 --baseline typical
      five reasons, beside the typical row of all
"""


@click.command(epilog=_EXAMPLES, short_help="Say why a row stands out, and what fairness changed.")
@click.argument("model", type=NonEmptyPath())
@click.argument("file", type=NonEmptyPath())
@click.option("--id", "id_column", metavar="COL", help="Column that tells rows apart.  [default: row number from 1]")
@click.option(
    "--person", "people", required=True, multiple=True, metavar="ID",
    help="Whom to explain, by the value of --id. Repeatable.",
)  # fmt: skip
@click.option("--reasons", type=click.IntRange(1, 20), default=3, show_default=True, metavar="N", help="How many.")
@click.option(
    "--baseline", type=click.Choice(["alike", "typical"]), default="alike", show_default=True,
    help="Hold the row against those most like it, or against the typical row of all.",
)  # fmt: skip
@columns_option("--sensitive", help="Models that use the group of new rows: its columns.")
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
    from evenout.persistence import load_model

    with plain_messages():
        with progress(quiet=quiet) as step:
            step(f"Loading {model}")
            saved = load_model(model, trusted=trust)
            step("Finding reasons")
            columns = (id_column, None, sensitive)
            found = _explain(saved, model, file, people, columns, n_jobs, n_reasons=reasons, baseline=baseline)
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
    *,
    everybody: bool = False,
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
    found = reason_columns(ensemble, rows, n_reasons, **beside, everybody=everybody)
    return pd.concat([scores.reset_index(drop=True), found], axis=1)


def _explain(
    saved: Any,
    path: Path,
    file: Path,
    people: Sequence[str],
    columns: tuple[str | None, None, Sequence[str]],
    n_jobs: int,
    **settings: Any,
) -> "Explanation":
    from evenout.cli.inputs import parts_of, require_ensemble
    from evenout.cli.score import Roles, read_rows
    from evenout.inputs.table import number_columns
    from evenout.reasons import explain as explain_rows

    table, ensemble = parts_of(saved)
    require_ensemble(ensemble, path, "evenout explain")
    roles = Roles.of(ensemble, path, *columns)
    frame = read_rows(file, path, table, ensemble, roles)
    chosen = frame.iloc[_places(frame, roles.id, people, file)]
    chosen.index = list(people)
    ensemble.set_params(n_jobs=n_jobs)
    rows = number_columns(chosen, ensemble.feature_names_in_) if table is None else chosen
    return explain_rows(ensemble, rows, table=table, sensitive_features=roles.groups(chosen), **settings)


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
