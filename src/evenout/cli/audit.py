"""``evenout audit`` and ``evenout watch``: any score in files, measured once, or counted batch after batch."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from evenout.auditing import AttributeAudits, AuditResult, audit
from evenout.auditing.page import audit_page
from evenout.cli.inputs import check_out, ensemble_settings, label_column, naming, offer_bands
from evenout.cli.messages import Announce, progress
from evenout.exceptions import InputError
from evenout.groups.read import GroupProbabilities
from evenout.persistence import load_model
from evenout.storage.output import atomic_file, require_apart, write_table
from evenout.tables.files import SUFFIXES, read_table, require_columns, sha256
from evenout.watching import FairnessMonitor
from evenout.watching.ledger import FEWEST

_SETTINGS = ("tolerance", "flag_rate_ratio", "false_alarms")
_COLUMNS = ("score", "sensitive", "person")  # of a watch


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
        written = audit_page(
            result if isinstance(result, AttributeAudits) else {"": result}, made,
            title=f"Audit of {file.name}", source=str(file), input_sha256=sha256(file),
        )  # fmt: skip
        with atomic_file(page) as target:
            target.write_text(written, encoding="utf-8", newline="\n")
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


def watch_batches(
    *, files: Sequence[Path], state: Path, merge: Sequence[Path], out: Path | None, as_json: bool, quiet: bool,
    **options: Any,
) -> tuple[str, bool]:  # fmt: skip
    """Count batches into the state file; return the findings as text, and whether there is an alarm."""
    options = ensemble_settings(options)
    if out is not None:
        check_out(out, *files)
    with progress(quiet=quiet or as_json) as step:
        batches = _batches(files, state)
        monitor = _continued(state, options) if state.exists() else _begun(batches, state, step, options)
        if merge:
            monitor.merge(*map(FairnessMonitor.load, merge)).save(state)
        for file in batches:
            if file.name not in monitor:
                step(f"Counting {file}")
                rows = _read(file, monitor.columns)
                with naming(file):
                    monitor.update(**rows, batch=file.name)
                monitor.save(state)
    if out is not None:
        with atomic_file(out) as target:
            write_table(monitor.history(), target)
    findings = json.dumps(monitor.to_dict(), indent=2) if as_json else "\n".join(monitor.verdict)
    return findings if as_json or quiet else repr(monitor), monitor.alarm


def _continued(state: Path, options: dict[str, Any]) -> FairnessMonitor:
    """Load the watch; settings that are given again must not have changed."""
    monitor = FairnessMonitor.load(state)
    kept = {name: monitor.columns.get(name, []) for name in _COLUMNS} if monitor.columns else {}
    kept |= {} if options["model"] is not None else {name: getattr(monitor.settings, name) for name in _SETTINGS}
    for name, value in kept.items():
        if options[name] not in (None, [], value):
            raise InputError(
                "{state} was begun with another {$name} ({value}); leave it out, or begin another watch with another "
                "--state",
                state=state, name=name, value=",".join(value) if isinstance(value, list) else value,
            )  # fmt: skip
    monitor.columns = monitor.columns or {name: options[name] for name in _COLUMNS if options[name]}
    return monitor


def _begun(batches: list[Path], state: Path, step: Announce, options: dict[str, Any]) -> FairnessMonitor:
    """Begin a watch; without a model or a start it takes the first of the batches from their list."""
    given = {name: options[name] for name in _SETTINGS if options[name] is not None}
    columns = {name: options[name] for name in _COLUMNS if options[name]}
    rules = options["groups"].but(min_size=FEWEST)
    if options["model"] is not None:
        promised = [name for name in ("tolerance", "flag_rate_ratio") if name in given]
        if promised or options["start"] is not None:
            raise InputError("--model says what was promised; leave {$name} out", name=(*promised, "start")[0])
        step(f"Loading {options['model']}")
        monitor = FairnessMonitor.of(load_model(options["model"]), groups=rules, **given)
    else:
        if options["start"] is None and not batches:
            raise ValueError(f"{state} is not there, so a watch begins; give a file, --start or --model to begin with")
        first = options["start"] or batches.pop(0)
        step(f"Reading {first}")
        rows = _read(first, columns)
        given = {"tolerance": 0.0 if options["start"] is None else "start"} | given
        monitor = FairnessMonitor(contamination=options["contamination"], groups=rules, **given)
        with naming(first):
            monitor.start(**rows, batch=first.name)
    monitor.columns = columns
    monitor.save(state)
    return monitor


def _batches(files: Sequence[Path], state: Path) -> list[Path]:
    """The files, with those of folders, sorted by name; two of one name are refused."""
    every: list[Path] = []
    for file in files:
        inside = file.iterdir() if file.is_dir() else ()
        tables = [each for each in inside if each.name.lower().endswith(SUFFIXES) and each != state]
        every += [each for each in tables if not each.name.startswith(".")] if file.is_dir() else [file]
    batches: dict[str, Path] = {}
    for file in sorted(every, key=lambda each: each.name):
        first = batches.setdefault(file.name, file)
        if first != file:
            raise ValueError(f"{first} and {file} have one name, by which batches are told apart; rename one")
    return list(batches.values())


def _read(file: Path, columns: dict[str, list[str]]) -> dict[str, Any]:
    """Scores, groups and persons of a file, as `FairnessMonitor.update` takes them."""
    score, sensitive, person = (columns.get(name, []) for name in _COLUMNS)
    if len(score) != 1 or not sensitive or len(person) > 1:
        raise ValueError(f"{file}: --score and --sensitive are needed, columns of scores and groups; --person is one")
    table = read_table(file, text={*sensitive, *person})
    for name in _COLUMNS:
        require_columns(columns.get(name, []), table.columns, where=str(file), use=f"--{name}")
    return {
        "scores": table[score[0]],
        "sensitive_features": table[sensitive],
        "person": table[person[0]] if person else None,
    }
