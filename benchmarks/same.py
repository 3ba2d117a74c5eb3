"""Check that a refactoring changed nothing: hash the results of some forty uses of the library, and compare two runs.

    python benchmarks/same.py --json BEFORE.json                      # on the commit before
    python benchmarks/same.py --against BEFORE.json                   # on the commit after: lists what differs, exit 1

Each case fits, scores, repairs, audits, explains, watches, saves or calls the command line on one of five small tables.
What is hashed: arrays bit for bit, files, pages without their date, frames, warnings, errors and printed lines. Floats
that differ are compared again with a tolerance of 1e-10, and said to be "close".
"""

import argparse
import contextlib
import hashlib
import io
import json
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenout import (
    BlindRepair,
    FairnessMonitor,
    FairOutlierEnsemble,
    GroupProbabilities,
    Groups,
    Individual,
    ScoreRepair,
    audit,
)
from evenout.datasets import load_dataset, make_biased_outliers
from evenout.persistence import load_model, save_model

_VOLATILE = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d(:\d\d)?|/tmp/[^\s\"']*|[\d.]+ ?s\b|evenout-[\w-]+")


class Table:
    """A table, with more protected columns, strata, labels, clusters and weights made up by a seed."""

    def __init__(self, name: str) -> None:
        data = make_biased_outliers("shift", n=1500, random_state=0) if name == "simulated" else load_dataset(name)
        keep = np.random.default_rng(1).permutation(len(data.X))[:1500]
        self.X, self.y = data.X.iloc[keep].reset_index(drop=True), np.asarray(data.y)[keep]
        self.sensitive = pd.Series(np.asarray(data.sensitive)[keep], name="group")
        rng, n = np.random.default_rng(0), len(keep)
        self.two = pd.DataFrame({"group": self.sensitive, "age": rng.integers(18, 80, n) + rng.random(n)})
        self.labels = np.where(rng.random(n) < 0.2, self.y, np.nan)
        self.given = pd.Series(rng.choice(["loan", "card"], n), name="product")
        self.clusters, self.weight = np.arange(n) // 3, rng.uniform(0.5, 2.0, n)
        names = sorted(map(str, self.sensitive.unique()))
        soft = 0.9 * (np.asarray(self.sensitive.astype(str))[:, None] == names) + 0.1 / len(names)
        self.probable = GroupProbabilities(pd.DataFrame(soft / soft.sum(axis=1, keepdims=True), columns=names))
        self.score = np.asarray(self.X, dtype=float).std(axis=1)


TABLES = {name: Table(name) for name in ("breastw", "german", "communities", "credit", "simulated")}


def fitted(
    table: Table, fit: dict[str, Any] | None = None, sensitive: Any = None, **parameters: Any
) -> FairOutlierEnsemble:
    """Fit an ensemble to a table."""
    model = FairOutlierEnsemble(random_state=0, **parameters)
    return model.fit(table.X, sensitive_features=table.sensitive if sensitive is None else sensitive, **(fit or {}))


def state(model: Any, table: Table) -> dict[str, Any]:
    """All that was learnt, and scores of rows."""
    out = {name: value for name, value in vars(model).items() if name.endswith("_") and not name.startswith("_")}
    for name in ("path_", "outcome_"):
        value = out.pop(name, None)
        if value is not None:
            out[name] = value.table() if name == "path_" else str(value)
    if hasattr(model, "outlier_scores"):
        X = table.X.iloc[:200] * 1.01
        out |= {"scores": model.outlier_scores(X), "base": model.base_scores(X), "predict": model.predict(X)}
    return out


