"""Options: one for every argument of the ensemble, and readers for those that are more than a word or a number.

Nothing here loads the library, so that ``--help`` is quick; ``tests/cli/test_options.py`` holds the defaults and
choices to those of the library.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """A number in a range; click lets "nan" and "inf" pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.FloatRange.convert`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class NonEmptyPath(click.Path):
    """A path; an empty one, such as a shell makes of an unset variable, would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.Path.convert`."""
        if value == "":
            self.fail("it is empty.", param, ctx)
        return super().convert(value, param, ctx)


A_PATH = NonEmptyPath(path_type=Path)

_SECTIONS = {
    "Most used": (
        "sensitive", "out", "id_column", "label", "drop", "bias_reduction", "flag_rate_ratio", "given", "learn",
        "random_state",
    ),
    "Fairness": (
        "alpha", "confidence", "judged_on", "fairness", "length_scale", "pairs", "correction", "weighting",
    ),
    "Groups": ("probable", "clusters", "continuous", "bands", "cross", "min_size", "small", "unknown"),
    "Detectors and flags": ("contamination", "detectors", "standardize", "combination", "scaling", "keep"),
    "Results": ("reasons", "everybody", "show_small_cells", "updatable", "as_json", "quiet"),
    "Folders and hardware": ("reference_size", "engine", "scheduler", "device", "n_jobs"),
}  # fmt: skip


class Sectioned(click.Command):
    """A command that shows its options in sections, first those that most people need."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Command.format_options`."""
        rest = {str(option.name): option.get_help_record(ctx) for option in self.get_params(ctx)}
        sections = [(title, [rest.pop(name) for name in names]) for title, names in _SECTIONS.items()]
        for title, records in [*sections, ("Other", [*rest.values()])]:
            with formatter.section(title):
                formatter.write_dl([record for record in records if record])


_NOTIONS = {
    "demographic_parity": "equal mean scores of groups",
    "individual": "equal scores of similar rows",
    "equal_opportunity": "equal means of known outliers",
    "equalized_odds": "equal means of known outliers, and of known inliers",
    "equal_false_alarms": "equal means of known inliers",
}
OF_GROUPS = ("continuous", "bands", "cross", "min_size", "small", "unknown")


def read_fairness(ctx: click.Context, param: click.Parameter, value: str) -> str | dict[str, float]:
    """Read a notion, or several with weights: ``demographic_parity=1,individual=2``."""
    parts = [part.partition("=") for part in split_names([value])]
    if any(name not in _NOTIONS for name, _, _ in parts):
        raise click.BadParameter(f"{value!r} is not {' or '.join(_NOTIONS)}, or several with weights.", ctx, param)
    if len(parts) == 1 and not parts[0][1]:
        return parts[0][0]
    try:
        return {name: float(weight or 1) for name, _, weight in parts}
    except ValueError:
        raise click.BadParameter(f"{value!r} has a weight that is no number.", ctx, param) from None


def read_length_scale(ctx: click.Context, param: click.Parameter, value: str) -> str | float | tuple[str, float]:
    """Read ``minmax``, a number, or ``median:FACTOR``."""
    word, _, factor = value.rpartition(":")
    try:
        return value if value == "minmax" else ("median", float(factor)) if word == "median" else float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not minmax, a number, or median:FACTOR.", ctx, param) from None


