"""Do the tests of the core notice when one comparison or one sign of it is wrong?

Every comparison and every sign in ``src/evenout/core`` is turned around, one at a time, in a copy of ``src``, and the
tests of the core are run on it. A mutant is *caught* if a test fails, the run crashes or takes too long, and has
*survived* otherwise. Survivors that change nothing a user could see are listed with the reason in ``survivors.toml``
and not tried unless asked for with ``--again``. The status is 1 if fewer than 90 % of all mutants are caught, if one
survives that is not listed, or if the list is out of date.

    python tests/mutation/run.py                         # all
    python tests/mutation/run.py --only ruler,path --jobs 4
    python tests/mutation/run.py --sample 40 --seed 1    # as many, drawn at random
"""

# ruff: noqa: T201

import argparse
import ast
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
CORE = Path("src/evenout/core")
LIST = Path(__file__).with_name("survivors.toml")
REQUIRED = 0.9  # of all mutants
CPU_LIMITS = 40, 240  # seconds for a module's own tests, and for all: a mutant may loop for ever
TIME_LIMIT = 900  # or wait for ever

# A comparison is moved by its boundary and, where it has a direction, turned around.
FLIPS: dict[type[ast.AST], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">=")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.USub: ("-", ("+",)),
}

CONTEXT = multiprocessing.get_context("forkserver")  # its children find the slow imports done
IMPORTS = ["numba", "pandas", "pytest", "scipy.optimize", "scipy.spatial", "scipy.stats", "sklearn.base"]

Place = tuple[int, int]  # line from 1, column in bytes from 0, as in `ast`


@dataclass(frozen=True)
class Mutant:
    """A module with one operator replaced.

    ``name`` holds the function, the operator, its replacement and which operator of this kind it is in the function: no
    line number, so that changes elsewhere leave it as it is. ``line`` is the mutated line.
    """

    module: str
    name: str
    line: str
    source: bytes


@dataclass(frozen=True)
class Outcome:
    """Fate of a mutant; ``caught_by``: the first test that failed, or how the run ended, None if it survived."""

    name: str
    line: str
    caught_by: str | None
    seconds: float


def list_mutants(path: Path) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    source = path.read_bytes()
    begin = [0]
    for text in source.splitlines(keepends=True):
        begin.append(begin[-1] + len(text))
    seen: Counter[tuple[str, str]] = Counter()
    mutants = []
    for left, right, kind, function in sorted(_operators(ast.parse(source), ()), key=lambda found: found[:2]):
        old, replacements = FLIPS[kind]
        start = source.index(old.encode(), begin[left[0] - 1] + left[1], begin[right[0] - 1] + right[1])
        seen[function, old] += 1
        for new in replacements:
            mutated = source[:start] + new.encode() + source[start + len(old) :]
            line = mutated.splitlines()[source.count(b"\n", 0, start)].decode().strip()
            name = f"{path.stem}.{function}: {old} to {new} #{seen[function, old]}"
            mutants.append(Mutant(path.stem, name, line, mutated))
    return mutants


def _operators(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[Place, Place, type[ast.AST], str]]:
    """The stretch of source between two operands, the operator in it, and the function around it."""
    function = ".".join(scope) or "module"
    match node:
        case ast.Raise() | ast.Call(func=ast.Attribute(attr="warn")):
            return  # the words of a message
        case ast.FunctionDef() | ast.ClassDef():
            scope = (*scope, node.name)
        case ast.Compare():
            operands = [node.left, *node.comparators]
            for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
                if type(operator) in FLIPS:
                    yield _end(left), _begin(right), type(operator), function
        case ast.BinOp() if type(node.op) in FLIPS:
            yield _end(node.left), _begin(node.right), type(node.op), function
        case ast.AugAssign() if type(node.op) in FLIPS:
            yield _end(node.target), _begin(node.value), type(node.op), function
        case ast.UnaryOp() if type(node.op) in FLIPS:
            yield _begin(node), _begin(node.operand), type(node.op), function
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _operators(child, scope)


