"""What the page computes is what the command line computes, and what the Python code computes."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from click.testing import CliRunner

from evenout.app.ways import WAYS
from evenout.cli import main

DATE = re.compile(rb"20\d\d-\d\d-\d\d \d\d:\d\d")
AUDIT = pytest.param("audit", {"share": "15", "tables": "hiring"}, {"age": "out"}, id="audit")
WAYS_AND_CHOICES = [
    AUDIT,
    pytest.param("audit", {"features": "yes"}, {"home": "given"}, id="audit-more", marks=pytest.mark.long),
    pytest.param("fit", {"evenness": "70"}, {"title": "out"}, id="fit", marks=pytest.mark.long),
    pytest.param(
        "fit", {"measure": "flags", "count": "30", "reasons": "3"}, {"title": "out"}, id="fit-flags",
        marks=pytest.mark.long,
    ),
    pytest.param("repair", {}, {"title": "out"}, id="repair", marks=pytest.mark.long),
    pytest.param("repair", {"aware": "yes"}, {"title": "out", "age": "out"}, id="repair-aware", marks=pytest.mark.long),
]  # fmt: skip


def give_roles(page, place, roles):
    text = page.ask(place)[2]
    fields = {name: field for field, name in re.findall(r'name="(role-\d+)"[^>]*data-test="role-([^"]*)"', text)}
    sent = {fields[name]: role for name, role in roles.items()}
    assert page.ask(f"{place}/columns", sent)[0] == 303


def run_in(folder, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr


def check_same(page, result, way, folder):
    """Results against those of the command, byte for byte, and against those of the Python code."""
    run_in(folder, "-m", *shlex.split(page.ask(f"{result}/file/command.sh")[2]))
    for name in WAYS[way].results:
        status, _, content = page.raw(f"{result}/file/{name}")
        assert status == 200
        assert DATE.sub(b"", content) == DATE.sub(b"", (folder / "results" / name).read_bytes()), name
    (folder / "command.py").write_text(page.ask(f"{result}/file/command.py")[2])
    run_in(folder, "command.py")
    table = next(name for name in WAYS[way].results if name.endswith(".csv"))
    again, told = (pd.read_csv(folder / name, dtype={"id": str}) for name in ("again.csv", f"results/{table}"))
    pd.testing.assert_frame_equal(told[again.columns], again, check_exact=True)


@pytest.mark.parametrize(("way", "settings", "roles"), WAYS_AND_CHOICES)
def test_files_equal_those_of_the_command_and_of_the_code(page, people, tmp_path, way, settings, roles):
    shutil.copy(people / "people.csv", tmp_path)
    place, text = page.bring("people.csv", (people / "people.csv").read_bytes())
    give_roles(page, place, roles)
    result, text = page.run(place, way, **settings)
    assert "Take with you" in text, text
    stages_are_those_planned(page, way, settings)
    check_same(page, result, way, tmp_path)


def stages_are_those_planned(page, way, settings):
    """The bar counts stages that come, in their order, and no others."""
    notes = max(page.folder.glob("*/r-*-notes/stages"), key=lambda path: path.stat().st_mtime_ns)
    said = [json.loads(line)["stage"] for line in notes.read_text().splitlines() if "stage" in line]
    planned = [stage for stage in WAYS[way].stages if stage != "Finding reasons" or settings.get("reasons")]
    places = [next(at for at, start in enumerate(planned) if name.startswith(start)) for name in said]
    assert places == sorted(places)
    assert set(places) == set(range(len(planned)))


@pytest.mark.long
def test_a_model_goes_from_a_fit_to_new_rows(page, people, tmp_path):
    place, _ = page.bring("people.csv", (people / "people.csv").read_bytes())
    give_roles(page, place, {"title": "out"})
    fitted, _ = page.run(place, "fit")
    person = pd.read_csv(people / "people.csv")["person"][3]
    told = json.loads(page.ask(f"{fitted}/why", {"person": person})[2])
    assert told["text"].startswith(person)
    assert "is unknown" in json.loads(page.ask(f"{fitted}/why", {"person": "nobody"})[2])["error"]
    model = page.raw(f"{fitted}/file/model.skops")[2]
    (tmp_path / "model.skops").write_bytes(model)
    new = pd.read_csv(people / "people.csv").drop(columns=["sex", "risk", "fraud"]).iloc[:60]
    new.to_csv(tmp_path / "new.csv", index=False)
    place, _ = page.bring("new.csv", (tmp_path / "new.csv").read_bytes())
    assert page.upload("m.skops", b"no model", "model", f"{place}/model?way=score")[0] == 303
    assert "was not loaded" in page.run(place, "score")[1]
    assert page.upload("m.skops", model, "model", f"{place}/model?way=score")[0] == 303
    scored, text = page.run(place, "score", reasons="3")
    assert "Scores of the new rows" in text
    stages_are_those_planned(page, "score", {"reasons": "3"})
    check_same(page, scored, "score", tmp_path)
    planned, text = page.run(place, "plan", budget="20")
    assert "Whom to look into" in text
    stages_are_those_planned(page, "plan", {})
    check_same(page, planned, "plan", tmp_path)


BAD = {
    "empty.csv": (b"", "empty.csv is empty"),
    "picture.csv": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), "picture.csv holds binary data, not text"),
    "wrong.csv": ("a,sex\nä,f\n".encode() + b"\xff\xfe\n", "is not UTF-8"),
    "utf16.csv": ("a,sex\n1,f\n".encode("utf-16"), "is in UTF-16; save the file as UTF-8"),
    "head.csv": (b"a,b\n", "has a header, but no rows"),
    "ragged.csv": (b"a,b\n1,2\n1,2,3\n", "line 3: 3 fields, but the header has 2"),
    "damaged.parquet": (b"PAR1" + b"\0" * 50, "is no Parquet file, or a damaged one"),
    "wide.csv": (
        ",".join(map(str, range(400_000))).encode() + b"\n",
        "has 400,000 columns; at most 1,000 can be shown",
    ),
}


@pytest.mark.parametrize(
    "name",
    [name if name == "picture.csv" else pytest.param(name, marks=pytest.mark.long) for name in BAD],
)
def test_bad_files_get_the_line_of_the_command_line(page, tmp_path, monkeypatch, name):
    content, line = BAD[name]
    _, text = page.bring(name, content)
    assert line in text
    assert "Bring a table" in text
    if name != "wide.csv":  # many columns are no fault on the command line
        (tmp_path / name).write_bytes(content)
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(main, ["audit", name, "--score", "a", "--sensitive", "sex"])
        assert line in done.stderr


@pytest.mark.long
def test_a_million_columns_get_a_line(tmp_path, serve):
    with serve(tmp_path / "own" if (tmp_path / "own").mkdir() is None else None) as page:
        _, text = page.bring("wide.csv", ",".join(map(str, range(10**6))).encode() + b"\n")
    assert "has 1,000,000 columns" in text


def test_a_crash_leaves_the_page_alive(page, people):
    place, _ = page.bring("people.csv", (people / "people.csv").read_bytes())
    headers = page.ask(f"{place}/run", {"way": "audit"})[1]
    result = headers["Location"].removeprefix(page.root)
    children = ""
    while not children:
        found = subprocess.run(["pgrep", "-P", str(page.process.pid)], capture_output=True, text=True, check=False)
        children = found.stdout
    for child in children.split():
        os.kill(int(child), 9)
    text = page.settled(result)
    assert "was ended from outside" in text
    assert page.ask("/")[0] == 200
