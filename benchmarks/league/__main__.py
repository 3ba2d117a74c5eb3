"""The command line of the league; see ``python -m benchmarks.league --help``."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import evenout
import league
from evenout.storage.output import atomic_file
from league.contract import Method, find_methods
from league.duels import CHAMPION, MEASURES, to_dict
from league.judging import Plan, Result, play
from league.page import League, first_lines, render, write_csv, write_into
from league.tables import Source, halve, known_source, list_tables, own_source

CAPTION = "AUC and gap between groups of every method at all of its settings, on judged halves"
QUICK = Plan(halves=3, rows=1000, length=0.15)


def main() -> None:
    """Play, or show what was played."""
    options = _parser().parse_args()
    try:
        record = _joined([_read(path) for path in options.table]) if options.table else _play(options)
        if options.out:
            _write(record, options.out)
        found = League(record, options.champion)
        text = render(found)
        print("\n" + text)
        if options.images:
            picture = _draw(found, options.images)
            print(f"\n{picture}")
            text += f"\n\n![{CAPTION}]({_seen_from(options.into or picture, picture)})"
        if options.into:
            write_into(options.into, text)
        if options.first:
            write_into(options.first, first_lines(found))
        for path in write_csv(found, options.csv) if options.csv else ():
            print(path)
    except ValueError as error:
        sys.exit(f"error: {error}")
    if options.json:
        print(json.dumps(_summed_up(record, found), allow_nan=False))


def _play(options: argparse.Namespace) -> dict[str, Any]:
    """Every method on every halving of every table, as one object of plain values."""
    plan = QUICK if options.quick else Plan()
    given = {"halves": options.halves, "rows": options.rows, "seed": options.seed}
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    sources = _sources(options)
    methods, missing = _chosen(options.methods, options.champion)
    for file, module in missing.items():
        print(f"left out: {file} needs {module}, which is not installed")
    tables = {source.name: _described(source, plan) for source in sources}
    rounds, start, results = len(sources) * plan.halves, time.monotonic(), []
    for done, each in enumerate(play(sources, list(methods), plan, options.jobs), 1):
        results += each
        print(f"{done}/{rounds} {each[0].table} {each[0].half} ({time.monotonic() - start:.0f} s)", flush=True)
    return {
        "evenout": evenout.__version__,
        "plan": asdict(plan),
        "tables": tables,
        "methods": {name: _of_method(method) for name, method in methods.items()},
        "left_out": missing,
        "results": [each.to_dict() for each in _in_order(results, tables, list(methods))],
    }


def _draw(found: League, folder: Path) -> Path:
    try:
        from league.pictures import draw_frontiers
    except ModuleNotFoundError as error:
        raise ValueError(f"--images needs {error.name}, which is not installed") from None
    return draw_frontiers(found, folder)


def _seen_from(page: Path, picture: Path) -> str:
    return Path(os.path.relpath(picture, page.parent)).as_posix()


def _sources(options: argparse.Namespace) -> list[Source]:
    if options.file:
        return [own_source(options.file, options.sensitive, options.label)]
    return [known_source(name) for name in options.tables or list_tables()]


def _chosen(names: list[str] | None, champion: str) -> tuple[dict[str, Method], dict[str, str]]:
    """The methods that were asked for, and those that cannot run."""
    known, missing = find_methods()
    if names is None:
        return known, missing
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no method is called {unknown[0]!r}; those are {', '.join(known)}")
    return {name: method for name, method in known.items() if name in {*names, champion}}, {}


def _described(source: Source, plan: Plan) -> dict[str, Any]:
    first = halve(source.draw(0), (plan.seed, 0), plan.rows)
    shape = {"rows": len(first.X) + len(first.new), "features": first.X.shape[1], "groups": int(first.groups.max()) + 1}
    return {"kind": source.kind, "overlapping": source.overlapping, **shape}


def _of_method(method: Method) -> dict[str, Any]:
    return {"source": method.source, "uses_group": method.uses_group, "ours": method.ours}


def _in_order(results: list[Result], tables: dict[str, Any], methods: list[str]) -> list[Result]:
    """By table, method and halving, whichever was done first; settings stay in the order of the method."""
    places = list(tables)
    return sorted(results, key=lambda each: (places.index(each.table), methods.index(each.method), each.half))


def _summed_up(record: dict[str, Any], found: League) -> dict[str, Any]:
    """The record with its comparisons."""
    duels = {measure: [to_dict(each) for each in found.duels[measure]] for measure in MEASURES}
    return {**record, "duels": _plain(duels), "tally": {measure: found.tally(measure) for measure in MEASURES}}


def _plain(value: Any) -> Any:
    """The same with null where a number is none, as JSON asks."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and value != value else value


def _write(record: dict[str, Any], out: Path) -> None:
    with atomic_file(out) as place:
        place.write_text(json.dumps(record, allow_nan=False), encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        lines = path.read_text(encoding="utf-8").strip().splitlines()
        record: dict[str, Any] = json.loads(lines[-1])
        if not {"plan", "tables", "methods", "results"} <= set(record):
            raise ValueError
    except (OSError, ValueError, IndexError, TypeError):
        raise ValueError(f"{path} holds no results; make it by --out {path}") from None
    return record


def _joined(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Results of several files as one, where different tables were played in the same way."""
    first = records[0]
    tables: dict[str, Any] = {}
    for record in records:
        if (record["plan"], list(record["methods"])) != (first["plan"], list(first["methods"])):
            raise ValueError("the files were not made by the same methods, seed, halves and rows; show each by itself")
        if twice := sorted(set(tables) & set(record["tables"])):
            raise ValueError(f"table {twice[0]!r} is in more than one file")
        tables |= record["tables"]
    return {**first, "tables": tables, "results": [each for record in records for each in record["results"]]}


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        return int(text)

    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.league", description=league.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a table of your own: .csv, .csv.gz or .parquet")
    parser.add_argument("--sensitive", metavar="COL[,COL...]", help="protected columns of FILE")
    parser.add_argument("--label", metavar="COL", help="column of FILE with 1 for an outlier, 0 for an inlier")
    parser.add_argument("--tables", nargs="+", metavar="NAME", help="some of: " + ", ".join(list_tables()))
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="these alone, and ours")
    parser.add_argument("--quick", action="store_true", help="3 halvings, 1000 rows a half, short training")
    parser.add_argument("--halves", type=_at_least(1), metavar="N", help="halvings of each table (10)")
    parser.add_argument("--rows", type=_at_least(50), metavar="N", help="rows of a half at most (15000)")
    parser.add_argument("--seed", type=_at_least(0), metavar="N", help="of everything (0)")
    parser.add_argument("--jobs", type=_at_least(1), default=2, metavar="N", help="halvings at a time (2)")
    parser.add_argument("--champion", default=CHAMPION, metavar="NAME", help=f"of ours, who is compared ({CHAMPION})")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every single result to this file")
    parser.add_argument(
        "--table", nargs="+", type=Path, metavar="FILE", help="play nothing, show what these files hold"
    )
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the tables between the marks of this page")
    parser.add_argument("--first", type=Path, metavar="PAGE", help="put the first lines between the marks of this page")
    parser.add_argument("--images", type=Path, metavar="FOLDER", help="draw the frontiers into this folder")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write every comparison to CSV files in this folder")
    parser.add_argument("--json", action="store_true", help="everything as one object on the last line")
    return parser


if __name__ == "__main__":
    main()