def _begin(node: ast.expr) -> Place:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> Place:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def stages(module: str, copy: Path) -> list[tuple[list[str], bool, int]]:
    """The runs that a mutant of this module must survive: tests, whether kernels are compiled, limit in seconds.

    First come the tests that import the module and the examples in its docstrings; then all tests of the core,
    the repeated draws from a population last. The own tests of kernels are so small that they are faster not compiled.
    """
    others = sorted(str(path) for path in (ROOT / "tests/core").glob("test_*.py"))
    own = [path for path in others if f"evenout.core.{module} import" in Path(path).read_text()]
    slow = [path for path in others if path.endswith("/test_population.py")]
    rest = [path for path in others if path not in own + slow]
    compiled = not module.endswith("_kernels")
    return [
        ([str(copy / CORE / f"{module}.py"), *own], compiled, CPU_LIMITS[0]),
        (rest if compiled else [*own, *rest], True, CPU_LIMITS[1]),
        (slow, True, CPU_LIMITS[1]),
    ]


def run_tests(copy: Path, tests: list[str], cache: Path | None, *, compiled: bool, limit: int) -> None:
    """Run tests on a copy of ``src``; meant for a process of its own, which ends with the status of pytest."""
    import numba.core.config
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    output = os.open(copy / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    os.environ |= {"PYTHONPATH": str(copy / "src"), "NUMBA_DISABLE_JIT": str(int(not compiled))}
    os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_timeout,xdist.plugin"}
    if cache is not None:
        os.environ["NUMBA_CACHE_DIR"] = str(cache)
    numba.core.config.reload_config()
    sys.path.insert(0, str(copy / "src"))
    sys.dont_write_bytecode = True  # files of one size written within one second look alike to Python
    options = ["-n0", "-x", "-q", "--tb=line", "--assert=plain", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    status = pytest.main([*options, f"--rootdir={ROOT}", *tests])
    sys.stdout.flush()
    os._exit(0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status)  # a module without tests of its own


def first_failure(copy: Path, tests: list[str], *, compiled: bool, limit: int, fresh: bool) -> str | None:
    """The first test that fails on a copy of ``src``, or how the run ended; None if all is well.

    ``fresh``: compile everything, since callers of a changed kernel would be found compiled with the old one.
    """
    with tempfile.TemporaryDirectory(dir=copy) as cache:
        process = CONTEXT.Process(
            target=run_tests,
            args=(copy, tests, Path(cache) if fresh else None),
            kwargs={"compiled": compiled, "limit": limit},
        )
        process.start()
        process.join(TIME_LIMIT)
        if process.is_alive():
            process.kill()
            process.join()
    if process.exitcode == 0:
        return None
    log = (copy / "log").read_text(errors="replace")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", log, re.MULTILINE)
    return Path(failed[1]).name if failed else f"exit status {process.exitcode}: {log.strip()[-200:]}"


def try_mutant(copy: Path, mutant: Mutant) -> Outcome:
    """Put a mutant into a copy of ``src``, run its stages until a test fails, and put the module back."""
    began = perf_counter()
    target, kernel = copy / CORE / f"{mutant.module}.py", mutant.module.endswith("_kernels")
    original, times = target.read_bytes(), target.stat()
    target.write_bytes(mutant.source)
    runs = (
        first_failure(copy, tests, compiled=compiled, limit=limit, fresh=kernel)
        for tests, compiled, limit in stages(mutant.module, copy)
    )
    caught_by = next((failure for failure in runs if failure is not None), None)
    target.write_bytes(original)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))  # what was compiled from it is good again
    return Outcome(mutant.name, mutant.line, caught_by, round(perf_counter() - began, 1))


