"""`evenout plan` and `evenout estimate`: files out, outcomes back in, as in Python."""

import json

import numpy as np
import pandas as pd
import pytest

from evenout import InvestigationPlan


@pytest.fixture
def planned(fitted, people, run):
    people.to_csv("people.csv", index=False)
    result = run("plan", fitted / "model.skops", "people.csv", "--id", "person", "--budget", 60, "--explore", 0.5,
                 "--out", "plan.csv")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "30 by score, 30 by chance" in result.stdout
    return pd.read_csv("plan.csv")


def test_a_plan_file_has_the_list_first_and_every_probability(planned, people, fitted):
    assert len(planned) == len(people)
    assert planned["chosen by"].notna()[:60].all()
    assert planned["chosen by"].isna()[60:].all()
    assert planned["probability"].sum() == pytest.approx(60, abs=1e-9)
    scores = pd.read_csv(fitted / "scores.csv").set_index("id")["fair_score"]
    np.testing.assert_allclose(planned["score"], scores[planned["id"]], atol=1e-12)
    assert {"sex", "age", "fraud"} <= set(planned.columns)  # no features, few values


def test_outcomes_filled_in_by_hand_or_in_a_file_of_their_own_say_as_much(planned, people, run):
    result = run("estimate", "plan.csv", "--outcome", "fraud", "--sensitive", "sex", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)["estimates"]
    plan, _ = InvestigationPlan.load("plan.csv")
    truth = people.set_index("person")
    expected = plan.estimate(truth["fraud"][plan.to_frame().index], truth["sex"]).to_frame()
    np.testing.assert_allclose(pd.DataFrame(told)["value"], expected["value"])
    assert [row["group"] for row in told] == expected["group"].tolist()

    done = planned.loc[:59, ["id"]].sample(frac=1, random_state=0)
    done.assign(found=truth["fraud"][done["id"]].to_numpy()).to_csv("done.csv", index=False)
    apart = run("estimate", "plan.csv", "--outcomes", "done.csv", "--outcome", "found", "--sensitive", "sex", "--json",
                "--people", "people.csv", "--id", "person")  # fmt: skip
    assert apart.exit_code == 2  # ids of done.csv are in another column
    people.rename(columns={"person": "id"}).to_csv("by-id.csv", index=False)
    apart = run("estimate", "plan.csv", "--outcomes", "done.csv", "--outcome", "found", "--sensitive", "sex", "--json",
                "--people", "by-id.csv")  # fmt: skip
    assert json.loads(apart.stdout)["estimates"] == told
    assert "recall" in run("estimate", "plan.csv", "--outcome", "fraud").stdout


def test_wrong_files_end_in_one_line(planned, fitted, run):
    model = fitted / "model.skops"
    planned.iloc[:50].to_csv("cut.csv", index=False)
    planned.assign(probability=2.0).to_csv("changed.csv", index=False)
    for arguments, words in [
        (("plan", model, "people.csv", "--budget", 0, "--out", "p.csv"), "budget"),
        (("plan", model, "people.csv", "--budget", 5, "--out", "p.csv"), "--explore 0.1 of --budget 5"),
        (("plan", model, "people.csv", "--sensitive", "six", "--out", "p.csv"), "'sex'"),
        (("plan", model, "people.csv", "--out", "p.txt"), ".csv"),
        (("estimate", "plan.csv", "--outcome", "froud"), "'fraud'"),
        (("estimate", "plan.csv", "--outcome", "probability"), "--outcomes is"),
        (("estimate", "cut.csv", "--outcome", "fraud"), "lacks rows"),
        (("estimate", "changed.csv", "--outcome", "fraud"), "changed"),
        (("estimate", "people.csv", "--outcome", "fraud"), "evenout plan"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert words in result.stderr, result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
