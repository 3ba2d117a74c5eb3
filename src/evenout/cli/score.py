"""``evenout score``, ``explain``, ``plan`` and ``estimate``: a saved model and new rows, and what comes of a plan."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from joblib import effective_n_jobs

from evenout.cli.inputs import SavedModel, check_out, is_folder, require_outside, row_ids
from evenout.cli.messages import Announce, one_line, progress
from evenout.cli.options import split_names
from evenout.out_of_core.parquet import count_unknown, encoded, open_folder
from evenout.planning import InvestigationPlan
from evenout.planning.plan import COLUMNS
from evenout.reasons import Explanation, explain, explain_partitions, reason_columns
from evenout.storage.output import atomic_file, atomic_folder, finite, inert, write_table
from evenout.tables.files import read_table, require_columns, sha256

_FEW_VALUES = 20  # of a column that is kept beside the plan


def score_data(
    *, model: Path, file: Path, out: Path, id_column: str | None, score: str | None, sensitive: Sequence[str],
    reasons: int | None, everybody: bool, trust: Sequence[str], device: str, engine: str, scheduler: str | None,
    n_jobs: int, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write the scores of a file or a folder, and say how many rows are flagged."""
    many = is_folder(str(file))
    if many:
        require_outside(out, out, str(file))
    else:
        check_out(out, model, file)
    asked = {"a folder": many, "--reasons": reasons is not None, "--device": device != "cpu"}
    stale = ("scores-*.parquet", "reasons-*.parquet")
    with progress(quiet=quiet) as step, atomic_folder(out, stale=stale) if many else atomic_file(out) as target:
        saved = SavedModel(
            model, trust, step, next((name for name, given in asked.items() if given), ""), n_jobs=n_jobs, device=device
        )
        if many:
            workers = {"engine": engine, "scheduler": scheduler, "n_threads": effective_n_jobs(n_jobs)}
            result = _score_folder(saved, str(file), target, workers, reasons, step, everybody=everybody)
        else:
            step(f"Reading {file}")
            frame = saved.read(file, id_column, score, sensitive)
            result = _score_file(saved, frame, id_column, target, reasons, step, everybody=everybody)
    if as_json:
        result = {"input": {"name": str(file), "sha256": None if many else sha256(file)}} | result
        result |= {"model": {"sha256": sha256(model)}, "out": str(out)}
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    elif not quiet:
        rows, flagged = result["rows"], result["flagged"]
        click.echo(one_line(f"{rows:,} rows, {flagged:,} flagged ({flagged / rows:.1%}): {out}"))


def _score_file(
    saved: SavedModel, frame: pd.DataFrame, id_column: str | None, target: Path, reasons: int | None, step: Announce,
    *, everybody: bool,
) -> dict[str, Any]:  # fmt: skip
    """Write the scores of a table to ``target``; return the figures to report."""
    model, table = saved.model, saved.table
    ids, unknown = row_ids(frame, id_column), {} if table is None else table.unknown_values(frame)
    rows = saved.encoded(frame)
    scores = saved.scores(frame, rows, step)
    threshold = model.threshold_ if hasattr(model, "threshold_") else -model.offset_
    flagged = (scores > threshold).astype(int)
    result = pd.DataFrame({"id": ids, "fair_score": scores, "flagged": flagged})
    if reasons is not None:
        step("Finding reasons")
        shown = {"table": table, "frame": None if table is None else frame, "sensitive_features": saved.groups(frame)}
        result = pd.concat([result, reason_columns(model, rows, reasons, **shown, everybody=everybody)], axis=1)
    write_table(result, target)
    return {
        "rows": len(frame), "flagged": int(flagged.sum()), "threshold": threshold,
        "unknown_values": {name: sum(values.values()) for name, values in unknown.items()},
    }  # fmt: skip


