"""Names of the stages of long work, for a display of progress. This module must load nothing: the CLI imports it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LISTENER: ContextVar[Callable[[str], object] | None] = ContextVar("listener", default=None)


def stage(name: str) -> None:
    """Report the stage that begins now to the listener, if there is one."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(name)


@contextmanager
def listening(listener: Callable[[str], object]) -> Iterator[None]:
    """Call ``listener`` with the name of each stage of the work inside.

    >>> names = []
    >>> with listening(names.append):
    ...     stage("Fitting detectors")
    >>> stage("not reported")
    >>> names
    ['Fitting detectors']
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
