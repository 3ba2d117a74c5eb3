"""Options: one for every argument of the ensemble, and the reading of those that are more than a word or a number."""

import math
from collections.abc import Callable, Sequence
from functools import reduce, wraps
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import click

from evenout.core.base_score import COMBINATIONS, SCALINGS
from evenout.core.individual import Individual, LengthScale
from evenout.core.pairwise import METHODS
from evenout.core.registry import NOTIONS
from evenout.detectors.pool import POOLS
from evenout.estimator import FairOutlierEnsemble
from evenout.fitting.settings import CORRECTIONS
from evenout.groups.rules import Groups

Command = TypeVar("Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """A number in a range; click lets "nan" and "inf" pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.FloatRange.convert`."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a number.", param, ctx)
        return found


class NonEmptyPath(click.Path):
    """A path; an empty one, such as a shell makes of an unset variable, would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.Path.convert`."""
        if value == "":
            self.fail("it is empty.", param, ctx)
        return super().convert(value, param, ctx)


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


_OF_GROUPS = tuple(signature(Groups).parameters)
_DEFAULTS = {
    name: parameter.default
    for takes in (FairOutlierEnsemble, Groups, Individual)
    for name, parameter in signature(takes).parameters.items()
}
_SHARE = FiniteRange(0, 1)
_POSITIVE_SHARE = FiniteRange(0, 1, min_open=True)


def read_fairness(ctx: click.Context, param: click.Parameter, value: str) -> str | dict[str, float]:
    """A notion, or several with weights: ``demographic_parity=1,individual=2``."""
    parts = [part.partition("=") for part in split_names([value])]
    if any(name not in NOTIONS for name, _, _ in parts):
        raise click.BadParameter(f"{value!r} is not {' or '.join(NOTIONS)}, or several with weights.", ctx, param)
    if len(parts) == 1 and not parts[0][1]:
        return parts[0][0]
    try:
        return {name: float(weight or 1) for name, _, weight in parts}
    except ValueError:
        raise click.BadParameter(f"{value!r} has a weight that is no number.", ctx, param) from None


def read_length_scale(ctx: click.Context, param: click.Parameter, value: str) -> LengthScale:
    """``minmax``, a number, or ``median:FACTOR``."""
    if value == "minmax":
        return "minmax"
    word, _, factor = value.rpartition(":")
    try:
        return ("median", float(factor)) if word == "median" else float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not minmax, a number, or median:FACTOR.", ctx, param) from None


_CROSS: dict[str, bool | str] = {"yes": True, "no": False, "both": "both"}


def split_names(given: Sequence[str], columns: Sequence[str] = ()) -> list[str]:
    """Split lists of names at commas, spaces around them removed, and join the lists; each name once.

    A text that is itself one of the columns is one name, commas included.

    >>> split_names(["sex, age", "job", "sex"]), split_names(["name, first"], ["name, first"])
    (['sex', 'age', 'job'], ['name, first'])
    """
    names: list[str] = []
    for text in given:
        whole = text in columns
        names += [text] if whole else [part if part in columns else part.strip() for part in text.split(",")]
    return [*dict.fromkeys(filter(None, names))]


def read_names(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG001
    """Names where the columns of the file are not known yet."""
    return tuple(split_names(value))


def columns_option(flag: str, help: str, **settings: Any) -> Callable[[Command], Command]:  # noqa: A002
    """An option that takes columns: separated by commas, and repeatable."""
    return click.option(flag, multiple=True, metavar="COL[,COL...]", help=help, **settings)


def read_contamination(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """A whole number of rows, or a share of them."""
    if value.isdecimal() and int(value) >= 1:
        return int(value)
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not 0 < share <= 0.5:
        words = f"{value} is neither a share above 0 and at most 0.5 nor a count of rows."
        raise click.BadParameter(words, ctx, param)
    return share


def _threads(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if value == 0:
        raise click.BadParameter("0 is no number of threads; give 1 or more, or -1 for all cores.", ctx, param)
    return value


def _option(name: str, flag: str | None = None, **settings: Any) -> tuple[str, Callable[[Command], Command]]:
    """An option for the argument ``name``, with its default."""
    settings = {"default": _DEFAULTS[name], "show_default": _DEFAULTS[name] is not None} | settings
    return name, click.option(flag or f"--{name.replace('_', '-')}", name, **settings)


_OPTIONS = dict([
    _option(
        "bias_reduction", type=_SHARE, metavar="SHARE",
        help="Remove this share of the bias between groups.  [default: 0.8]",
    ),
    _option(
        "flag_rate_ratio", type=_POSITIVE_SHARE, metavar="RATIO",
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
        "judged_on", type=click.Choice(["unseen", "training"]),
        help="The rows on which the request is meant.",
    ),
    _option(
        "fairness", callback=read_fairness, metavar="NOTION",
        help=f"What is made fair: {'; '.join(f'{name}, {notion.option}' for name, notion in NOTIONS.items())}. "
        "Several by weight: demographic_parity=1,individual=1.",
    ),
    _option(
        "length_scale", callback=read_length_scale, metavar="SCALE",
        default=":".join(map(str, _DEFAULTS["length_scale"])),
        help="Individual fairness: the distance at which rows stop being similar; a multiple of the median distance, "
        "a number, or minmax (the paper).",
    ),
    _option(
        "pairs", type=click.Choice(METHODS),
        help="Individual fairness: all pairs of rows, or a sample with a stated error; auto samples beyond 5e9 pairs.",
    ),
    _option(
        "detectors", type=click.Choice(POOLS),
        help="LOF, neighbour distances and isolation forests (paper); these and each feature's tails (diverse); "
        "forest, distances, local density and tails, each with the same say (default); "
        "or the columns of the file are scores already (precomputed).",
    ),
    _option(
        "standardize", "--standardize/--no-standardize",
        help="Measure features in their own spreads, so that no unit matters, or as they are (the paper).",
    ),
    _option(
        "learn", is_flag=True,
        help="Let the base score learn from --label, gaps allowed; labels that say nothing hardly change it.",
    ),
    _option(
        "combination", type=click.Choice(COMBINATIONS),
        help="The base ensemble that the fair score stays close to.",
    ),
    _option(
        "scaling", type=click.Choice(SCALINGS),
        help="How the detectors' scores become comparable.",
    ),
    _option(
        "weighting", type=click.Choice(["rank", "uniform"]),
        help="Stay closest to the base score where it is high, or everywhere alike.",
    ),
    _option(
        "correction", type=click.Choice(CORRECTIONS),
        help="Correct the base score by how much each detector counts (weights: any; nonnegative: at least 0; simplex: "
        "and of a fixed sum), by how much a row looks like each group (resemblance: the smallest change; may count as "
        "use of the group), by both, or mix detectors anew (published: the paper's problem).",
    ),
    _option(
        "continuous", callback=read_names, multiple=True, show_default=False, metavar="COL[,COL...]",
        help="Protected columns that are numbers, such as age: overlapping bands at quantiles are compared.",
    ),
    _option(
        "bands", type=click.IntRange(2), metavar="NUMBER",
        help="Bands of a continuous column.",
    ),
    _option(
        "cross", type=click.Choice([*_CROSS]), default="yes", callback=lambda _, __, word: _CROSS[word],
        help="Several protected columns: cross them, take each by itself (no), or both.",
    ),
    _option(
        "min_size", type=click.IntRange(2), metavar="ROWS",
        help="Groups with fewer rows are small.",
    ),
    _option(
        "small", type=click.Choice(["leave_out", "merge", "error"]),
        help="Leave small groups out of the comparison, merge them into one, or refuse them.",
    ),
    _option(
        "unknown", type=click.Choice(["error", "ignore"]),
        help="Refuse rows without a group, or leave them out of the comparison.",
    ),
    _option(
        "device", type=click.Choice(["cpu", "cuda"]),
        help="Where to compute; cuda needs the extra gpu.",
    ),
    _option(
        "contamination", type=str, callback=read_contamination,
        metavar="SHARE|COUNT", help="Share of the rows to flag, up to 0.5, or how many of them.",
    ),
    _option(
        "reference_size", type=click.IntRange(2), metavar="ROWS",
        help="Folders: rows that the detectors are fitted on.",
    ),
    _option(
        "random_state", "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
        metavar="NUMBER", help="Seed of everything random.",
    ),
])  # fmt: skip


def estimator_options(*names: str) -> Callable[[Command], Command]:
    """Options for some of the ensemble's arguments, by default all; the command gets them as the ensemble takes them.

    "groups" stands for all options of `Groups`.
    """
    every = [part for name in names or _OPTIONS for part in (_OF_GROUPS if name == "groups" else [name])]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def gathered(*args: Any, **options: Any) -> Any:
            rules = {name: options.pop(name) for name in every if name in _OF_GROUPS}
            options |= {"groups": Groups(**rules)} if rules else {}
            if "pairs" in every:
                notion, asked = Individual(options.pop("length_scale"), options.pop("pairs")), options["fairness"]
                if isinstance(asked, dict):
                    asked = {notion if name == notion.name else name: weight for name, weight in asked.items()}
                options["fairness"] = notion if asked == notion.name else asked
            return command(*args, **options)

        for name in reversed(every):
            gathered = _OPTIONS[name](gathered)
        return gathered  # type: ignore[return-value]  # of the same name and options, but for those that are gathered

    return decorate


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


sensitive_option = columns_option("--sensitive", help="The protected group; several columns are crossed.")
id_option = click.option(
    "--id", "id_column", metavar="COL", help="Column that tells rows apart.  [default: row number from 1]"
)
score_option = click.option(
    "--score", metavar="COL", help="Repairs: the score.  [default: the column it was learnt from]"
)
new_groups_option = columns_option("--sensitive", help="Models that use the group of new rows: its columns.")
out_option = click.option(
    "--out", type=NonEmptyPath(), default=Path("evenout-out"), show_default=True, metavar="DIR",
    help="Folder for the results.",
)  # fmt: skip
column_options = _all(
    columns_option("--drop", help="Columns to leave out."),
    columns_option("--keep", help="Features even if they look like ids."),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
common_options = _all(
    click.option(
        "--n-jobs", type=int, default=-1, show_default=True, metavar="THREADS", callback=_threads,
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
