"""Errors, notes and progress, all on the error stream; and the group of commands, which ends in one line on errors."""

import json
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, Protocol

import click

from evenout.core.stages import listening
from evenout.exceptions import Message, Speech

STAGES = "EVENOUT_STAGES"  # environment variable
_TERMINATED = 128 + signal.SIGTERM  # exit status
_MOMENT = 0.05  # seconds
_PATIENCE = 2.0  # seconds before progress is shown
_LONGEST = 1000  # characters of a line; names of files and columns may have any number


class Failure(click.ClickException):
    """One clear line and exit status 2."""

    exit_code = 2


class Commands(click.Group):
    """Commands in the order of their definition, whose wrong options end in one line instead of a usage summary."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """See `click.Group.list_commands`."""
        return [*self.commands]

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        """See `click.Command.make_context`."""
        with _plain_usage():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """See `click.Group.invoke`, which reads the options of the command that is called."""
        with _plain_usage():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group.resolve_command`; an option that takes one value must not be given twice."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            own = click.Context(command, info_name=name, parent=ctx, resilient_parsing=ctx.resilient_parsing)
            given = command.make_parser(own).parse_args([*rest])[2]
            for option in () if ctx.resilient_parsing else given:
                single = isinstance(option, click.Option) and not (option.multiple or option.is_flag)
                if single and given.count(option) > 1:
                    raise click.UsageError(f"{option.opts[0]} is given more than once; give it once", own)
        return name, command, rest


class Announce(Protocol):
    """A function by which a command says what it is doing."""

    def __call__(self, description: str, total: int | None = None) -> Callable[[int], object]:
        """Begin a step, maybe of ``total`` parts; the function returned is told how many parts more are done."""


@contextmanager
def plain_messages() -> Iterator[list[warnings.WarningMessage]]:
    """Turn bad input into one line and status 2, and each warning into one line; yield the warnings so far."""
    with warnings.catch_warnings(record=True) as caught, _orderly_end():
        warnings.simplefilter("always", UserWarning)
        try:
            yield caught
        except (ValueError, OSError, ImportError) as error:  # the last: an optional package, and how to install it
            raise Failure(one_line(_words(error))) from None
        except MemoryError:
            raise Failure("there is not enough memory for this; use fewer rows") from None
        finally:
            for note in dict.fromkeys(_words(w.message) for w in caught if issubclass(w.category, UserWarning)):
                click.echo(f"Note: {one_line(note)}", err=True)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Announce]:
    """Show on a terminal what is being done, stage by stage, from two seconds on; nothing elsewhere.

    A program that runs the command reads the stages instead, as JSON lines in the file named by `STAGES`.
    """
    if os.environ.get(STAGES):
        with open(os.environ[STAGES], "a", encoding="utf-8", buffering=1) as file:  # noqa: PTH123  # line by line
            step = _announce(
                lambda stage, total: file.write(json.dumps({"stage": stage, "total": total}) + "\n"),
                lambda done: file.write(json.dumps({"done": done}) + "\n"),
            )
            with listening(step):
                yield step
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:  # rich before 14.3 prints a blank line even when disabled
        yield _announce(lambda *_: None, lambda _: None)
        return
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
    task = bar.add_task("", total=None)
    step = _announce(
        lambda stage, total: bar.update(task, description=stage, total=total, completed=0, refresh=True),
        lambda done: bar.advance(task, done),
    )
    patience = threading.Timer(_PATIENCE, bar.start)
    patience.daemon = True
    patience.start()
    try:
        with listening(step):
            yield step
    finally:
        patience.cancel()
        patience.join()  # a bar that is just being started is stopped after that
        bar.stop()


def _announce(begin: Callable[[str, int | None], object], advance: Callable[[int], object]) -> Announce:
    """Announce steps by two functions: of a stage and its number of parts, and of how many parts more are done."""

    def step(description: str, total: int | None = None) -> Callable[[int], object]:
        begin(one_line(description), total)
        return advance

    return step


def one_line(text: str) -> str:
    """Text on one line, of a length that can be read, in which nothing can act on the terminal."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


@contextmanager
def _plain_usage() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            raise  # the help itself
        if isinstance(error, click.NoSuchOption) and _renamed(error.option_name):
            raise Failure(f"{error.option_name} is {_renamed(error.option_name)} since 0.3") from None
        words = re.sub(r"a valid float( range)?", "a number", error.format_message().rstrip("."))
        words = re.sub(r"a valid integer( range)?", "a whole number", words)
        if error.ctx:
            words += f"{' See' if words.endswith(('?', '?)')) else '; see'} {error.ctx.command_path} --help"
        raise Failure(one_line(words)) from None


def _renamed(option: str) -> str:
    """The option that has taken the place of an old one, or nothing.

    >>> _renamed("--min-group-size"), _renamed("--method"), _renamed("--colour")
    ('--min-size', '--correction published', '')
    """
    from evenout.tables.parameters import RENAMED

    new = RENAMED.get(option.removeprefix("--").replace("-", "_"), "")
    name, _, value = re.sub(r"\w+=\w+\((\w+)=...\)", r"\1", new).partition("=")
    return f"--{name.replace('_', '-')} {value.replace(chr(34), '')}".strip() if name else ""


def _words(said: Exception | str) -> str:
    if isinstance(said, OSError) and said.strerror:
        where = said.filename or "reading or writing failed"
        return f"{where}: {said.strerror}; check the path, its permissions and the space on the disk"
    return said.told(_Options()) if isinstance(said, Message) else str(said)


class _Options(Speech):
    """Arguments are options, and rows are counted from 1.

    >>> Message("{@labels} and {n_jobs=} in {#row}", n_jobs=2, row=0).told(_Options())
    '--label and --n-jobs 2 in row 1'
    """

    first_row = 1
    names: ClassVar = {
        "sensitive_features": "sensitive", "random_state": "seed", "scores": "score", "X": "features",
        "labels": "label", "trusted": "trust", "flags": "flagged",
    }  # fmt: skip

    def argument(self, name: str) -> str:
        return f"--{self.names.get(name, name).replace('_', '-')}"

    def leave_out(self, column: str) -> str:
        return f"leave it out: --drop {shlex.quote(column)}"

    def setting(self, name: str, value: Any, spec: str) -> str:
        if isinstance(value, bool):
            value = "yes" if value else "no"
        if isinstance(value, list | tuple):  # columns, or a length scale
            value = ("," if isinstance(value, list) else ":").join(map(str, value))
        return f"{self.argument(name)} {value:{spec}}"


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Let a request to terminate unwind like Ctrl-C, so that unfinished files are removed.

    Either is an exception in whatever runs just then. If that was called by compiled code, such as a compiler's, no
    exception gets out of it: then the request is made again, a moment later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    asked: list[BaseException] = []

    def catch(lost: Any) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt) and getattr(lost.exc_value, "code", None) != _TERMINATED:
            told(lost)
            return
        asked.append(lost.exc_value)
        signal.signal(signal.SIGALRM, remind)
        signal.setitimer(signal.ITIMER_REAL, _MOMENT, _MOMENT)

    def remind(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if asked and (frame is None or frame.f_code is not catch.__code__):  # there it would be lost again
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            raise asked.pop()

    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    told = sys.unraisablehook
    sys.unraisablehook = catch
    try:
        yield
    finally:
        if asked:  # too late
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGTERM, before)
        sys.unraisablehook = told
