"""Why Breast Cancer's AUCs hang on a detail: which of several equally near rows a neighbour search returns.

A third of its rows are duplicates, so distances tie and LOF divides by distances of 0. scikit-learn's three exact
searches break ties differently; the same 18 detectors then give different base ensembles.
"""

import warnings
from typing import TYPE_CHECKING

import numpy as np

from evenout.core.types import FloatArray
from evenout.datasets import load_dataset
from evenout.detectors.pool import fit_pool
from evenout.metrics import roc_auc
from evenout.reproduce.experiment import combine, derive_seeds

if TYPE_CHECKING:
    import pandas as pd

SEARCHES = ("kd_tree", "ball_tree", "brute")


def compare_searches(seed: int, n_repeats: int) -> "pd.DataFrame":
    """AUC on Breast Cancer of each base ensemble's score, by the search behind LOF: evenout's, then scikit-learn's.

    Returns
    -------
    frame with the columns repeat, search, base, auc
    """
    import pandas as pd

    data = load_dataset("breastw")
    X, outlier = np.ascontiguousarray(data.X.to_numpy()), data.y.to_numpy() == 1
    factors = {search: _local_outlier_factors(X, search) for search in SEARCHES}
    rows = []
    for repeat in range(n_repeats):
        pool, raw = fit_pool("paper", X, seed=derive_seeds(seed, "breastw", repeat).forest)
        lof = [name.startswith("lof_") for name in pool.names]
        for search in ("evenout", *SEARCHES):
            scores = raw.copy()
            if search in factors:
                scores[:, lof] = factors[search]
            for base, t in combine(scores)[1].items():
                auc = roc_auc(outlier, t)
                rows.append({"repeat": repeat, "search": search, "base": base, "auc": auc})
    return pd.DataFrame(rows)


def _local_outlier_factors(X: FloatArray, search: str) -> FloatArray:
    """scikit-learn's LOF with the paper's numbers of neighbours, shape (n, 6)."""
    from sklearn.neighbors import LocalOutlierFactor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about the duplicates, which are the point here
        fitted = [LocalOutlierFactor(k, algorithm=search).fit(X) for k in (5, 10, 15, 20, 25, 30)]
    return np.column_stack([-lof.negative_outlier_factor_ for lof in fitted])
