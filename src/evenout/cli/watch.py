"""``evenout watch``: batches of a score in use, counted as they come; an alarm when a gap is larger than promised."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    split_names,
)
from evenout.exceptions import InputError

if TYPE_CHECKING:
    from evenout.watching import FairnessMonitor

ALARM = 3  # exit status
_SETTINGS = ("tolerance", "flag_rate_ratio", "false_alarms")
_COLUMNS = ("score", "sensitive", "person")

_EXAMPLES = """
\b
Examples:
  evenout watch batches/ --state watch.skops --score fair_score --sensitive sex --model fair/model.skops
      begin, and count every file in the folder; run it again when there are new ones
  evenout watch june.csv --state watch.skops --score risk --sensitive sex,age --person id --start may.csv
      a score from elsewhere: June's gaps are held to May's; the same people may come again
  evenout watch july.csv --state watch.skops
      go on: columns and promises are kept in the file
  evenout watch --state watch.skops --merge north.skops --merge south.skops
      take in what other machines have counted

\b
Exit status: 0 no alarm, 3 alarm, 2 wrong input (one line says what), 1 interrupted.
"""


def _columns(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> list[str]:  # noqa: ARG001
    """Names of columns, as a state file keeps them."""
    return split_names(value)


class _Tolerance(FiniteRange):
    """A gap, or the word "start"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.FloatRange.convert`."""
        return value if value == "start" else super().convert(value, param, ctx)


@click.command(epilog=_EXAMPLES)
@click.argument("files", type=NonEmptyPath(), nargs=-1)
@click.option("--state", required=True, type=NonEmptyPath(), metavar="FILE", help="What has been counted so far.")
@click.option(
    "--score", callback=_columns, multiple=True, metavar="COL", help="Column of scores, higher = more outlying."
)
@columns_option("--sensitive", help="Protected columns.", callback=_columns)
@click.option(
    "--person", callback=_columns, multiple=True, metavar="COL",
    help="Column that says who a row is of: needed where the same people come again. No person is kept.",
)  # fmt: skip
@click.option(
    "--model", type=NonEmptyPath(), metavar="FILE",
    help="Begin with what this model, from evenout fit, promised; --score has its fair scores.",
)  # fmt: skip
@click.option(
    "--start", type=NonEmptyPath(), metavar="FILE", help="Begin with these rows, and hold later ones to their gaps."
)
@click.option(
    "--tolerance", type=_Tolerance(0, 1), metavar="GAP",
    help='Promised gap of mean ranks between any two groups, without --model; or "start": no larger ones than the rows '
    "to begin with show, up to sampling noise.  [default: start with --start, else 0]",
)  # fmt: skip
@click.option(
    "--flag-rate-ratio", type=FiniteRange(0, 1, min_open=True), metavar="RATIO",
    help="Promised as well, without --model: the lowest flag rate of a group as a share of the highest.",
)  # fmt: skip
@click.option(
    "--false-alarms", type=FiniteRange(0, 0.5, min_open=True), metavar="SHARE",
    help="Chance that there ever is an alarm while promises are kept.  [default: 0.05]",
)  # fmt: skip
@estimator_options("contamination", "unknown")
@click.option(
    "--merge",
    type=NonEmptyPath(),
    multiple=True,
    metavar="FILE",
    help="State of another machine to take in; repeatable.",
)
@click.option("--out", type=NonEmptyPath(), metavar="FILE.csv", help="Write the history, one row per batch and group.")
@finding_options
@click.pass_context
def watch(
    ctx: click.Context, /, files: Sequence[Path], state: Path, merge: Sequence[Path], out: Path | None, as_json: bool,
    quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Count batches of scores in use, and say whether what was promised is kept.

    FILES are batches (.csv, .csv.gz or .parquet), or folders of them, taken in the order of their names. Each is
    counted once, by its name, and the state is written after each. Whatever happens in between: run it again.

    Any two groups are compared within each batch, by the ranks of their scores, so that a drift of all scores or
    another mix of groups is no alarm; both are told apart. One may look as often as one likes: the false-alarm rate is
    for all time, if every batch has new people or --person says who they are.

    Columns and promises are fixed when a watch begins, with --model, with --start, or with the first file of all, and
    are kept in the state.
    """
    from evenout.cli.inputs import check_out
    from evenout.storage.output import atomic_file, write_table

    with plain_messages():
        if out is not None:
            check_out(out, *files)
        with progress(quiet=quiet or as_json) as step:
            monitor = _watch(files, state, merge, step, options)
        if out is not None:
            with atomic_file(out) as place:
                write_table(monitor.history(), place)
    if as_json:
        click.echo(json.dumps(monitor.to_dict(), indent=2))
    else:
        click.echo("\n".join(monitor.verdict) if quiet else repr(monitor))
    ctx.exit(ALARM if monitor.alarm else 0)


def _watch(
    files: Sequence[Path], state: Path, merge: Sequence[Path], step: Announce, options: dict[str, Any]
) -> "FairnessMonitor":
    from evenout.watching import FairnessMonitor

    batches = _batches(files, state)
    if state.exists():
        monitor = _continued(state, options)
    else:
        monitor, batches = _begun(batches, state, step, options)
    if merge:
        monitor.merge(*map(FairnessMonitor.load, merge)).save(state)
    for file in batches:
        if file.name not in monitor:
            step(f"Counting {file}")
            rows = _read(file, monitor.columns)
            with _naming(file):
                monitor.update(**rows, batch=file.name)
            monitor.save(state)
    return monitor


def _continued(state: Path, options: dict[str, Any]) -> "FairnessMonitor":
    """The watch in the file; settings that are given again must be the same."""
    from evenout.watching import FairnessMonitor

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


def _begun(
    batches: list[Path], state: Path, step: Announce, options: dict[str, Any]
) -> "tuple[FairnessMonitor, list[Path]]":
    """A new watch, and the batches that are left to count: without model or start, it begins with the first."""
    from evenout.persistence import load_model
    from evenout.watching import FairnessMonitor
    from evenout.watching.ledger import FEWEST

    given = {name: options[name] for name in _SETTINGS if options[name] is not None}
    rules = options["groups"].but(min_size=FEWEST)
    columns = {name: options[name] for name in _COLUMNS if options[name]}
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
        with _naming(first):
            monitor.start(**rows, batch=first.name)
    monitor.columns = columns
    monitor.save(state)
    return monitor, batches


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Say of which file an error is."""
    try:
        yield
    except ValueError as error:
        raise InputError("{file}: {error}", file=file, error=error) from None


def _batches(files: Sequence[Path], state: Path) -> list[Path]:
    """The files, with those of folders, sorted by name; two of one name are refused."""
    from evenout.tables.files import SUFFIXES

    found: list[Path] = []
    for file in files:
        if file.is_dir():
            inside = [each for each in file.iterdir() if each.name.lower().endswith(SUFFIXES) and each != state]
            found += [each for each in inside if not each.name.startswith(".")]
        else:
            found.append(file)
    names: dict[str, Path] = {}
    for file in sorted(found, key=lambda each: each.name):
        if file.name in names and names[file.name] != file:
            raise ValueError(
                f"{names[file.name]} and {file} have one name, by which batches are told apart; rename one"
            )
        names[file.name] = file
    return list(names.values())


def _read(file: Path, columns: dict[str, list[str]]) -> dict[str, Any]:
    """Scores, groups and persons of a file, as `FairnessMonitor.update` takes them."""
    from evenout.tables.files import read_table, require_columns

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
