"""Errors and warnings whose messages know their arguments, `warn`, and the import of optional packages.

The library says ``random_state=-1`` and ``row 0`` where the command line says ``--seed -1`` and ``row 1``.
Both sentences come from one template and its fields; see `Message`.
"""

import sys
import warnings
from ast import literal_eval
from importlib import import_module
from string import Formatter
from typing import Any

_INSIDE = ("evenout", "sklearn", "joblib")
_OF_GROUPS = ("continuous", "bands", "cross", "min_size", "small", "unknown")


class Speech:
    """Names of arguments and numbers of rows as in Python; the command line has another one."""

    first_row = 0

    def argument(self, name: str) -> str:
        """Name an argument."""
        return f"groups=Groups({name}=...)" if name in _OF_GROUPS else name

    def setting(self, name: str, value: Any, spec: str) -> str:
        """Write an argument with a value."""
        setting = f"{name}={format(value, spec) if spec else repr(value)}"
        return f"groups=Groups({setting})" if name in _OF_GROUPS else setting

    def leave_out(self, column: str) -> str:
        """Say how to leave out a column of a table."""
        return f"leave it out: drop(columns=[{column!r}])"


class Message:
    """A sentence with arguments and rows as fields, worded for Python or for the command line.

    Parameters
    ----------
    template : str
        ``{name}`` stands for a field, as in `str.format`. ``{@name}`` is an argument, and ``{$name}`` the argument
        that the field names. ``{name=}`` is an argument with its value from the fields, and ``{name='merge'}`` one
        with the value that stands there. ``{#name}`` is a row, which the fields count from 0, and ``{-name}`` says how
        the column that the field names is left out.
    **fields : object
        Values, other messages, and every text that comes from a user, which no template may hold.

    >>> str(Message("{$where} has {n=} and no {text!r} ({#row}); set {pairs='all'}", where="X", n=3, text="{a}", row=0))
    "X has n=3 and no '{a}' (row 0); set pairs='all'"
    """

    def __init__(self, template: str = "", /, **fields: Any) -> None:
        self.template, self.fields = template, fields

    def __str__(self) -> str:
        return self.told(Speech())

    def told(self, speech: Speech) -> str:
        """The sentence in the words of ``speech``."""
        return "".join(
            text if name is None else text + self._word(name, spec or "", conversion, speech)
            for text, name, spec, conversion in Formatter().parse(self.template)
        )

    def _word(self, field: str, spec: str, conversion: str | None, speech: Speech) -> str:
        name, sets, literal = field.partition("=")
        if sets:
            return speech.setting(name, literal_eval(literal) if literal else self.fields[name], spec)
        match name[0]:
            case "@":
                return speech.argument(name[1:])
            case "$":
                return speech.argument(self.fields[name[1:]])
            case "-":
                return speech.leave_out(str(self.fields[name[1:]]))
            case "#":
                return f"row {self.fields[name[1:]] + speech.first_row}"
        value = self.fields[name]
        return value.told(speech) if isinstance(value, Message) else format(repr(value) if conversion else value, spec)


class InputError(Message, ValueError):
    """Input cannot be used; the message says what, where and what to do."""


class EvenoutWarning(Message, UserWarning):
    """Base class of all warnings of this package; each kind can be caught or silenced separately."""


class NoGapWarning(EvenoutWarning):
    """The group gap of the base score is within sampling noise: there is nothing to remove."""


class TargetNotReachedWarning(EvenoutWarning):
    """The request is not reached; the message says how far it is, at which price, and how to reach more."""


class UnknownOutcomeWarning(EvenoutWarning):
    """The outcome cannot be known from these data, however many rows there are; the message says why."""


class SmallGroupWarning(EvenoutWarning):
    """Groups with too few rows to be measured are left out of the comparison."""


class FewPairsWarning(EvenoutWarning):
    """Individual fairness rests on few pairs of similar rows."""


class ProxyWarning(EvenoutWarning):
    """The features determine the group of nearly every row: to use them is to use the group."""


class ManyColumnsWarning(EvenoutWarning):
    """There are more detectors than rows to learn their weights from, so that weights are shrunk."""


class ConstantScoreWarning(EvenoutWarning):
    """A detector gives every training row the same score, so it takes no part in the ensemble."""


class LabelCoverageWarning(EvenoutWarning):
    """Only rows with high scores have labels: they say nothing about the others."""


class BiasedLabelsWarning(EvenoutWarning):
    """Learning from labels has raised the gap between groups."""


class GroupGivenAwayWarning(EvenoutWarning):
    """Some features nearly determine the protected group."""


class ContinuousWarning(EvenoutWarning):
    """A protected column has many numbers: fractions are continuous, each whole number is a group."""


class AttributeWarning(EvenoutWarning):
    """Attributes conflict, or several columns look like one attribute."""


class AgedDetectorsWarning(EvenoutWarning):
    """Scores of new rows are distributed unlike those of the fit: the detectors should be refitted."""


class DriftWarning(EvenoutWarning):
    """The latest rows of a group differ from the earlier ones: an update has followed them."""


class UnknownCategoryWarning(EvenoutWarning):
    """A new table has text values that the training table did not have."""


class ConstantFeatureWarning(EvenoutWarning):
    """A column of X holds one value in all training rows, so it is dropped."""


def warn(message: EvenoutWarning | str, category: type[Warning] = EvenoutWarning) -> None:
    """Warn at the line of the user's code: the first frame outside this package, scikit-learn and joblib."""
    level, frame = 2, sys._getframe(1)  # 1 would be this function, 2 is its caller
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    if isinstance(message, str):
        message = (category if issubclass(category, EvenoutWarning) else EvenoutWarning)("{text}", text=message)
    warnings.warn(message, stacklevel=level)


def from_extra(module: str, extra: str, user: str) -> Any:
    """Import a module that an extra installs; if it is missing, one line says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{user} needs the extra {extra}: pip install 'evenout[{extra}]'") from error
