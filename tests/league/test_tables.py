"""Halves that share nothing, methods that are shown nothing they must not see, and tables of one's own."""

import numpy as np
import pandas as pd
import pytest

from evenout.exceptions import InputError
from evenout.metrics import demographic_parity, flag_rate_ratio, roc_auc
from league.contract import BASE, Method, find_methods
from league.judging import judge, measure
from league.tables import LEAST_ROWS, Source, Table, halve, known_source, list_tables, own_source


def numbered(n=400, small=0):
    """Rows that are known by their number."""
    groups = np.repeat(["a", "b", "c"], [n - 100 - small, 100, small])
    return Table(np.arange(n, dtype=float)[:, None], np.arange(n) % 2, groups)


def test_halves_are_apart_have_the_same_groups_and_are_drawn_by_the_seed():
    one, again, other = (halve(numbered(), seed, 1000) for seed in ((0, 0), (0, 0), (0, 1)))
    assert not set(one.X[:, 0]) & set(one.new[:, 0])
    assert len(one.X) == len(one.new) == 200
    assert np.bincount(one.groups).tolist() == np.bincount(one.new_groups).tolist() == [150, 50]
    assert (one.X == again.X).all()
    assert set(one.X[:, 0]) != set(other.X[:, 0])


def test_labels_and_groups_go_with_their_rows():
    found = halve(numbered(), (3, 4), 120)
    assert (found.labels == found.new[:, 0] % 2).all()
    assert (found.new_groups == (found.new[:, 0] >= 300)).all()
    assert len(found.X) == 120


def test_groups_too_small_to_be_judged_are_left_out():
    kept, dropped = (halve(numbered(small=2 * LEAST_ROWS - i), (0, 0), 1000) for i in (0, 1))
    assert (kept.groups.max(), dropped.groups.max()) == (2, 1)
    with pytest.raises(InputError, match="fewer than two of the 2 groups have 20 rows in a half"):
        halve(Table(np.zeros((50, 1)), np.zeros(50), np.repeat(["a", "b"], [40, 10])), (0, 0), 100)


def test_only_marked_methods_are_given_the_group_of_new_rows(halving):
    seen = {}

    def scores(task):
        seen[task.seed] = task.new_groups
        assert not hasattr(task, "labels")
        yield BASE, task.new[:, 0]

    for seed, uses_group in ((0, False), (1, True)):
        list(judge(Method("m", "", scores, uses_group=uses_group), halving, seed))
    assert seen[0] is None
    assert (seen[1] == halving.new_groups).all()


def test_a_method_must_show_its_base_first(halving):
    method = Method("m", "", lambda task: iter([("fair", task.new[:, 0])]))
    with pytest.raises(ValueError, match="m: its first setting, and no other, must be 'base', but found 'fair'"):
        list(judge(method, halving, 0))


def test_measures_are_those_of_the_package_and_ranks_forget_the_scale(halving):
    y = np.exp(halving.new[:, 4]) + halving.new_groups
    groups = {"sensitive_features": halving.new_groups}
    bias, ranks, ratio, kept, auc, _ = measure(y, y, halving)
    assert bias == demographic_parity(y, **groups, scale_free=True, corrected=True)
    assert (ratio, auc, kept) == (flag_rate_ratio(y, **groups), roc_auc(halving.labels, y), 1.0)
    stretched = measure(y**9, y, halving)
    assert stretched[1:] == pytest.approx((ranks, ratio, kept, auc, measure(y, y, halving)[5]))
    assert abs(stretched[0]) < abs(bias) / 5


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e31])
def test_a_training_gone_astray_counts_as_a_constant(broken, halving):
    method = Method("m", "", lambda task: iter([(BASE, np.append(task.new[1:, 0], broken))]))
    ((_, bias, ranks, ratio, _, auc, _, _),) = judge(method, halving, 0)
    assert (bias, ranks, ratio, auc) == (0.0, 0.0, 1.0, 0.5)


def test_a_table_of_ones_own_is_encoded_by_the_first_half_alone(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"amount": rng.normal(size=300), "place": rng.choice(["x", "y"], 300), "case": range(300)})
    frame["sex"], frame["fraud"] = rng.choice(["f", "m"], 300), (rng.random(300) < 0.2).astype(int)
    frame.to_csv(tmp_path / "my.cases.csv", index=False)
    source = own_source(str(tmp_path / "my.cases.csv"), "sex", "fraud")
    assert (source.name, source.kind, source.overlapping) == ("my", "own", True)
    found = halve(source.draw(0), (0, 0), 1000)
    assert found.X.shape == found.new.shape == (150, 3)  # running numbers tell rows apart, and nothing more
    assert np.sort(found.X[:, 1:].sum(axis=1)).tolist() == [1.0] * 150
    order = pd.Series(frame["fraud"].to_numpy(), index=frame["amount"].to_numpy())
    assert (found.labels == order[found.new[:, 0]].to_numpy()).all()


def test_wrong_names_are_told_in_one_line(tmp_path):
    with pytest.raises(InputError, match="no table is called 'adults'; those are communities, german"):
        known_source("adults")
    with pytest.raises(InputError, match="needs --sensitive and --label"):
        own_source("my.csv", None, "fraud")
    (tmp_path / "my.csv").write_text("sex,fraud\nf,1\nm,2\n")
    with pytest.raises(ValueError, match="has no column 'race'"):
        own_source(str(tmp_path / "my.csv"), "race", "fraud")
    with pytest.raises(ValueError, match=r"is '2' in row 1; labels must be 0, or 1 for an outlier"):
        own_source(str(tmp_path / "my.csv"), "sex", "fraud")


def test_every_table_says_what_it_is():
    kinds = {name: Source(name).kind for name in list_tables()}
    assert sorted(name for name, kind in kinds.items() if kind == "protected") == ["communities", "credit", "german"]
    assert sum(kind == "simulated" for kind in kinds.values()) == 5
    assert [Source(name).overlapping for name in ("cardio", "shift")] == [True, False]


def test_a_file_that_needs_what_is_not_installed_is_left_out_and_named(monkeypatch):
    from league import contract

    def broken(name):
        if name.endswith("fairlof"):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return imported(name)

    imported = contract.import_module
    monkeypatch.setattr(contract, "import_module", broken)
    found, missing = find_methods()
    assert "FairLOF" not in found
    assert missing["fairlof"] == "torch"
    assert next(iter(found)) == "evenout"
