from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble
from evenout.core.cells import CrossFit, collect_cells, rank_weights
from evenout.core.content import assign_folds
from evenout.core.registry import PARITY
from evenout.datasets import load_dataset
from evenout.reproduce.experiment import derive_seeds, held_out, score, summarise


def test_held_out_rows_agree_with_the_estimator():
    """Same detectors and request on training rows. The estimator leaves its detectors out too, the page the weights."""
    seeds = derive_seeds(0, "breastw", 0)
    found = held_out(score("breastw", seeds, pairs=False), "maximum", seeds.forest)
    data = load_dataset("breastw", random_state=seeds.groups)
    model = FairOutlierEnsemble.paper(combination="maximum", bias_reduction=0.8, random_state=seeds.forest).fit(
        data.X, sensitive_features=data.sensitive
    )
    assert found["alpha"] == pytest.approx(model.alpha_, rel=1e-5)
    assert found["training"] == pytest.approx(model.bias_reduction_, rel=1e-6)
    assert found["training"] == pytest.approx(0.8, abs=1e-3)
    assert found["unseen"] == pytest.approx(float(model.path_.reduction(model.alpha_)), abs=0.1)
    assert found["p"] == pytest.approx(model.path_.gap_p_value)


def test_held_out_weights_are_those_of_explicit_refits():
    """Each fold is scored by weights that were solved, with plain linear algebra, on the rows of the others."""
    seeds = derive_seeds(0, "breastw", 0)
    scored = score("breastw", seeds, pairs=False)
    found = held_out(scored, "maximum", seeds.forest)
    S, t, groups = scored.S, scored.targets["maximum"], scored.groups
    folds = assign_folds(S, groups, 5, seeds.forest)
    beta, G = rank_weights(t), groups.max() + 1
    V = np.zeros((5, 1, S.shape[1] + 1))
    for f in range(5):
        rows = folds != f
        means = np.array([S[rows & (groups == g)].mean(axis=0) for g in range(G)])
        gaps = [means[p] - means[q] for p, q in combinations(range(G), 2)]
        C = sum(np.outer(gap, gap) for gap in gaps) / len(gaps)
        A = (S[rows].T * beta[rows]) @ S[rows] + found["alpha"] * rows.mean() * C
        V[f, 0, :-1] = np.linalg.lstsq(A, S[rows].T @ (beta * t)[rows], rcond=1e-14)[0]
    cells = collect_cells(S, t, beta, groups, folds, n_groups=G, n_sets=5)
    cross = CrossFit.of_folds(cells)
    left = PARITY.bias(cross, V)[0] / PARITY.target_bias(cross)[0]
    assert found["unseen"] == pytest.approx(1.0 - left, abs=1e-4)


def test_summary_counts_repeats_with_a_gap_and_takes_medians():
    rows = pd.DataFrame(
        {
            "dataset": ["pima"] * 3 + ["german"] * 2,
            "base": "greedy",
            "training": 0.8,
            "unseen": [0.2, np.nan, 0.6, np.nan, np.nan],
        }
    )
    table, typical = summarise(rows)
    assert table[0] == {
        "dataset": "Pima", "base": "greedy", "training": 0.8, "unseen": pytest.approx(0.4),
        "least": 0.2, "most": 0.6, "with_gap": 2, "repeats": 3,
    }  # fmt: skip
    assert table[1]["unseen"] is None
    assert typical == pytest.approx(0.4)
    assert summarise(rows[3:])[1] is None
