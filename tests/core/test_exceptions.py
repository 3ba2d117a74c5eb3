"""One sentence in two tongues: the library's, and that of a reader who names arguments otherwise."""

import ast
import pickle
import warnings
from pathlib import Path

import pytest

import evenout
from evenout import exceptions
from evenout.exceptions import EvenoutWarning, InputError, NoGapWarning, Speech, warn


class Shouted(Speech):
    first_row = 1

    def argument(self, name):
        return name.upper()

    def setting(self, name, value, spec):
        return f"{name.upper()}: {value:{spec}}"


def error():
    return InputError(
        "{where}: {@alpha} and {$other} go with {target='unseen'}, not {alpha=:.2g}, {method=} ({#row}, {text!r})",
        where="a {file}", other="confidence", alpha=0.125, method="own", row=0, text="random_state=1 {x}",
    )  # fmt: skip


def test_each_reader_gets_the_words_of_his_own_and_text_of_a_user_stays_as_it_is():
    assert str(error()) == (
        "a {file}: alpha and confidence go with target='unseen', not alpha=0.12, method='own' "
        "(row 0, 'random_state=1 {x}')"
    )
    assert error().told(Shouted()) == (
        "a {file}: ALPHA and CONFIDENCE go with TARGET: unseen, not ALPHA: 0.12, METHOD: own "
        "(row 1, 'random_state=1 {x}')"
    )


def test_a_message_within_a_message_is_told_to_the_same_reader():
    outer = InputError("{file}: {error}", file="a.csv", error=InputError("{@y} is wrong in {#row}", row=3))
    assert str(outer) == "a.csv: y is wrong in row 3"
    assert outer.told(Shouted()) == "a.csv: Y is wrong in row 4"
    assert str(InputError("{file}: {error}", file="a.csv", error=ValueError("{y}"))) == "a.csv: {y}"


def test_errors_survive_the_way_between_processes():
    copy = pickle.loads(pickle.dumps(error()))
    assert isinstance(copy, InputError)
    assert isinstance(copy, ValueError)
    assert str(copy) == str(error())
    assert copy.told(Shouted()) == error().told(Shouted())


@pytest.mark.parametrize(("category", "kind"), [(NoGapWarning, NoGapWarning), (UserWarning, EvenoutWarning)])
def test_a_warning_from_plain_text_keeps_its_braces(category, kind):
    with pytest.warns(kind) as caught:
        warn("detector {x} says nothing", category)
    assert str(caught[0].message) == "detector {x} says nothing"
    assert type(caught[0].message) is kind


def test_all_warnings_have_one_root():
    public = [kind for name, kind in vars(exceptions).items() if name.endswith("Warning")]
    assert len(public) >= 5
    assert all(issubclass(kind, EvenoutWarning) for kind in public)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvenoutWarning)
        with pytest.raises(NoGapWarning, match="none"):
            warn(NoGapWarning("none"))


def test_no_user_text_can_stand_in_a_template():
    folder = Path(evenout.__file__).parent
    calls = [
        (path.name, node)
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError"
    ]
    assert len(calls) > 30
    formatted = [f"{name}:{node.lineno}" for name, node in calls if not isinstance(node.args[0], ast.Constant)]
    # What stands in these comes from tables and texts of our own.
    ours = {
        "monitor.py",
        "parameters.py",
        "read.py",
        "result.py",
        "rows.py",
        "rules.py",
        "sample.py",
        "settings.py",
        "update.py",
    }
    assert {where.partition(":")[0] for where in formatted} == ours
