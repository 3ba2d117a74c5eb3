"""``evenout audit``: any score in a file, measured for gaps between groups."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenout.cli.messages import Announce, plain_messages, progress
from evenout.cli.options import (
    FiniteRange,
    NonEmptyPath,
    columns_option,
    estimator_options,
    finding_options,
    read_names,
)
from evenout.exceptions import InputError

if TYPE_CHECKING:
    from evenout.auditing import AttributeAudits, AuditResult

_EXAMPLES = """
\b
Examples:
  evenout audit scores.csv --score fair_score --sensitive group
  evenout audit batch.csv --score risk --sensitive sex,age --label fraud --out audit.csv
  evenout audit june.csv --score risk --sensitive sex --given income --baseline may.csv
  evenout audit june.csv --score decile --sensitive race --threshold 8
  evenout audit june.csv --score risk --sensitive sex,age --as hiring --as lending --page audit.html
  evenout audit a.csv --score risk --sensitive age,sex --continuous age
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=NonEmptyPath())
@click.option("--score", required=True, metavar="COL", help="Column with the scores, higher = more outlying.")
@columns_option("--sensitive", help="Protected columns.", required=True, callback=read_names)
@click.option("--probable", is_flag=True, help="The protected columns are probabilities, one for each group.")
@click.option("--sufficient", is_flag=True, help="With --probable: they know all that the score uses.")
@click.option("--label", metavar="COL", help="Column with known labels, 1 = outlier, 0 = inlier, empty = unknown.")
@click.option(
    "--label-propensity", metavar="CHANCE|COL",
    help="The chance that a row was labelled: a number for a random draw, or a column.",
)  # fmt: skip
@columns_option(
    "--features", help="Features: which go with the gap, and are similar rows scored alike?", callback=read_names
)
@columns_option(
    "--given", help="Columns that may justify a difference: gaps among rows alike in them.", callback=read_names
)
@click.option(
    "--clusters", metavar="COL", help="Rows with the same value belong together, such as several rows of one person."
)
@click.option("--sample-weight", metavar="COL", help="How many people each row stands for, as in a survey.")
@click.option("--threshold", type=float, metavar="NUMBER", help="Flag this score and more, instead of a share.")
@click.option("--flagged", metavar="COL", help="Column with 1 for the rows that are flagged, instead of a share.")
@click.option(
    "--baseline", type=NonEmptyPath(), metavar="FILE", help="An earlier batch with the same columns to compare with."
)
@click.option(
    "--confidence", type=FiniteRange(0.5, 1, max_open=True), default=0.95, show_default=True, metavar="SHARE",
    help="Confidence of the intervals.",
)  # fmt: skip
@click.option(
    "--resamples", type=click.IntRange(0, 1_000_000), default=1000, show_default=True, metavar="NUMBER",
    help="Bootstrap resamples and permutations; 0 for none.",
)  # fmt: skip
@estimator_options("contamination", "length_scale", "groups", "random_state")
@click.option(
    "--as", "tables", type=click.Choice(["hiring", "lending", "strata"]), multiple=True,
    help="A table in a shape that supervisors ask for; strata needs --given. Repeatable.",
)  # fmt: skip
@click.option(
    "--flag-means", type=click.Choice(["bad", "good"]), default="bad", show_default=True,
    help="Tables: whether being flagged is the harm or the benefit.",
)  # fmt: skip
@click.option(
    "--reference", multiple=True, metavar="GROUP",
    help="Tables: compare with this group, one of an attribute. Repeatable.  [default: the best off]",
)  # fmt: skip
@click.option(
    "--page", type=NonEmptyPath(), metavar="FILE.html",
    help="Write one page to hand over, with the tables of --as.",
)  # fmt: skip
@click.option(
    "--out", type=NonEmptyPath(), metavar="FILE.csv", help="Write every measure, or the tables, to this file."
)
@finding_options
def audit(
    file: Path, baseline: Path | None, tables: Sequence[str], flag_means: str, reference: Sequence[str],
    page: Path | None, out: Path | None, as_json: bool, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Audit the scores in FILE (.csv, .csv.gz or .parquet), ours or not, for gaps between groups.

    Group sizes and means, how evenly groups are flagged and spared, gaps free of scale and of sampling noise, and with
    labels the rates of error by group; with intervals, and with tests that are corrected for how many there are.
    """
    import pandas as pd

    from evenout.auditing import AuditResult
    from evenout.auditing.page import audit_page, write_audit_page
    from evenout.cli.inputs import check_out
    from evenout.storage.output import atomic_file, require_apart, write_table
    from evenout.tables.files import sha256

    with plain_messages():
        if out is not None:
            check_out(out, *filter(None, (file, baseline)))
        if page is not None:
            if page.suffix.lower() not in (".html", ".htm"):
                raise ValueError(f"--page {page} must end in .html")
            require_apart(page, file, option="--page")
        with progress(quiet=quiet or as_json) as step:
            result = _audit_file(file, step, **options)
            earlier = None if baseline is None else _audit_file(baseline, step, **options)
            drift = None if earlier is None else result.compare(earlier)  # type: ignore[arg-type]  # both of one kind
        made = [result.table(kind, flag_means=flag_means, reference=reference) for kind in dict.fromkeys(tables)]
        if page is not None:
            results = {"": result} if isinstance(result, AuditResult) else result
            origin: dict[str, Any] = {
                "title": f"Audit of {file.name}",
                "source": str(file),
                "input_sha256": sha256(file),
            }
            write_audit_page(page, audit_page(results, made, **origin))
        if out is not None:
            frames = [
                pd.DataFrame({"table": table.kind}, table.to_frame().index).join(table.to_frame()) for table in made
            ]
            with atomic_file(out) as target:
                write_table(pd.concat(frames) if made else result.to_frame(), target)
    if as_json:
        record: dict[str, Any] = {"audit": result.to_dict()} | ({} if drift is None else {"drift": drift.to_dict()})
        record |= {"tables": [table.to_dict() for table in made]} if made else {}
        click.echo(json.dumps(record, indent=2))
    elif quiet:
        click.echo("\n".join([*result.verdict, *(drift.verdict if drift else ())]))
    else:
        shown: list[Any] = [*made] or [result]
        click.echo("\n\n".join(repr(part) for part in (*shown, drift) if part is not None))


def _audit_file(
    file: Path, step: Announce, *, score: str, sensitive: Sequence[str], probable: bool, sufficient: bool,
    label: str | None, label_propensity: str | None, features: Sequence[str], given: Sequence[str],
    clusters: str | None, sample_weight: str | None, flagged: str | None, **options: Any,
) -> "AuditResult | AttributeAudits":  # fmt: skip
    from evenout.auditing import audit as run_audit
    from evenout.cli.inputs import label_column, offer_bands
    from evenout.groups.read import GroupProbabilities
    from evenout.tables.files import read_table, require_columns

    step(f"Reading {file}")
    table = read_table(file, text={clusters or ""} if probable else {*sensitive, clusters or ""})
    single = {"--score": score, "--label": label, "--clusters": clusters, "--sample-weight": sample_weight}
    asked = {use: [name] for use, name in (single | {"--flagged": flagged}).items() if name}
    asked |= {"--sensitive": [*sensitive], "--features": [*features], "--given": [*given]}
    if sufficient and not probable:
        raise ValueError("--sufficient goes with --probable: it is about probabilities of groups")
    chance: Any = label_propensity
    if label_propensity is not None:
        try:
            chance = float(label_propensity)
        except ValueError:
            asked["--label-propensity"] = [label_propensity]
    for use, names in asked.items():
        require_columns(names, table.columns, where=str(file), use=use)
    step(f"Auditing {len(table):,} rows")
    try:
        protected = table[list(sensitive)]
        offer_bands(None if probable else protected, options["groups"].continuous)
        return run_audit(
            table[score],
            sensitive_features=GroupProbabilities(protected, sufficient=sufficient) if probable else protected,
            labels=label_column(label, table[label], gaps=bool(table[label].isna().any())) if label else None,
            label_propensity=table[chance] if isinstance(chance, str) else chance,
            X=table[list(features)] if features else None,
            given=table[list(given)] if given else None,
            clusters=table[clusters] if clusters else None,
            sample_weight=table[sample_weight] if sample_weight else None,
            flags=label_column(flagged, table[flagged]) if flagged else None,
            **options,
        )
    except ValueError as error:
        raise InputError("{file}: {error}", file=file, error=error) from None
