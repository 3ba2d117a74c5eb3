"""Stages of long work, by name, for whoever shows progress; nobody listens by default."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LISTENER: ContextVar[Callable[[str], object] | None] = ContextVar("listener", default=None)


def stage(name: str) -> None:
    """Say what is being done from now on."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(name)


@contextmanager
def listening(listener: Callable[[str], object]) -> Iterator[None]:
    """Hear the stages of the work inside.

    >>> names = []
    >>> with listening(names.append):
    ...     stage("Fitting detectors")
    >>> stage("nobody hears this")
    >>> names
    ['Fitting detectors']
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
