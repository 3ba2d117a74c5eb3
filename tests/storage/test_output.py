"""Results appear whole or not at all, and text in them is inert."""

import csv
import re
import stat

import numpy as np
import pandas as pd
import pytest

from evenout.storage.output import atomic_file, atomic_folder, inert, write_table

HOSTILE = [
    "=1+1",
    "+x",
    "-x",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "'=1",
    "''-x",
    'say "hi"\r\nnow',
    "a,b",
    "plain",
]


def write_some(place, failure):
    """Write one result into a folder or a file, and fail before it is finished."""
    with place as out:
        (out / "a.txt" if out.is_dir() else out).write_text("new")
        raise failure


def undo(text: str) -> str:
    return re.sub(r"^'('*[=+\-@\t\r\n])", r"\1", text)


def test_atomic_folder_appears_in_one_step_with_usual_permissions(tmp_path):
    out = tmp_path / "new" / "deep" / "out"
    with atomic_folder(out) as folder:
        (folder / "a.txt").write_text("a")
        assert not out.exists()
    assert (out / "a.txt").read_text() == "a"
    (tmp_path / "plain").mkdir()
    assert stat.S_IMODE(out.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "plain"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_atomic_folder_leaves_everything_as_it_was_on_failure(tmp_path, failure):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("old")
    for out in (tmp_path / "out", tmp_path / "x" / "y"):
        with pytest.raises(failure):
            write_some(atomic_folder(out), failure)
    assert [p.relative_to(tmp_path).as_posix() for p in sorted(tmp_path.rglob("*"))] == ["out", "out/a.txt"]
    assert (tmp_path / "out" / "a.txt").read_text() == "old"


def test_atomic_folder_replaces_its_files_and_keeps_others(tmp_path):
    for name in ("mine.txt", "a.txt"):
        (tmp_path / name).write_text("old")
    with atomic_folder(tmp_path) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "b.txt").write_text("b")
        (folder / "a.txt").write_text("new")
    contents = {p.name: p.read_text() for p in tmp_path.rglob("*") if p.is_file()}
    assert contents == {"mine.txt": "old", "a.txt": "new", "b.txt": "b"}


def test_atomic_folder_removes_parts_of_an_earlier_result(tmp_path):
    for name in ("part-1.txt", "part-2.txt", "mine.txt"):
        (tmp_path / name).write_text("old")
    with atomic_folder(tmp_path, stale="part-*.txt") as folder:
        (folder / "part-1.txt").write_text("new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"part-1.txt": "new", "mine.txt": "old"}


@pytest.mark.parametrize(
    ("taken", "fault"), [("z.txt/", r"z\.txt is a folder where a result"), ("b", "b is a file where results")]
)
def test_atomic_folder_moves_nothing_if_something_stands_in_the_way(tmp_path, taken, fault):
    out = tmp_path / "out"
    out.mkdir()
    (out / taken).mkdir() if taken.endswith("/") else (out / taken).write_text("mine")
    with pytest.raises(ValueError, match=fault), atomic_folder(out) as folder:
        [_write(folder / name) for name in ("a.txt", "b/c.txt", "z.txt")]
    assert [path.name for path in out.iterdir()] == [taken.rstrip("/")]


def _write(path):
    path.parent.mkdir(exist_ok=True)
    path.write_text("new")


def test_atomic_folder_and_file_refuse_what_is_of_the_other_kind(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file, not a folder"), atomic_folder(tmp_path / "file"):
        pass
    with pytest.raises(ValueError, match="is a folder, not a file"), atomic_file(tmp_path):
        pass


def test_atomic_file_replaces_in_one_step_or_not_at_all(tmp_path):
    out = tmp_path / "sub" / "a.txt"
    with pytest.raises(RuntimeError):
        write_some(atomic_file(out), RuntimeError)
    assert list(tmp_path.iterdir()) == []
    with atomic_file(out) as file:
        file.write_text("whole")
    assert out.read_text() == "whole"
    assert [p.name for p in tmp_path.iterdir()] == ["sub"]


@pytest.mark.parametrize("text", HOSTILE)
def test_inert_text_begins_no_formula_and_can_be_undone(text):
    assert inert(text)[0] not in "=+-@\t\r\n"
    assert undo(inert(text)) == text


@pytest.mark.parametrize("text", ["-5", "+3.25", "-.5e-10", "7", ""])
def test_inert_leaves_numbers_alone(text):
    assert inert(text) == undo(text) == text


def test_write_table_makes_cells_and_headers_inert_and_keeps_numbers(tmp_path):
    frame = pd.DataFrame({"=head": HOSTILE, "x": -np.geomspace(1e-17, 1 / 3, len(HOSTILE)), "n": range(len(HOSTILE))})
    write_table(frame, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["'=head", "x", "n"]
    assert [undo(row[0]) for row in rows[1:]] == HOSTILE
    assert all(row[0][0] not in "=+-@\t\r\n" for row in rows)
    assert [float(row[1]) for row in rows[1:]] == frame["x"].tolist()
    assert (tmp_path / "a.csv").read_text().splitlines()[1].endswith(",-1e-17,0")


def test_write_table_writes_missing_text_as_nothing(tmp_path):
    write_table(pd.DataFrame({"a": ["x", None], "b": [1, 2]}), tmp_path / "a.csv")
    assert pd.read_csv(tmp_path / "a.csv")["a"].isna().tolist() == [False, True]
