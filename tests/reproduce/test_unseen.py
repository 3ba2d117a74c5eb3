import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble
from evenout.datasets import load_dataset
from evenout.reproduce.experiment import derive_seeds, score
from evenout.reproduce.unseen import held_out, summarise, typical


def test_held_out_rows_agree_with_the_estimator():
    """Same detectors, folds and alpha: the estimator's unseen reduction is the page's."""
    seeds = derive_seeds(0, "breastw", 0)
    found = held_out(score("breastw", seeds, pairs=False), "maximum", seeds.forest)
    data = load_dataset("breastw", random_state=seeds.groups)
    model = FairOutlierEnsemble(combination="maximum", alpha=found["alpha"], random_state=seeds.forest)
    model.fit(data.X, sensitive_features=data.sensitive)
    assert found["training"] == pytest.approx(0.8, abs=1e-3)
    assert found["unseen"] == pytest.approx(model.bias_reduction_, rel=1e-6)
    assert found["p"] == pytest.approx(model.path_.gap_p_value)


def test_summary_counts_repeats_with_a_gap_and_takes_medians():
    rows = pd.DataFrame(
        {
            "dataset": ["pima"] * 3 + ["german"] * 2,
            "base": "greedy",
            "training": 0.8,
            "unseen": [0.2, np.nan, 0.6, np.nan, np.nan],
        }
    )
    table = summarise(rows, {"pima": "Pima", "german": "German Credit"})
    assert table[0] == {
        "dataset": "Pima", "base": "greedy", "training": 0.8, "unseen": pytest.approx(0.4),
        "least": 0.2, "most": 0.6, "with_gap": 2, "repeats": 3,
    }  # fmt: skip
    assert table[1]["unseen"] is None
    assert typical(table) == pytest.approx(0.4)
    assert typical(table[1:]) is None
