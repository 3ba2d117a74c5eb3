"""What the command line says besides results: errors, notes and progress, all on the error stream."""

import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

import click


class Failure(click.ClickException):
    """One clear line and exit status 2."""

    exit_code = 2


class Step(Protocol):
    """How a command says what it is doing."""

    def __call__(self, description: str, total: int | None = None) -> Callable[[int], None]:
        """Begin a step, maybe of ``total`` parts; the function returned is told how many parts more are done."""


@contextmanager
def plain_messages() -> Iterator[None]:
    """Turn bad input into one line and status 2, and each warning of the library into one line."""
    with warnings.catch_warnings(record=True) as caught, _orderly_end():
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except (ValueError, OSError) as error:
            raise Failure(one_line(_in_options(_words(error)))) from None
        except ImportError as error:  # an optional package, named with how to install it
            raise Failure(one_line(str(error))) from None
        except MemoryError:
            raise Failure("there is not enough memory for this; use fewer rows") from None
        finally:
            notes = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
            for note in dict.fromkeys(notes):
                click.echo(f"Note: {one_line(_in_options(note))}", err=True)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Step]:
    """Show on a terminal what is being done, and for how long; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
    )
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=None)

        def step(description: str, total: int | None = None) -> Callable[[int], None]:
            bar.update(task, description=one_line(description), total=total, completed=0, refresh=True)
            return lambda done: bar.advance(task, done)

        yield step


def one_line(text: str) -> str:
    """Text on one line in which nothing can act on the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


def _words(error: ValueError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _in_options(message: str) -> str:
    """Name the arguments of Python by the options of the command line.

    >>> _in_options("sensitive_features is wrong; set small_groups='merge'")
    '--sensitive is wrong; set --small-groups merge'
    """
    from evenout.estimator import FairOutlierEnsemble

    message = message.replace("sensitive_features", "--sensitive").replace("random_state", "--seed")
    names = [name for name in FairOutlierEnsemble._get_param_names() if "_" in name]
    for name in names:
        option = f"--{name.replace('_', '-')}"
        message = re.sub(rf"\b{name}=(['\"]?)([^\s'\",;:]+)\1", rf"{option} \2", message)
        message = re.sub(rf"\b{name}\b", option, message)
    return message


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Let a request to terminate unwind like Ctrl-C, so that unfinished files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> Any:  # noqa: ARG001
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
