"""The public names of 0.3, which scripts of others rely on, and the old ones, which are refused by name."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import sklearn
from click.testing import CliRunner
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import evenout
from evenout import (
    BlindRepair,
    FairnessMonitor,
    FairOutlierEnsemble,
    Groups,
    Individual,
    Resemblance,
    ScoreRepair,
    audit,
)
from evenout.cli import main
from evenout.exceptions import InputError, NoGapWarning
from evenout.metrics import flag_rate_ratio_scorer
from evenout.report import write_report
from evenout.tables.parameters import RENAMED

ENSEMBLE = {
    "detectors": "default", "combination": "average", "scaling": "minmax", "standardize": True,
    "fairness": "demographic_parity", "bias_reduction": None, "flag_rate_ratio": None, "alpha": None,
    "confidence": None, "judged_on": "unseen", "correction": "weights", "weighting": "rank", "groups": None,
    "contamination": 0.1, "learn": False, "reference_size": 100_000, "random_state": None, "n_jobs": None,
    "device": "cpu",
}  # fmt: skip
AUDIT = (
    "scores", "sensitive_features", "labels", "label_propensity", "X", "given", "clusters", "sample_weight", "groups",
    "length_scale", "contamination", "threshold", "flags", "confidence", "resamples", "random_state",
)  # fmt: skip
TOP = {
    "AuditResult", "BlindRepair", "FairLOF", "FairOutlierEnsemble", "FairnessMonitor", "GroupProbabilities", "Groups",
    "Individual", "InvestigationPlan", "Resemblance", "ScoreRepair", "TableEncoder", "__version__", "audit",
}  # fmt: skip


def test_the_ensemble_has_nineteen_parameters_and_the_package_few_names():
    parameters = inspect.signature(FairOutlierEnsemble).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == ENSEMBLE
    assert [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == ["detectors"]
    assert tuple(inspect.signature(audit).parameters) == AUDIT
    assert set(evenout.__all__) == TOP
    rules = inspect.signature(Groups).parameters
    assert {name: p.default for name, p in rules.items()} == {
        "continuous": (), "bands": 5, "cross": True, "min_size": 30, "small": "leave_out", "unknown": "error",
    }  # fmt: skip


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_is_refused_with_the_new_one(old):
    taken = [
        call
        for call in (FairOutlierEnsemble, BlindRepair, ScoreRepair, FairnessMonitor, audit, write_report)
        if RENAMED[old].partition("=")[0] in inspect.signature(call).parameters
        and old not in inspect.signature(call).parameters
    ]
    assert taken
    words = f"{old} is (called )?{re.escape(RENAMED[old])} since 0.3"
    for call in taken:
        with pytest.raises(TypeError, match=words):
            call(**{old: 1})
        if hasattr(call, "set_params"):
            assert old not in call().get_params()
            with pytest.raises(TypeError, match=words):
                call().set_params(**{old: 1})


def test_the_changelog_has_the_same_table():
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    table = text.partition("| in 0.2 | in 0.3 |")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `(.*?)` \| `(.*?)` \|$", table, re.MULTILINE)) == RENAMED


@pytest.mark.parametrize(
    ("option", "new"),
    [
        ("--target", "--judged-on"), ("--method", "--correction published"), ("--intersections", "--cross"),
        ("--min-group-size", "--min-size"), ("--small-groups", "--small"), ("--unknown-groups", "--unknown"),
    ],
)  # fmt: skip
def test_an_old_option_is_refused_with_the_new_one(option, new):
    found = CliRunner().invoke(main, ["fit", "people.csv", "--sensitive", "sex", option, "x"])
    assert (found.exit_code, found.stderr) == (2, f"Error: {option} is {new} since 0.3\n")


@pytest.mark.parametrize("model", [FairOutlierEnsemble(), BlindRepair(), ScoreRepair()])
def test_rules_can_be_set_where_there_are_none(model):
    model = clone(model).set_params(groups__min_size=50)
    assert model.groups.get_params() == Groups(min_size=50).get_params()
    other = clone(model).set_params(groups__small="merge")
    assert (other.groups.min_size, other.groups.small, model.groups.small) == (50, "merge", "leave_out")
    with pytest.raises(ValueError, match="Invalid parameter 'size'"):
        model.set_params(groups__size=3)


def test_short_words_stand_for_objects():
    model = FairOutlierEnsemble(fairness="individual", correction="both")
    model.set_params(fairness__length_scale=0.3, correction__weights="simplex")
    assert (model.fairness.length_scale, model.correction.weights) == (0.3, "simplex")
    with pytest.raises(InputError, match="fairness is 'demographic_parity', which has no settings of its own"):
        FairOutlierEnsemble().set_params(fairness__length_scale=0.3)


def test_what_a_repair_or_a_watch_cannot_do_is_one_line():
    y, group = np.arange(200.0), np.arange(200) % 2
    for rules in (Groups(continuous=("age",)), Groups(cross=False), Groups(unknown="ignore")):
        with pytest.raises(InputError, match="does not go with ScoreRepair, which needs the group of each row"):
            ScoreRepair(groups=rules).fit(y, sensitive_features=group)
    for rules in (Groups(continuous=("age",)), Groups(cross="both"), Groups(small="merge")):
        with pytest.raises(InputError, match="does not go with a watch"):
            FairnessMonitor(groups=rules)
    with pytest.raises(InputError, match=r"groups=3 is not allowed; use None or evenout.Groups\(...\)"):
        audit(y, sensitive_features=group, groups=3)


def test_corrections_are_those_of_the_settings_that_they_stand_for():
    """Three detectors and a gap: constraints hold, and resemblance is learnt where it is asked for."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 600)
    S = rng.normal(size=(600, 3)) + np.outer(group, [2.0, 0.1, 0.4])
    words = ("weights", "nonnegative", "simplex", "resemblance", "both", "published")
    found = {}
    for by in (*words, Resemblance(weights="simplex")):
        model = FairOutlierEnsemble("precomputed", correction=by, alpha=1e6, random_state=0)
        found[str(by)] = model.fit(S, sensitive_features=group)
    total = found["weights"].path_.weights(0.0).sum()  # what detectors weigh in the base score
    assert (found["weights"].weights_ < 0).any()
    assert (found["nonnegative"].weights_ >= 0).all()
    assert found["simplex"].weights_.sum() == pytest.approx(total)
    assert found["published"].path_.method == "published"
    learnt = {name for name, model in found.items() if model.lambda_}
    assert learnt == {"resemblance", "both", "Resemblance(weights='simplex')"}
    assert found["Resemblance(weights='simplex')"].weights_.sum() == pytest.approx(total)
    np.testing.assert_allclose(found["resemblance"].weights_, found["resemblance"].path_.weights(0.0)[:3])


@pytest.mark.filterwarnings("ignore")
def test_a_grid_search_goes_over_rules():
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(240, 3)), np.repeat(["a", "b", "few"], [120, 100, 20])
    with sklearn.config_context(enable_metadata_routing=True):
        model = FairOutlierEnsemble("paper", alpha=0.0, random_state=0).set_fit_request(sensitive_features=True)
        search = GridSearchCV(model, {"groups__min_size": [5, 30]}, scoring=flag_rate_ratio_scorer, cv=2, refit=False)
        search.fit(X, sensitive_features=group)
    assert search.cv_results_["param_groups__min_size"].tolist() == [5, 30]


@pytest.mark.parametrize("made", [Groups(min_size=5), Individual(0.2, "exact"), Resemblance(weights="free")])
def test_objects_are_cloned_by_value(made):
    other = clone(made)
    assert other is not made
    assert other.get_params() == made.get_params()
    assert NoGapWarning.__module__ == "evenout.exceptions"
