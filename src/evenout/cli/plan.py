"""``evenout plan`` and ``evenout estimate``: whom to look into, and what the outcomes say of everybody."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenout.cli.messages import one_line, plain_messages, progress
from evenout.cli.options import (
    FiniteRange,
    NonEmptyPath,
    columns_option,
    common_options,
    estimator_options,
    id_option,
    json_option,
    score_option,
    split_names,
    trust_option,
)

if TYPE_CHECKING:
    import pandas as pd

_FEW_VALUES = 20  # that a column may have to be kept beside the plan

_PLAN_EXAMPLES = """
\b
Examples:
  evenout plan fair/model.skops week.csv --id person --budget 200 --explore 0.1 --out plan.csv
      180 people by score, 20 by chance; plan.csv has them first
  evenout estimate plan.csv --outcome fraud --sensitive sex
      once the column fraud has been filled in
"""

_ESTIMATE_EXAMPLES = """
\b
Examples:
  evenout estimate plan.csv --outcome fraud --sensitive sex
      outcomes were written into plan.csv
  evenout estimate plan.csv --outcomes done.csv --outcome fraud --id person
      they are in a file of their own, by the ids of the plan
"""


@click.command(epilog=_PLAN_EXAMPLES)
@click.argument("model", type=NonEmptyPath())
@click.argument("file", type=NonEmptyPath())
@click.option("--budget", type=click.IntRange(1), default=200, show_default=True, metavar="ROWS", help="Looks in all.")
@click.option(
    "--explore", type=FiniteRange(0, 1), default=0.1, show_default=True, metavar="SHARE",
    help="Share of the looks that goes by chance; 0: none, and nothing can be known of those not looked into.",
)  # fmt: skip
@click.option("--out", required=True, type=NonEmptyPath(), metavar="FILE", help="The plan, as .csv.")
@id_option
@score_option
@columns_option("--sensitive", help="Groups: each gets its share of the looks by chance.")
@estimator_options("random_state")
@trust_option
@common_options
def plan(
    model: Path, file: Path, budget: int, explore: float, out: Path, id_column: str | None, score: str | None,
    sensitive: Sequence[str], random_state: int, trust: Sequence[str], n_jobs: int, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Plan whom of FILE (.csv, .csv.gz or .parquet) to look into, by the scores of MODEL and by chance.

    The plan has the rows to look into first, the highest score on top, then all others with the probability that they
    had: "evenout estimate" needs every row. Fill outcomes in beside them, 1 for an outlier and 0 for none, and leave
    empty what has not come back. Columns of FILE that the model does not use, and that have at most 20 values, such as
    groups, are kept beside.
    """
    import pandas as pd

    from evenout.cli.inputs import check_out, parts_of
    from evenout.cli.score import Roles, read_rows, row_scores, set_machine
    from evenout.persistence import load_model
    from evenout.planning import InvestigationPlan
    from evenout.tables.files import require_columns

    with plain_messages():
        check_out(out, model, file)
        with progress(quiet=quiet) as step:
            step(f"Loading {model}")
            table, fitted = parts_of(load_model(model, trusted=trust))
            roles = Roles.of(fitted, model, id_column, score, sensitive)
            step(f"Reading {file}")
            names = split_names(sensitive)
            frame = read_rows(file, model, table, fitted, roles, text=names)
            require_columns(names, frame.columns, where=str(file), use="--sensitive")
            set_machine(fitted, n_jobs=n_jobs)
            scores = row_scores(table, fitted, frame, roles, step(f"Scoring {len(frame):,} rows", total=len(frame)))
            ids = pd.RangeIndex(1, len(frame) + 1) if id_column is None else pd.Index(frame[id_column].astype(str))
            made = InvestigationPlan.of(
                pd.Series(scores, index=ids), budget=budget, explore=explore, random_state=random_state,
                sensitive_features=None if not names else frame[names].to_numpy(dtype=object),
            )  # fmt: skip
            made.save(out, _kept(frame, table, fitted, roles, names))
        if as_json:
            told: dict[str, Any] = {"looks": len(made.chosen), "by_score": int(made.by_score.sum()), "rows": len(frame)}
            told |= {"look_rates": made.look_rates, "notes": list(made.notes), "out": str(out)}
            click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        elif not quiet:
            for line in [*str(made).splitlines()[1:], f"the plan: {out}"]:
                click.echo(one_line(line))


