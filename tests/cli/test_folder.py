import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROLES = ("--sensitive", "sex,age", "--id", "person", "--label", "fraud", "--alpha", "2")


@pytest.fixture(autouse=True)
def data(people, tmp_path):
    """The table in three files of the folder ``data``, one of them without rows."""
    (tmp_path / "data").mkdir()
    for name, rows in (("a", slice(0, 30)), ("b", slice(30, 30)), ("c", slice(30, None))):
        people.iloc[rows].to_parquet(tmp_path / "data" / f"{name}.parquet", index=False)


def _scores(folder):
    return pd.concat([pd.read_parquet(file) for file in sorted(Path(folder).iterdir())], ignore_index=True)


def test_a_folder_is_fitted_like_the_file(run, fitted):
    result = run("fit", "data", *ROLES, "--out", "out")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "data: 360 rows, 6 groups" in result.stdout
    assert sorted(path.name for path in Path("out").iterdir()) == ["model.skops", "scores", "summary.json"]
    file, folder = pd.read_csv(fitted / "scores.csv"), _scores("out/scores")
    np.testing.assert_allclose(folder["fair_score"], file["fair_score"], atol=1e-8)
    assert folder["group"].tolist() == file["group"].tolist()
    assert folder["flagged"].astype(int).tolist() == file["flagged"].tolist()
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["input"] == {"name": "data", "sha256": None, "rows": 360, "reference_rows": 360}
    assert summary["groups"] == file["group"].value_counts().sort_index().to_dict()
    of_file = json.loads((fitted / "summary.json").read_text())
    assert summary["gap_in_standard_deviations"] == pytest.approx(of_file["gap_in_standard_deviations"])
    assert summary["correlation"] == pytest.approx(of_file["correlation"])
    for name in ("flagged_beyond_equal_rates", "unflagged_rate_ratio"):
        assert summary[name]["after"] == pytest.approx(of_file[name]["after"])
    assert summary["unseen_estimate"] == "everything refitted"
    assert "Group bias, unseen rows " in result.stdout
    assert "on unseen rows (95% interval " in result.stdout
    assert "Lowest / highest flag rate, unseen rows " in result.stdout


def test_files_and_folders_have_one_schema(run, fitted):
    run("fit", "data", *ROLES, "--quiet", "--out", "out")
    folder, file = (json.loads((where / "summary.json").read_text()) for where in (Path("out"), fitted))

    def kinds(value):
        """The shape of plain data: keys all the way down, and what is a number, a text or a list."""
        if isinstance(value, dict):
            return {key: kinds(part) for key, part in value.items()}
        return "number" if isinstance(value, int | float) else type(value).__name__

    open_ended = ("input", "auc", "average_precision", "precision_flagged", "column_notes", "gives_group_away")
    assert folder["schema"] == file["schema"] == 1
    assert list(folder) == list(file)
    assert {key: kinds(part) for key, part in folder.items() if key not in open_ended} == {
        key: kinds(part) for key, part in file.items() if key not in open_ended
    }
    assert len(repr(folder["bias_unseen"]["after"])) > 9  # not rounded
    assert folder["flag_rate_ratio_unseen_interval"] == pytest.approx(file["flag_rate_ratio_unseen_interval"])
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    assert [key for key in file if f"`{key}`" not in page] == []


def test_small_groups_are_left_out_and_a_count_is_flagged(run, people):
    people.assign(sex=people["sex"].mask(people.index < 12, "z")).to_parquet("data/a.parquet", index=False)
    Path("data/c.parquet").unlink()
    roles = ("--sensitive", "sex", "--id", "person", "--label", "fraud", "--contamination", "25")
    result = run("fit", "data", *roles, "--alpha", "2", "--out", "out")
    assert result.exit_code == 0, result.stderr
    assert "Note: groups of fewer than 30 rows are left out: 'z' (12)" in result.stderr
    assert "Too few rows to compare: z (12)." in result.stdout
    scores, summary = _scores("out/scores"), json.loads(Path("out/summary.json").read_text())
    assert scores["flagged"].sum() == 25
    assert scores["group"].isna().sum() == 12
    assert summary["left_out_groups"] == {"z": 12}
    assert (summary["input"]["rows"], sum(summary["groups"].values())) == (360, 348)


