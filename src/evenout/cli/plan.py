"""``evenout plan`` and ``evenout estimate``: whom to look into, and what the outcomes say of everybody."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import pandas as pd

from evenout.cli.inputs import SavedModel, check_out
from evenout.cli.messages import one_line, progress
from evenout.cli.options import split_names
from evenout.planning import InvestigationPlan
from evenout.planning.plan import COLUMNS
from evenout.storage.output import finite, inert
from evenout.tables.files import read_table, require_columns

_FEW_VALUES = 20  # of a column that is kept beside the plan


def plan_looks(
    *, model: Path, file: Path, budget: int, explore: float, out: Path, id_column: str | None, score: str | None,
    sensitive: Sequence[str], random_state: int, trust: Sequence[str], n_jobs: int, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write a plan of whom to look into, and say how many are chosen by score and by chance."""
    check_out(out, model, file)
    with progress(quiet=quiet) as step:
        saved, names = SavedModel(model, trust, step, n_jobs=n_jobs), split_names(sensitive)
        step(f"Reading {file}")
        frame = saved.read(file, id_column, score, sensitive, text=names)
        require_columns(names, frame.columns, where=str(file), use="--sensitive")
        ids = pd.RangeIndex(1, len(frame) + 1) if id_column is None else pd.Index(frame[id_column].astype(str))
        plan = InvestigationPlan.of(
            pd.Series(saved.scores(frame, saved.encoded(frame), step), index=ids), budget=budget, explore=explore,
            random_state=random_state,
            sensitive_features=None if not names else frame[names].to_numpy(dtype=object),
        )  # fmt: skip
        used = {*saved.features, saved.score, id_column}
        kept = [name for name in frame.columns if name not in used and frame[name].nunique() <= _FEW_VALUES]
        kept += [name for name in names if name not in kept]
        plan.save(out, frame[kept].rename(columns={name: f"{name} (2)" for name in kept if name in COLUMNS}))
    if as_json:
        figures = {
            "looks": len(plan.chosen), "by_score": int(plan.by_score.sum()), "rows": len(frame),
            "look_rates": plan.look_rates, "notes": list(plan.notes), "out": str(out),
        }  # fmt: skip
        click.echo(json.dumps(figures, indent=2, ensure_ascii=False))
    elif not quiet:
        for line in [*str(plan).splitlines()[1:], f"the plan: {out}"]:
            click.echo(one_line(line))


def estimate_plan(
    *, plan_file: Path, outcome: str, outcome_file: Path | None, sensitive: Sequence[str], people: Path | None,
    id_column: str, confidence: float, as_json: bool,
) -> None:  # fmt: skip
    """Print what the outcomes of a plan say of everybody."""
    plan, table = InvestigationPlan.load(plan_file)
    columns, groups = split_names(sensitive), None
    outcomes = _columns_of(table, plan_file, outcome_file, [outcome], id_column, "--outcome", every=False)[outcome]
    if columns:
        groups = _columns_of(table, plan_file, people, columns, id_column, "--sensitive", every=True)[columns]
    estimates = plan.estimate(outcomes, groups, confidence=confidence)
    if as_json:
        body = {
            "confidence": confidence, "estimates": estimates.to_frame().to_dict("records"),
            "notes": list(estimates.notes),
        }  # fmt: skip
        click.echo(json.dumps(finite(body), indent=2, ensure_ascii=False))
    else:
        for line in str(estimates).splitlines():
            click.echo("".join(c if c.isprintable() else "?" for c in line))


def _columns_of(
    table: pd.DataFrame, plan_file: Path, file: Path | None, columns: list[str], id_column: str, use: str, *,
    every: bool,
) -> pd.DataFrame:  # fmt: skip
    """Columns of the plan, or of another file in the order of the plan; ``every`` row of the plan must be there."""
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
    strange, missing = other.index.difference(table.index), table.index.difference(other.index)
    if len(strange) and not every:
        raise ValueError(f"{file}: id {strange[0]!r} is not in {plan_file}; --id names the column of ids")
    if len(missing) and every:
        raise ValueError(f"{file} lacks {len(missing):,} rows of {plan_file}, such as id {missing[0]!r}")
    return other.reindex(table.index) if every else other[np.isin(other.index, table.index)]