def _score_folder(
    saved: SavedModel, data: str, target: Path, workers: dict[str, Any], reasons: int | None, step: Announce, *,
    everybody: bool,
) -> dict[str, Any]:  # fmt: skip
    """Write a Parquet file of scores for each part of the input; return the figures to report."""
    step(f"Scoring {data}")
    model, table = saved.model, saved.table
    with open_folder(data, text=table is not None, features=saved.features, **workers) as source:
        rows = source if table is None else encoded(source, table)
        n_rows, flagged = model.score_partitions(rows, target).sum(axis=0).tolist()
        if not n_rows:
            raise ValueError(f"{data} has no rows in any file")
        unknown = {} if table is None else count_unknown(source, table)
        if reasons is not None:
            step("Finding reasons")
            explain_partitions(rows, model, reasons, target, table=table, everybody=everybody)
    for name, count in unknown.items():
        warnings.warn(
            f"column {name!r}: {count} of {n_rows} rows have text that the training table did not have; "
            "it counts as none of the known values",
            stacklevel=2,
        )
    return {"rows": n_rows, "flagged": flagged, "threshold": -model.offset_, "unknown_values": unknown}


def explain_people(
    *, model: Path, file: Path, id_column: str | None, people: Sequence[str], reasons: int, baseline: str,
    sensitive: Sequence[str], trust: Sequence[str], n_jobs: int, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print why rows of a file stand out, and what fairness changed for them."""
    with progress(quiet=quiet) as step:
        saved = SavedModel(model, trust, step, "evenout explain", n_jobs=n_jobs)
        step("Finding reasons")
        frame = saved.read(file, id_column, None, sensitive)
        chosen = frame.iloc[_rows_of(people, frame, id_column, file)]
        chosen.index = list(people)
        explanation = explain(
            saved.model, saved.encoded(chosen) if saved.table is None else chosen, reasons, table=saved.table,
            sensitive_features=saved.groups(chosen), baseline=baseline,
        )  # fmt: skip
    if as_json:
        body = {"baseline": baseline, "rows": [_entry(explanation, row) for row in range(len(explanation))]}
        click.echo(json.dumps(body, indent=2, ensure_ascii=False))
    elif not quiet:
        for line in [line for row in range(len(explanation)) for line in explanation.lines(row)]:
            click.echo(line[: len(line) - len(line.lstrip())] + one_line(line))


def _rows_of(people: Sequence[str], frame: pd.DataFrame, id_column: str | None, file: Path) -> list[int]:
    """Numbers of the rows with these ids."""
    known = np.arange(1, len(frame) + 1).astype(str) if id_column is None else frame[id_column].astype(str).to_numpy()
    rows = []
    for person in people:
        matches = np.flatnonzero(known == person)
        if not len(matches):
            numbered = f"rows are numbered from 1 to {len(frame)}, or name a column as --id"
            where = numbered if id_column is None else f"no row has it in {id_column!r}"
            raise ValueError(f"{file}: --person {person} is unknown; {where}")
        if len(matches) > 1:
            raise ValueError(f"{file}: --person {person} stands in {len(matches)} rows; --id must tell rows apart")
        rows.append(int(matches[0]))
    return rows


def _entry(explanation: Explanation, row: int) -> dict[str, Any]:
    """One row as plain data."""
    scores, typical = explanation.parts.scores[row].tolist(), explanation.parts.typical[row].tolist()
    return {
        "id": str(explanation.index[row]),
        "change": explanation.changes[row],
        **dict(zip(("base_score", "fair_score", "base_typical", "fair_typical"), scores + typical, strict=True)),
        "reasons": [
            {
                "feature": explanation.feature_names[feature],
                "value": explanation.values[row, feature],
                "base_part": float(explanation.base_parts[row, feature]),
                "fair_part": float(explanation.fair_parts[row, feature]),
                "text": text,
            }
            for feature, text in zip(explanation.order[row].tolist(), explanation.texts(row), strict=True)
        ],
        "summary": explanation.summary(row) or None,
    }


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