def fits() -> dict[str, Callable[[], Any]]:
    """Fits of every kind, on the table whose turn it is."""
    kinds: dict[str, Callable[[Table], Any]] = {
        "means": lambda t: fitted(t),
        "assured": lambda t: fitted(t, bias_reduction=0.5, confidence=0.9),
        "alpha": lambda t: fitted(t, alpha=1.0),
        "flags": lambda t: fitted(t, flag_rate_ratio=0.8),
        "flags by resemblance": lambda t: fitted(t, flag_rate_ratio=0.8, correction="resemblance"),
        "both": lambda t: fitted(t, correction="both"),
        "simplex": lambda t: fitted(t, correction="simplex"),
        "individual": lambda t: fitted(t, bias_reduction=0.1, fairness=Individual()),
        "opportunity": lambda t: fitted(t, {"labels": t.y}, fairness="equal_opportunity"),
        "labels": lambda t: fitted(t, {"labels": t.labels}, learn=True),
        "clusters": lambda t: fitted(t, {"clusters": t.clusters}, flag_rate_ratio=0.7),
        "weights": lambda t: fitted(t, {"sample_weight": t.weight}, flag_rate_ratio=0.7),
        "bands": lambda t: fitted(t, sensitive=t.two, groups=Groups(continuous=("age",), cross=False)),
        "strata": lambda t: fitted(t, {"given": t.given}),
        "strata, flags": lambda t: fitted(t, {"given": t.given}, flag_rate_ratio=0.7),
        "probable": lambda t: fitted(t, sensitive=t.probable),
        "paper": lambda t: FairOutlierEnsemble.paper(random_state=0).fit(t.X, sensitive_features=t.sensitive),
        "at": lambda t: fitted(t).at(bias_reduction=0.4),
        "update": lambda t: fitted(t).update(t.X.iloc[:300] * 1.001, sensitive_features=t.sensitive.iloc[:300]),
        "blind": lambda t: BlindRepair(random_state=0).fit(t.score, t.X, sensitive_features=t.sensitive),
        "aware": lambda t: ScoreRepair().fit(t.score, sensitive_features=t.sensitive),
    }
    tables = list(TABLES)

    def case(make: Callable[[Table], Any], table: Table) -> Callable[[], Any]:
        return lambda: state(make(table), table)

    return {
        f"{kind}, {tables[(i + turn) % 5]}": case(make, TABLES[tables[(i + turn) % 5]])
        for i, (kind, make) in enumerate(kinds.items())
        for turn in (0, 2)
    }


def uses(folder: Path) -> dict[str, Callable[[], Any]]:
    """Audits, reasons, watches, files, pages, partitions and commands."""
    small, other = TABLES["german"], TABLES["simulated"]

    def audited(**more: Any) -> Any:
        result = audit(small.score, sensitive_features=small.sensitive, **more)
        return result.to_dict(), result.to_frame(), str(result), result.to_html()

    def saved() -> Any:
        model = fitted(other, learn=True, fit={"labels": other.labels})
        save_model(model, folder / "model.skops")
        return load_model(folder / "model.skops").outlier_scores(other.X), (
            folder / "model.skops"
        ).stat().st_size // 100

    def explained() -> Any:
        reasons = fitted(small, correction="resemblance").explain(small.X.iloc[:20])
        return reasons.to_frame(), str(reasons)

    def watched() -> Any:
        watch = FairnessMonitor().start(other.score[:500], sensitive_features=other.sensitive[:500])
        for month in range(4):
            rows = slice(500 + 200 * month, 700 + 200 * month)
            watch.update(
                other.score[rows] + month * (other.sensitive[rows] == other.sensitive[0]),
                sensitive_features=other.sensitive[rows],
                batch=f"m{month}",
            )
        return watch.verdict, watch.to_frame(), watch.history(), str(watch)

    def reported() -> Any:
        from evenout.report import write_report

        write_report(fitted(small), folder / "report.html", X=small.X, sensitive_features=small.sensitive)
        return (folder / "report.html").read_text()

    def command(*words: str) -> Any:
        from click.testing import CliRunner

        from evenout.cli import main

        done = CliRunner().invoke(main, [*words], catch_exceptions=False)
        return done.exit_code, done.output

    def partitions() -> Any:
        home = folder / "parts"
        home.mkdir(exist_ok=True)
        for i in range(3):
            part = slice(500 * i, 500 * (i + 1))
            other.X.iloc[part].assign(group=other.sensitive.iloc[part]).to_parquet(home / f"{i}.parquet")
        words = [
            "fit",
            str(home),
            "--sensitive",
            "group",
            "--out",
            str(folder / "of-parts"),
            "--seed",
            "0",
            "--reference-size",
            "500",
        ]
        done = command(*words)
        return done, pd.read_parquet(folder / "of-parts" / "scores") if (
            folder / "of-parts" / "scores"
        ).exists() else None

    csv = folder / "people.csv"
    small.X.assign(sex=small.sensitive, id=np.arange(len(small.X)), risk=small.score, bad=small.y).to_csv(
        csv, index=False
    )
    vendor = folder / "fit"
    return {
        "audit": audited,
        "audit, labels": lambda: audited(labels=small.y),
        "audit, clusters": lambda: audited(clusters=small.clusters),
        "audit, weights": lambda: audited(sample_weight=small.weight),
        "audit, given": lambda: audited(given=small.given),
        "audit, rows": lambda: audited(X=small.X),
        "saved": saved,
        "explained": explained,
        "watched": watched,
        "reported": reported,
        "partitions": partitions,
        "evenout fit": lambda: (
            command(
                "fit",
                str(csv),
                "--sensitive",
                "sex",
                "--drop",
                "risk,bad",
                "--id",
                "id",
                "--out",
                str(vendor),
                "--seed",
                "0",
            ),
            pd.read_csv(vendor / "scores.csv"),
            (vendor / "summary.json").read_text(),
        ),
        "evenout score": lambda: (
            command("score", str(vendor / "model.skops"), str(csv), "--id", "id", "--out", str(folder / "new.csv")),
            pd.read_csv(folder / "new.csv"),
        ),
        "evenout audit": lambda: command("audit", str(csv), "--score", "risk", "--sensitive", "sex"),
        "evenout explain": lambda: command(
            "explain", str(vendor / "model.skops"), str(csv), "--id", "id", "--person", "17"
        ),
        "evenout repair": lambda: command(
            "repair",
            str(csv),
            "--score",
            "risk",
            "--sensitive",
            "sex",
            "--drop",
            "bad",
            "--id",
            "id",
            "--out",
            str(folder / "repaired"),
            "--seed",
            "0",
        ),
        "wrong column": lambda: command("fit", str(csv), "--sensitive", "nobody", "--out", str(folder / "none")),
    }


