"""``evenout audit``: any score in a file, measured for gaps between groups."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from evenout.auditing import AttributeAudits, AuditResult, audit
from evenout.auditing.page import audit_page, write_audit_page
from evenout.cli.inputs import check_out, ensemble_settings, label_column, naming, offer_bands
from evenout.cli.messages import Announce, progress
from evenout.groups.read import GroupProbabilities
from evenout.storage.output import atomic_file, require_apart, write_table
from evenout.tables.files import read_table, require_columns, sha256


def audit_scores(
    *, file: Path, baseline: Path | None, tables: Sequence[str], flag_means: str, reference: Sequence[str],
    page: Path | None, out: Path | None, as_json: bool, quiet: bool, **options: Any,
) -> str:  # fmt: skip
    """Audit the scores of a file, write what was asked for, and return the findings as text."""
    options = ensemble_settings(options)
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
        origin: dict[str, Any] = {"source": str(file), "input_sha256": sha256(file)}
        write_audit_page(page, audit_page(results, made, title=f"Audit of {file.name}", **origin))
    if out is not None:
        frames = [pd.DataFrame({"table": table.kind}, table.to_frame().index).join(table.to_frame()) for table in made]
        with atomic_file(out) as target:
            write_table(pd.concat(frames) if made else result.to_frame(), target)
    if as_json:
        record: dict[str, Any] = {"audit": result.to_dict()} | ({} if drift is None else {"drift": drift.to_dict()})
        return json.dumps(record | ({"tables": [table.to_dict() for table in made]} if made else {}), indent=2)
    if quiet:
        return "\n".join([*result.verdict, *(drift.verdict if drift else ())])
    return "\n\n".join(repr(part) for part in (*(made or (result,)), drift) if part is not None)


def _audit_file(
    file: Path, step: Announce, *, score: str, sensitive: Sequence[str], probable: bool, sufficient: bool,
    label: str | None, label_propensity: str | None, features: Sequence[str], given: Sequence[str],
    clusters: str | None, sample_weight: str | None, flagged: str | None, **options: Any,
) -> AuditResult | AttributeAudits:  # fmt: skip
    step(f"Reading {file}")
    table = read_table(file, text={clusters or ""} if probable else {*sensitive, clusters or ""})
    single = {"--score": score, "--label": label, "--clusters": clusters, "--sample-weight": sample_weight}
    asked = {use: [name] for use, name in (single | {"--flagged": flagged}).items() if name}
    asked |= {"--sensitive": [*sensitive], "--features": [*features], "--given": [*given]}
    if sufficient and not probable:
        raise ValueError("--sufficient goes with --probable: it is about probabilities of groups")
    chance: Any = label_propensity
    try:
        chance = None if label_propensity is None else float(label_propensity)
    except ValueError:
        asked["--label-propensity"] = [chance]
    for use, names in asked.items():
        require_columns(names, table.columns, where=str(file), use=use)
    step(f"Auditing {len(table):,} rows")
    protected = table[list(sensitive)]
    with naming(file):
        offer_bands(None if probable else protected, options["groups"].continuous)
        return audit(
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
