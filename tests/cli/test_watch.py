"""``evenout watch``: the same as in Python, batch after batch, with an exit status for the alarm."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from evenout import FairnessMonitor, FairOutlierEnsemble
from evenout.cli import main
from evenout.persistence import save_model

COLUMNS = ("--score", "risk", "--sensitive", "sex,age")


def week(seed, gap=0.0, n=300):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "age": rng.choice(["1", "2"], n)})
    return frame.assign(risk=rng.normal(size=n) + gap * (frame["sex"] == "f"))


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "batches"
    folder.mkdir()
    for i in range(6):
        week(i).to_csv(folder / f"w{i}.csv", index=False)
    return folder


def run(*arguments):
    return CliRunner().invoke(main, ["watch", *map(str, arguments)])


def test_a_folder_is_counted_as_in_python(folder, tmp_path):
    state, out = tmp_path / "state.skops", tmp_path / "history.csv"
    result = run(folder, "--state", state, *COLUMNS, "--out", out)
    assert result.exit_code == 0, result.output
    expected = FairnessMonitor()
    for i in range(6):
        frame = week(i)
        expected.update(frame["risk"], sensitive_features=frame[["sex", "age"]], batch=f"w{i}.csv")
    assert result.output == f"{expected!r}\n"
    assert FairnessMonitor.load(state).batches == expected.batches
    assert len(pd.read_csv(out)) == 5 * 4


def test_running_again_counts_new_files_alone_and_an_alarm_has_a_status(folder, tmp_path):
    state = tmp_path / "state.skops"
    assert run(folder, "--state", state, *COLUMNS).exit_code == 0
    before = state.read_bytes()
    assert run(folder, "--state", state, *COLUMNS).exit_code == 0
    assert state.read_bytes() == before
    for i in range(6, 16):
        week(i, gap=1.0).to_parquet(folder / f"x{i:02d}.parquet")
    result = run(folder, "--state", state, *COLUMNS, "--json")
    assert result.exit_code == 3
    found = json.loads(result.output)
    assert found["alarm"] is True
    assert found["batches"] == 15
    assert found["alarms"][0]["promise"] == "ranks"
    said = run("--state", state, "--quiet").output
    assert said.startswith("ALARM: 'sex=f, age=")
    assert "It began with 'x06.parquet'" in said


def test_settings_are_kept_and_need_not_be_given_again(folder, tmp_path):
    state = tmp_path / "state.skops"
    assert run(folder / "w0.csv", "--state", state, *COLUMNS, "--tolerance", "0.3").exit_code == 0
    result = run(folder, "--state", state, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["batches"] == 5
    assert json.loads(result.output)["settings"]["tolerance"] == 0.3
    assert run(folder, "--state", state, "--sensitive", "sex", "--sensitive", "age", "--score", "risk").exit_code == 0


def test_batches_are_held_to_the_start_that_is_given(tmp_path):
    """The same gap month after month: an alarm where no gap is promised, none where the start shows it."""
    for i in range(12):
        week(i, gap=0.45, n=1000).to_csv(tmp_path / f"m{i:02d}.csv", index=False)
    first, later = tmp_path / "m00.csv", sorted(tmp_path.glob("m*.csv"))[1:]
    columns = ("--score", "risk", "--sensitive", "sex")
    result = run("--state", tmp_path / "a", *columns, "--start", first)
    assert result.exit_code == 0, result.output
    assert "no larger gap than at the start" in result.output
    assert "nan" not in result.output
    assert "100.0%" not in result.output
    result = run(*later, "--state", tmp_path / "a")
    assert result.exit_code == 0, result.output
    result = run(first, "--state", tmp_path / "b", *columns)
    assert "Promised is no gap between groups at all" in result.output
    assert run(*later, "--state", tmp_path / "b").exit_code == 3
    for i in range(12, 20):  # one group rises
        week(i, gap=2.0, n=1000).to_csv(tmp_path / f"n{i}.csv", index=False)
    result = run(*sorted(tmp_path.glob("n*.csv")), "--state", tmp_path / "a", "--quiet")
    assert result.exit_code == 3
    assert "'n12.csv'" in result.output
    assert "Drift" not in result.output


def test_the_same_people_may_come_again(tmp_path):
    rng = np.random.default_rng(0)
    own = rng.normal(size=400)
    groups = pd.DataFrame({"sex": ["f", "m"] * 200, "id": [f"no-{i:04d}" for i in range(400)]})
    for i in range(8):
        groups.assign(risk=own + 0.3 * rng.normal(size=400)).to_csv(tmp_path / f"m{i}.csv", index=False)
    files, state = sorted(tmp_path.glob("m*.csv")), tmp_path / "state"
    result = run(*files, "--state", state, "--score", "risk", "--sensitive", "sex", "--person", "id")
    assert result.exit_code == 0, result.output
    assert "each look is a test by person" in result.output
    assert b"no-0" not in state.read_bytes()
    assert FairnessMonitor.load(state).columns["person"] == ["id"]


def test_states_of_machines_are_merged(folder, tmp_path):
    start = folder / "w0.csv"
    for machine, files in {"north": ("w1.csv", "w2.csv"), "south": ("w3.csv",)}.items():
        batches = [folder / name for name in files]
        assert run(*batches, "--state", tmp_path / machine, *COLUMNS, "--start", start).exit_code == 0
    result = run("--state", tmp_path / "north", "--merge", tmp_path / "south")
    assert result.exit_code == 0, result.output
    assert FairnessMonitor.load(tmp_path / "north").batches == ("w1.csv", "w3.csv", "w2.csv")


def test_a_model_says_what_was_promised(folder, tmp_path):
    rng = np.random.default_rng(0)
    X, first = rng.normal(size=(300, 3)), week(0)
    groups = first[["sex", "age"]]
    model = FairOutlierEnsemble("paper", alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    save_model(model, tmp_path / "model.skops", updatable=True)
    result = run(folder, "--state", tmp_path / "s", *COLUMNS, "--model", tmp_path / "model.skops", "--json")
    assert result.exit_code in (0, 3), result.output
    settings = json.loads(result.output)["settings"]
    assert settings["tolerance"] == FairnessMonitor.of(model).settings.tolerance
    again = run(folder, "--state", tmp_path / "s", *COLUMNS, "--model", tmp_path / "model.skops")
    assert again.exit_code in (0, 3)
    save_model(model, tmp_path / "model.skops")
    refused = run(folder, "--state", tmp_path / "t", *COLUMNS, "--model", tmp_path / "model.skops")
    assert refused.exit_code == 2
    assert refused.output.startswith("Error: --model needs the groups of the training rows")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{folder}", "--state", "{new}", "--score", "risk"), "--score and --sensitive are needed"),
        (("{folder}", "--state", "{new}", "--score", "no", "--sensitive", "sex"), "has no column 'no' (--score)"),
        (("--state", "{new}"), "give a file, --start or --model to begin with"),
        (("{folder}", "--state", "{old}", *COLUMNS, "--tolerance", "0.5"), "was begun with another --tolerance (0.0)"),
        (("{folder}", "--state", "{old}", "--score", "age"), "was begun with another --score (risk); leave it out"),
        (("{folder}", "--state", "{old}", "--person", "id"), "was begun with another --person"),
        (("{folder}", "--state", "{new}", *COLUMNS, "--person", "no"), "has no column 'no' (--person)"),
        (("{folder}", "--state", "{old}", *COLUMNS, "--merge", "{folder}/w1.csv"), "no file of a watch"),
        (("{folder}", "{copy}/w1.csv", "--state", "{old}", *COLUMNS), "have one name, by which batches are told apart"),
        (("{copy}/w9.csv", "--state", "{old}", *COLUMNS), "w9.csv: --sensitive has missing values in 1 of 2 rows"),
        (("{folder}", "--state", "{new}", *COLUMNS, "--model", "m", "--tolerance", "0"), "leave --tolerance out"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_the_state(folder, tmp_path, arguments, words):
    old, copy = tmp_path / "old.skops", tmp_path / "copy"
    assert run(folder, "--state", old, *COLUMNS).exit_code == 0
    copy.mkdir()
    (copy / "w1.csv").write_text("risk,sex,age\n1,f,1\n")
    (copy / "w9.csv").write_text("risk,sex,age\n1,f,1\n2,,1\n")
    before = old.read_bytes()
    places = {"folder": folder, "new": tmp_path / "new.skops", "old": old, "copy": copy}
    result = run(*(argument.format(**places) for argument in arguments))
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert len(result.output.splitlines()) == 1
    assert old.read_bytes() == before
    assert not (tmp_path / "new.skops").exists()
