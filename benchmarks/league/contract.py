"""What a method of the league is: a name, a source, and a function from a task to scores of new rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

from evenout.core.types import FloatArray, IntArray
from league import methods

BASE = "base"  # the setting under which a method shows the detector that it makes fair

Settings = Iterator[tuple[str, FloatArray]]
Scorer = Callable[[FloatArray, FloatArray], FloatArray]  # features to fit on, of the half to learn from, and new ones


@dataclass(frozen=True, eq=False)
class Task:
    """One half to learn from and new rows to score. No label is among it.

    Attributes
    ----------
    X : array of shape (n, d)
    groups : array of int, shape (n,)
        0 to G - 1, each of them there.
    new : array of shape (m, d)
    new_groups : array of int, shape (m,), or None
        None unless the method is marked as one that uses the group when it decides.
    seed : int
    length : float
        Share of the stated length of training; less than 1 in a quick run.
    """

    X: FloatArray
    groups: IntArray
    new: FloatArray
    new_groups: IntArray | None
    seed: int
    length: float = 1.0

    @property
    def n_groups(self) -> int:
        """G."""
        return int(self.groups.max()) + 1

    def steps(self, stated: int) -> int:
        """How many steps to train for where so many are stated."""
        return max(1, round(stated * self.length))


@dataclass(frozen=True)
class Method:
    """One competitor.

    Attributes
    ----------
    name : str
    source : str
        The paper, or where else it comes from.
    scores : function of a Task
        Yields pairs of a setting and the scores of the new rows, shape (m,), higher = more outlying. The first setting
        is ``BASE``: the same detector without its fairness.
    uses_group : bool
        Whether it is given the group of new rows. Such methods are marked in every table.
    ours : bool
    """

    name: str
    source: str
    scores: Callable[[Task], Settings]
    uses_group: bool = False
    ours: bool = False


def find_methods() -> tuple[dict[str, Method], dict[str, str]]:
    """Methods of all files of ``methods/`` by name, ours first; and files that cannot run, with what they need."""
    found: list[Method] = []
    missing = {}
    for module in iter_modules(methods.__path__):
        try:
            found.append(import_module(f"league.methods.{module.name}").METHOD)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "league":
                raise
            missing[module.name] = error.name
    found.sort(key=lambda method: (not method.ours, method.uses_group, method.name.casefold()))
    return {method.name: method for method in found}, missing