def try_all(mutants: list[Mutant], jobs: int) -> Iterator[Outcome]:
    """Try mutants, ``jobs`` at a time, each in a copy of its own; in the order in which they end."""
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    os.environ.pop("NUMBA_CACHE_DIR", None)  # compiled kernels are then kept, and copied, beside their source
    CONTEXT.set_forkserver_preload(IMPORTS)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        first = Path(folder) / "0"
        shutil.copytree(ROOT / "src", first / "src")
        kernels = [str(path) for path in (ROOT / "tests/core").glob("test_*_kernels.py")]
        everything = [str(first / CORE), str(ROOT / "tests/core")]
        for tests, compiled in ((everything, True), (kernels, False)):
            failure = first_failure(first, tests, compiled=compiled, limit=CPU_LIMITS[1], fresh=False)
            if failure is not None:
                sys.exit(f"Error: without any mutant, {failure} fails")
        copies.put(first)
        for number in range(1, jobs):
            copies.put(shutil.copytree(first, Path(folder) / str(number)))

        def task(mutant: Mutant) -> Outcome:
            copy = copies.get()
            outcome = try_mutant(copy, mutant)
            copies.put(copy)
            return outcome

        yield from (future.result() for future in as_completed([pool.submit(task, mutant) for mutant in mutants]))


def summary(mutants: list[Mutant], outcomes: list[Outcome], listed: set[str]) -> tuple[str, bool]:
    """A table of mutants and survivors by module, the survivors that are not listed, and whether all is well."""
    module_of = {mutant.name: mutant.module for mutant in mutants}
    survived = [outcome for outcome in outcomes if outcome.caught_by is None]
    tried = Counter(module_of[outcome.name] for outcome in outcomes)
    alive = Counter(module_of[outcome.name] for outcome in survived)
    lines = [f"{'module':20} {'mutants':>8} {'caught':>8} {'survived':>9}"]
    lines += [f"{module:20} {n:8} {n - alive[module]:8} {alive[module]:9}" for module, n in sorted(tried.items())]
    share = 1 - len(survived) / max(len(outcomes), 1)
    lines.append(
        f"{'all':20} {len(outcomes):8} {len(outcomes) - len(survived):8} {len(survived):9}   {share:.1%} caught"
    )
    new = [outcome for outcome in survived if outcome.name not in listed]
    lines += [f"not listed: {outcome.name}\n    {outcome.line}" for outcome in new]
    enough = share >= REQUIRED or len(outcomes) < len(mutants)
    return "\n".join(lines), enough and not new


def read_list(mutants: list[Mutant]) -> set[str]:
    """Names of the listed survivors; each must still be a mutant, with the line that the list says."""
    line_of = {mutant.name: mutant.line for mutant in mutants}
    entries = tomllib.loads(LIST.read_text())["survivor"]
    for entry in entries:
        if line_of.get(entry["mutant"]) != entry["line"]:
            sys.exit(f"Error: {LIST.name} is out of date: there is no {entry['mutant']} with the line {entry['line']}")
    return {entry["mutant"] for entry in entries}


def main() -> int:
    """Try mutants, print what became of them, and tell by the status whether that is well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at a time")
    parser.add_argument("--only", default="", help="modules of the core, separated by commas; all by default")
    parser.add_argument("--sample", type=int, help="so many mutants, drawn at random; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--json", type=Path, help="file for the outcomes, written after every mutant")
    parser.add_argument("--again", action="store_true", help="try listed survivors too, rather than believe the list")
    options = parser.parse_args()
    modules = [name for name in options.only.split(",") if name]
    mutants = [mutant for path in sorted((ROOT / CORE).glob("*.py")) for mutant in list_mutants(path)]
    listed = read_list(mutants)
    chosen = [mutant for mutant in mutants if not modules or mutant.module in modules]
    believed = [mutant for mutant in chosen if mutant.name in listed and not options.again]
    tried = [mutant for mutant in chosen if mutant not in believed]
    if options.sample is not None:
        believed, tried = [], random.Random(options.seed).sample(tried, min(options.sample, len(tried)))
    outcomes = [Outcome(mutant.name, mutant.line, None, 0.0) for mutant in believed]
    for outcome in try_all(tried, options.jobs):
        outcomes.append(outcome)
        print(f"{outcome.seconds:6.1f} s  {outcome.name}: {outcome.caught_by or 'SURVIVED'}", flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    text, well = summary(mutants, outcomes, listed)
    print(text)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
