"""Measure the front door: parameters, names, options, words and the time of `--help`, beside their limits.

    python tools/measure_door.py [--json]

Ends with status 1 where a limit is exceeded.
"""

import inspect
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import evenout
from evenout.cli import main as command_line

ROOT = Path(__file__).parents[1]
LIMITS = {"parameters": 19, "names": 16, "first_options": 10, "words": 20_000, "words_all": 20_000, "help_s": 0.4}
GENERATED = re.compile(r"<!-- ([\w ]+): begin -->.*?<!-- \1: end -->", re.DOTALL)
CODE = re.compile(r"^(```+).*?^\1$", re.DOTALL | re.MULTILINE)


def count_words(page: Path) -> int:
    """Count words of prose, without code and generated tables."""
    text = CODE.sub("", GENERATED.sub("", page.read_text(encoding="utf-8")))
    return len([word for word in text.split() if re.search(r"\w", word)])


def help_seconds(repeats: int = 5) -> float:
    """Median time of ``evenout --help`` in a process of its own."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "evenout", "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure() -> dict[str, float]:
    """All figures, by name."""
    import click

    with click.Context(command_line) as context:
        fit = command_line.get_command(context, "fit")
        assert fit is not None
        sections = fit.get_help(click.Context(fit)).split("\n\n")
    first = next((part for part in sections if re.search(r"^  --sensitive", part, re.MULTILINE)), "")
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    return {
        "parameters": len(inspect.signature(evenout.FairOutlierEnsemble).parameters),
        "names": len(evenout.__all__),
        "options": len(fit.params),
        "first_options": len(re.findall(r"^  (?:-\w, )?--[\w-]+", first, re.MULTILINE)),
        "words": sum(map(count_words, pages)),
        "words_all": sum(len(page.read_text(encoding="utf-8").split()) for page in pages),  # as wc -w counts
        "help_s": round(help_seconds(), 3),
    }


def main() -> None:
    """Print the figures."""
    figures = measure()
    for name, value in figures.items():
        limit = f"at most {LIMITS[name]:g}" if name in LIMITS else ""
        print(f"{name:14} {value:>10g}   {limit}")
    if "--json" in sys.argv:
        print(json.dumps(figures))
    sys.exit(any(figures[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    main()
