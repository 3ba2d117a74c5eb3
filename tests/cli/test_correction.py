"""Corrections by resemblance on the command line: asked for, printed, kept and scored with."""

import json

import pytest
from click.testing import CliRunner

from evenout.cli import main


@pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")
def test_a_correction_by_resemblance_is_said_and_kept(tmp_path):
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 800)
    X = np.exp(rng.normal(size=(800, 3)) + 0.6 * (sex == "m")[:, None])
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(sex=sex, fraud=(X.sum(axis=1) > 12).astype(int))
    frame.to_csv(tmp_path / "people.csv", index=False)
    asked = ["--correction", "both", "--label", "fraud", "--detectors", "paper"]
    out = tmp_path / "out"
    command = ["fit", str(tmp_path / "people.csv"), "--sensitive", "sex", *asked, "--n-jobs", "1", "--out", str(out)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "Taken off for looking like a group, whoever belongs to it: f -" in done.output
    assert "Known outliers among the flagged" in done.output
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary["resemblance"]) == {"f", "m"}
    assert sum(summary["resemblance"].values()) == pytest.approx(0.0, abs=1e-9)
    scores = pd.read_csv(out / "scores.csv")
    flagged = scores[scores["flagged"].astype(bool)]
    assert summary["precision_flagged"]["after"] == pytest.approx(frame["fraud"].iloc[flagged.iloc[:, 0] - 1].mean())
    scored = CliRunner().invoke(
        main, ["score", str(out / "model.skops"), str(tmp_path / "people.csv"), "--out", str(tmp_path / "new.csv")]
    )
    assert scored.exit_code == 0, scored.output