@click.command(epilog=_ESTIMATE_EXAMPLES)
@click.argument("plan_file", metavar="PLAN", type=NonEmptyPath())
@click.option("--outcome", required=True, metavar="COL", help="Column with 1 for an outlier, 0 for none, or nothing.")
@click.option(
    "--outcomes", "outcome_file", type=NonEmptyPath(), metavar="FILE", help="Read --outcome from here, by --id."
)
@columns_option("--sensitive", help="Groups to compare: columns of PLAN, or of --people.")
@click.option(
    "--people", type=NonEmptyPath(), metavar="FILE", help="Read --sensitive from here, by --id: all rows planned for."
)
@click.option(
    "--id", "id_column", metavar="COL", default="id", show_default=True,
    help="Column of ids in --outcomes and --people.",
)  # fmt: skip
@click.option(
    "--confidence", type=FiniteRange(0.5, 0.999), default=0.95, show_default=True, metavar="SHARE",
    help="Of the intervals.",
)  # fmt: skip
@json_option
def estimate(
    plan_file: Path, outcome: str, outcome_file: Path | None, sensitive: Sequence[str], people: Path | None,
    id_column: str, confidence: float, as_json: bool,
) -> None:  # fmt: skip
    """Estimate from the outcomes of PLAN, a file of "evenout plan", what its list found and missed.

    Precision of the list; recall, the share of all outliers that it found; how many it missed; false alarms, the share
    of inliers that were looked into; each for everybody and by group, with intervals that follow from the chances of
    the draw, and tests that all groups are alike. Outcomes that are missing have not come back: they are not 0.
    """
    from evenout.planning import InvestigationPlan
    from evenout.storage.output import finite

    with plain_messages():
        made, table = InvestigationPlan.load(plan_file)
        columns = split_names(sensitive)
        outcomes = _column(table, plan_file, outcome_file, [outcome], id_column, "--outcome", every=False)[outcome]
        groups = None
        if columns:
            groups = _column(table, plan_file, people, columns, id_column, "--sensitive", every=True)[columns]
        told = made.estimate(outcomes, groups, confidence=confidence)
        if as_json:
            rows = told.to_frame().to_dict("records")
            body = {"confidence": confidence, "estimates": rows, "notes": list(told.notes)}
            click.echo(json.dumps(finite(body), indent=2, ensure_ascii=False))
        else:
            for line in str(told).splitlines():
                click.echo("".join(c if c.isprintable() else "?" for c in line))


def _kept(frame: "pd.DataFrame", table: Any, fitted: Any, roles: Any, names: Sequence[str]) -> "pd.DataFrame":
    """Columns of the file that are no features, such as groups, and have few values; those named in any case."""
    from evenout.planning.plan import COLUMNS

    used = {*getattr(table or fitted, "columns_used", getattr(fitted, "feature_names_in_", ())), roles.id, roles.score}
    kept = [name for name in frame.columns if name not in used and frame[name].nunique() <= _FEW_VALUES]
    kept += [name for name in names if name not in kept]
    return frame[kept].rename(columns={name: f"{name} (2)" for name in kept if name in COLUMNS})


def _column(
    table: "pd.DataFrame", plan_file: Path, file: Path | None, columns: list[str], id_column: str, use: str, *,
    every: bool,
) -> "pd.DataFrame":  # fmt: skip
    """Columns of the plan, or of another file in the order of the plan."""
    from evenout.storage.output import inert
    from evenout.tables.files import read_table, require_columns

    if file is None:
        require_columns(columns, table.columns, where=str(plan_file), use=use)
        return table
    other = read_table(file, verbatim={id_column}, text=columns if every else ())
    require_columns([id_column], other.columns, where=str(file), use="--id")
    require_columns(columns, other.columns, where=str(file), use=use)
    other.index = other[id_column].map(inert)
    if not other.index.is_unique:
        raise ValueError(
            f"{file}: id {other.index[other.index.duplicated()][0]!r} stands in more than one row; keep one"
        )
    strange = other.index.difference(table.index)
    if len(strange) and not every:
        raise ValueError(f"{file}: id {strange[0]!r} is not in {plan_file}; --id names the column of ids")
    missing = table.index.difference(other.index)
    if len(missing) and every:
        raise ValueError(f"{file} lacks {len(missing):,} rows of {plan_file}, such as id {missing[0]!r}")
    return other.reindex(table.index) if every else other[np.isin(other.index, table.index)]