def test_models_of_files_and_folders_score_both(run, fitted, new_people):
    Path("new").mkdir()
    new_people.assign(home="boat").to_parquet("new/rows.parquet", index=False)
    new_people.assign(home="boat").to_csv("new.csv", index=False)
    run("fit", "data", *ROLES, "--quiet", "--out", "out")
    for model in (fitted / "model.skops", "out/model.skops"):
        by_file = run("score", model, "new.csv", "--out", "new-scores.csv")
        by_folder = run("score", model, "new", "--out", "new-scores", "--json")
        assert (by_file.exit_code, by_folder.exit_code) == (0, 0)
        np.testing.assert_allclose(
            _scores("new-scores")["fair_score"], pd.read_csv("new-scores.csv")["fair_score"], atol=1e-8
        )
        assert json.loads(by_folder.stdout)["unknown_values"] == {"home": 40}
        assert "column 'home': 40 of 40 rows have text that the training table did not have" in by_folder.stderr


@pytest.mark.long  # a cluster of its own; the scheduler below is given
def test_dask_workers_write_the_same_scores(run):
    pytest.importorskip("distributed")
    run("fit", "data", *ROLES, "--quiet", "--out", "alone")
    result = run("fit", "data/*.parquet", *ROLES, "--quiet", "--out", "together", "--engine", "dask")
    assert (result.exit_code, result.output) == (0, "")
    pd.testing.assert_frame_equal(_scores("together/scores"), _scores("alone/scores"), rtol=1e-12)


def test_a_folder_without_rows_is_refused(run, fitted):
    for name in ("a", "c"):
        Path(f"data/{name}.parquet").unlink()
    for arguments in (("fit", "data", *ROLES), ("score", fitted / "model.skops", "data")):
        result = run(*arguments, "--out", "out")
        assert result.exit_code == 2
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1
        assert not Path("out").exists()


def test_a_running_scheduler_is_used_and_left_running(run):
    distributed = pytest.importorskip("distributed")
    run("fit", "data", *ROLES, "--quiet", "--out", "alone")
    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**settings) as cluster:
        where = ("--engine", "dask", "--scheduler", cluster.scheduler_address)
        result = run("fit", "data", *ROLES, "--quiet", "--out", "out", *where)
        assert (result.exit_code, result.output) == (0, "")
        assert len(cluster.scheduler.workers) == 1
    pd.testing.assert_frame_equal(_scores("out/scores"), _scores("alone/scores"), rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "data"), "data: --sensitive is missing; name the column of the protected group"),
        (("fit", "data", "--sensitive", "gender"), "a.parquet has no column 'gender'; its columns are"),
        (
            ("fit", "data", "--sensitive", "sex", "--clusters", "person"),
            "--clusters needs the rows in memory",
        ),
        (("fit", "none/*.parquet", "--sensitive", "sex"), "none/*.parquet has no Parquet file"),
        (("fit", "data", "--sensitive", "sex", "--scheduler", "tcp://x:1"), "tcp://x:1 needs --engine dask"),
        (("fit", "data", "--sensitive", "sex", "--detectors", "precomputed"), "column 'person' holds text"),
    ],
)
def test_bad_requests_are_one_line_and_write_nothing(arguments, message, run):
    result = run(*arguments, "--out", "out")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == ["data"]


def test_a_missing_device_is_one_line_and_nothing_is_written(run, fitted):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    words = "--device cuda was asked for, but torch finds no CUDA device; use --device cpu"
    model, out = fitted / "model.skops", ("--device", "cuda", "--out", "out.csv")
    for arguments in (("fit", "data", *ROLES), ("score", model, "data"), ("score", model, "data/a.parquet")):
        result = run(*arguments, *out)
        assert result.exit_code == 2
        assert result.stderr.endswith(f"{words}\n")
        assert len(result.stderr.splitlines()) == 1
        assert not Path("out.csv").exists()