def flat(value: Any) -> tuple[list[float], str]:
    """Numbers and text of a result."""
    numbers: list[float] = []
    text: list[str] = []

    def walk(item: Any) -> None:
        if isinstance(item, pd.DataFrame):
            text.append(str(list(item.columns)))
            for name in item:
                walk(item[name].to_numpy())
        elif isinstance(item, dict):
            for key in sorted(item, key=str):
                text.append(str(key))
                walk(item[key])
        elif isinstance(item, np.ndarray) and item.dtype.kind in "fiub":
            numbers.extend(item.astype(float).ravel().tolist())
        elif isinstance(item, (list, tuple, np.ndarray)):
            for each in item:
                walk(each)
        elif isinstance(item, (bool, int, float, np.generic)) and not isinstance(item, np.str_):
            numbers.append(float(item))
        elif item is not None and not callable(item):
            text.append(_VOLATILE.sub("", re.sub(r" at 0x\w+", "", str(item))))

    walk(value)
    return numbers, "\n".join(text)


def run(chosen: str) -> dict[str, Any]:
    """Hash every case whose name has ``chosen`` in it."""
    results = {}
    with tempfile.TemporaryDirectory() as home:
        for name, case in (fits() | uses(Path(home))).items():
            if chosen not in name:
                continue
            start, printed = time.perf_counter(), io.StringIO()
            with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
                warnings.simplefilter("always")
                try:
                    value = case()
                except Exception as error:
                    value = f"{type(error).__name__}: {error}"
            numbers, text = flat(
                [value, printed.getvalue(), sorted({f"{w.category.__name__}: {w.message}" for w in caught})]
            )
            results[name] = {
                "numbers": hashlib.sha256(np.array(numbers).tobytes()).hexdigest()[:16],
                "text": hashlib.sha256(text.encode()).hexdigest()[:16],
                "few": [float(np.nansum(np.abs(numbers))) if numbers else 0.0, len(numbers)],
                "words": text,
                "s": round(time.perf_counter() - start, 2),
            }
            print(f"{results[name]['s']:7.2f} s  {name}", file=sys.stderr)
    return results


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print what differs, and count it."""
    different = 0
    for name, new in after.items():
        old = before.get(name)
        if old is None:
            print(f"new: {name}")
            continue
        if old["numbers"] != new["numbers"]:
            close = old["few"][1] == new["few"][1] and np.isclose(old["few"][0], new["few"][0], rtol=1e-10)
            different += not close
            print(f"numbers {'close' if close else 'DIFFER'}: {name} {old['few']} {new['few']}")
        if old["text"] != new["text"]:
            different += 1
            lines = [set(each["words"].splitlines()) for each in (old, new)]
            print(f"text DIFFERS: {name}")
            for sign, these in (("-", lines[0] - lines[1]), ("+", lines[1] - lines[0])):
                for line in sorted(these)[:6]:
                    print(f"   {sign} {line[:200]}")
    print(f"{len(after)} cases, {different} differ, {sum(each['s'] for each in after.values()):.0f} s")
    return different


def main() -> None:
    """Run the cases, and compare or print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the hashes here")
    parser.add_argument("--against", type=Path, help="compare with these")
    parser.add_argument("--only", default="", help="cases with this in their name")
    options = parser.parse_args()
    results = run(options.only)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    if options.against and compare(json.loads(options.against.read_text()), results):
        sys.exit(1)


if __name__ == "__main__":
    main()
