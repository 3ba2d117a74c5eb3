"""``evenout reproduce``: the paper's experiments, with a verdict on every claim."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenout.cli.messages import one_line, plain_messages
from evenout.cli.options import NonEmptyPath, estimator_options, split_names

if TYPE_CHECKING:
    from evenout.reproduce import Claim

_EXAMPLES = """
\b
Examples:
  evenout reproduce
      all eight data sets, five repeats; open results/index.html
  evenout reproduce --quick
      three small data sets, two repeats
  evenout reproduce --datasets communities,german --repeats 10 --out two
"""


@click.command(epilog=_EXAMPLES)
@click.option("--datasets", metavar="NAMES", help="Names of the paper's data sets, with commas.  [default: all eight]")
@click.option(
    "--out", type=NonEmptyPath(), default=Path("results"), show_default=True, metavar="FOLDER",
    help="Folder for the results.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="NUMBER",
    help="Draws of forest, groups and alphas.",
)  # fmt: skip
@estimator_options("random_state")
@click.option("--quick", is_flag=True, help="Three small data sets, at most two repeats.")
def reproduce(datasets: str | None, out: Path, repeats: int, random_state: int, quick: bool) -> None:
    """Rerun the experiments of the paper on its data sets.

    Writes every point behind every figure, the figures, a verdict on each claim by a stated rule, and a page that leads
    through them. The same seed gives the same points, byte for byte.
    """
    from joblib import effective_n_jobs

    from evenout.reproduce import reproduce as run

    names = None if datasets is None else split_names([datasets])
    with plain_messages(), _bar() as show:
        results = run(
            out, datasets=names, repeats=repeats, seed=random_state, quick=quick, n_threads=effective_n_jobs(-1),
            progress=show,
        )  # fmt: skip
    _show_claims(results.claims)
    click.echo(one_line(f"Page: {results.page}"))
    click.echo(one_line(f"Points: {results.points}"))
    click.echo(f"Took {sum(results.seconds.values()):.0f} s.")


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on the error stream, so that the output can be piped; gone when done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda label, done, total: bar.update(task, description=label, completed=done, total=total)


def _show_claims(claims: "list[Claim]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="The paper's claims, and those added (+)", title_justify="left")
    table.add_column("")
    table.add_column("claim", ratio=1)
    table.add_column("verdict", no_wrap=True)
    colours = {"holds": "green", "does not hold": "red"}
    for claim in claims:
        mark = "+" if claim.origin == "added" else ""
        verdict = f"[{colours.get(claim.verdict, 'yellow')}]{claim.verdict}[/]"
        table.add_row(f"{claim.id}{mark}", claim.statement, verdict)
    Console(highlight=False).print(table)