def read_contamination(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Read a whole number of rows, or a share of them."""
    if value.isdecimal() and int(value) >= 1:
        return int(value)
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not 0 < share <= 0.5:
        raise click.BadParameter(f"{value} is neither a share above 0 and at most 0.5 nor a count of rows.", ctx, param)
    return share


def split_names(given: Sequence[str], columns: Sequence[str] = ()) -> list[str]:
    """Split lists of names at commas, strip spaces around them, and join the lists; each name once.

    A text that is itself one of the columns is one name, commas included.

    >>> split_names(["sex, age", "job", "sex"]), split_names(["name, first"], ["name, first"])
    (['sex', 'age', 'job'], ['name, first'])
    """
    names: list[str] = []
    for text in given:
        parts = [text] if text in columns else text.split(",")
        names += [part if part in columns else part.strip() for part in parts]
    return [*dict.fromkeys(filter(None, names))]


def read_names(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> list[str]:  # noqa: ARG001
    """Split names where the columns of the file are not known yet."""
    return split_names(value)


def _read_threads(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if value == 0:
        raise click.BadParameter("0 is no number of threads; give 1 or more, or -1 for all cores.", ctx, param)
    return value


def columns_option(flag: str, help: str, **settings: Any) -> Callable[[Command], Command]:  # noqa: A002
    """An option that takes columns: separated by commas, and repeatable."""
    return click.option(flag, multiple=True, metavar="COL[,COL...]", help=help, **settings)


def _option(name: str, default: Any = None, **settings: Any) -> tuple[str, Callable[[Command], Command]]:
    """An option for the argument ``name``; ``flag`` if it is called otherwise."""
    flag = settings.pop("flag", f"--{name.replace('_', '-')}")
    return name, click.option(flag, name, **{"default": default, "show_default": default is not None} | settings)


_OPTIONS = dict([
    _option(
        "bias_reduction", type=FiniteRange(0, 1), metavar="SHARE",
        help="Remove this share of the bias between groups.  [default: 0.8]",
    ),
    _option(
        "flag_rate_ratio", type=FiniteRange(0, 1, min_open=True), metavar="RATIO",
        help="Instead: raise the lowest flag rate of a group to at least this share of the highest.",
    ),
    _option(
        "alpha", type=FiniteRange(0), metavar="NUMBER",
        help="In place of --bias-reduction: the trade-off parameter itself; 0 is no fairness.",
    ),
    _option(
        "confidence", type=FiniteRange(0.5, 1, max_open=True), metavar="SHARE",
        help="Reach --bias-reduction on unseen rows with this confidence, e.g. 0.95.",
    ),
    _option(
        "judged_on", "unseen", type=click.Choice(["unseen", "training"]),
        help="The rows on which the request is meant.",
    ),
    _option(
        "fairness", "demographic_parity", callback=read_fairness, metavar="NOTION",
        help=f"What is made fair: {'; '.join(f'{name}, {aim}' for name, aim in _NOTIONS.items())}. "
        "Several by weight: demographic_parity=1,individual=1.",
    ),
    _option(
        "length_scale", "median:0.1", callback=read_length_scale, metavar="SCALE",
        help="Individual fairness: the distance at which rows stop being similar; a multiple of the median distance, "
        "a number, or minmax (the paper).",
    ),
    _option(
        "pairs", "auto", type=click.Choice(["exact", "sampled", "auto"]),
        help="Individual fairness: all pairs of rows, or a sample with a stated error; auto samples beyond 5e9 pairs.",
    ),
    _option(
        "detectors", "default", type=click.Choice(["paper", "diverse", "default", "precomputed"]),
        help="LOF, neighbour distances and isolation forests (paper); these and each feature's tails (diverse); "
        "forest, distances, local density and tails, each with the same say (default); "
        "or the columns of the file are scores already (precomputed).",
    ),
    _option(
        "standardize", True, flag="--standardize/--no-standardize",
        help="Measure features in their own spreads, so that no unit matters, or as they are (the paper).",
    ),
    _option(
        "learn", False, is_flag=True,
        help="Let the base score learn from --label, gaps allowed; labels that say nothing hardly change it.",
    ),
    _option(
        "combination", "average", type=click.Choice(["average", "maximum", "median", "aom", "moa", "greedy"]),
        help="The base ensemble that the fair score stays close to.",
    ),
    _option(
        "scaling", "minmax", type=click.Choice(["minmax", "rank", "zscore", "gaussian"]),
        help="How the detectors' scores become comparable.",
    ),
    _option(
        "weighting", "rank", type=click.Choice(["rank", "uniform"]),
        help="Stay closest to the base score where it is high, or everywhere alike.",
    ),
    _option(
        "correction", "weights",
        type=click.Choice(["weights", "nonnegative", "simplex", "resemblance", "both", "published"]),
        help="Correct the base score by how much each detector counts (weights: any; nonnegative: at least 0; simplex: "
        "and of a fixed sum), by how much a row looks like each group (resemblance: the smallest change; may count as "
        "use of the group), by both, or mix detectors anew (published: the paper's problem).",
    ),
    _option(
        "continuous", (), callback=lambda _, __, names: tuple(split_names(names)), multiple=True,
        show_default=False, metavar="COL[,COL...]",
        help="Protected columns that are numbers, such as age: overlapping bands at quantiles are compared.",
    ),
    _option(
        "bands", 5, type=click.IntRange(2), metavar="NUMBER",
        help="Bands of a continuous column.",
    ),
    _option(
        "cross", "yes", type=click.Choice(["yes", "no", "both"]),
        callback=lambda _, __, word: {"yes": True, "no": False}.get(word, word),
        help="Several protected columns: cross them, take each by itself (no), or both.",
    ),
    _option(
        "min_size", 30, type=click.IntRange(2), metavar="ROWS",
        help="Groups with fewer rows are small.",
    ),
    _option(
        "small", "leave_out", type=click.Choice(["leave_out", "merge", "error"]),
        help="Leave small groups out of the comparison, merge them into one, or refuse them.",
    ),
    _option(
        "unknown", "error", type=click.Choice(["error", "ignore"]),
        help="Refuse rows without a group, or leave them out of the comparison.",
    ),
    _option(
        "device", "cpu", type=click.Choice(["cpu", "cuda"]),
        help="Where to compute; cuda needs the extra gpu.",
    ),
    _option(
        "contamination", 0.1, type=str, callback=read_contamination,
        metavar="SHARE|COUNT", help="Share of the rows to flag, up to 0.5, or how many of them.",
    ),
    _option(
        "reference_size", 100_000, type=click.IntRange(2), metavar="ROWS",
        help="Folders: rows that the detectors are fitted on.",
    ),
    _option(
        "random_state", 0, flag="--seed", type=click.IntRange(0, 2**32 - 1), metavar="NUMBER",
        help="Seed of everything random.",
    ),
])  # fmt: skip


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def estimator_options(*names: str) -> Callable[[Command], Command]:
    """Options for some of the ensemble's arguments, by default for all; "groups" stands for those of `Groups`."""
    every = [part for name in names or _OPTIONS for part in (OF_GROUPS if name == "groups" else [name])]
    return _all(*(_OPTIONS[name] for name in every))


sensitive_option = columns_option("--sensitive", help="The protected group; several columns are crossed.")
id_option = click.option(
    "--id", "id_column", metavar="COL", help="Column that tells rows apart.  [default: row number from 1]"
)
score_option = click.option(
    "--score", metavar="COL", help="Repairs: the score.  [default: the column it was learnt from]"
)
new_groups_option = columns_option("--sensitive", help="Models that use the group of new rows: its columns.")
out_option = click.option(
    "--out", type=A_PATH, default=Path("evenout-out"), show_default=True, metavar="DIR",
    help="Folder for the results.",
)  # fmt: skip
column_options = _all(
    columns_option("--drop", help="Columns to leave out."),
    columns_option("--keep", help="Features even if they look like ids."),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
common_options = _all(
    click.option(
        "--n-jobs", type=int, default=-1, show_default=True, metavar="THREADS", callback=_read_threads,
        help="-1: all cores.",
    ),
    click.option("--quiet", is_flag=True, help="Print nothing but notes and errors."),
    json_option,
)  # fmt: skip
finding_options = _all(json_option, click.option("--quiet", is_flag=True, help="Print nothing but the findings."))
engine_options = _all(
    click.option(
        "--engine", type=click.Choice(["local", "dask"]), default="local", show_default=True,
        help="Folders: this process, a file part for each thread, or Dask workers.",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Folders: a Dask scheduler.  [default: this machine]"),
)  # fmt: skip
trust_option = click.option(
    "--trust", multiple=True, metavar="TYPE", callback=read_names,
    help="Load objects of this type from MODEL, such as a detector of another library, which can run code. "
    "Repeatable.",
)  # fmt: skip
reasons_option = _all(
    click.option(
        "--reasons", type=click.IntRange(1, 20), metavar="N",
        help="Add N reasons in words for each row that is flagged, before or after fairness.",
    ),
    click.option("--everybody", is_flag=True, help="With --reasons: for all rows, flagged or not, which takes longer."),
)  # fmt: skip
