"""
Your own detectors
==================

Any detector will do: scikit-learn's (lower = more outlying), PyOD's (higher = more outlying), a pipeline, or a plain
function of the rows. They may be mixed, and signs are taken care of.
"""

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from pyod.models.ecod import ECOD
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from evenout import FairOutlierEnsemble
from evenout.datasets import load_dataset
from evenout.metrics import demographic_parity, flag_rate_ratio, roc_auc


def distance_to_centre(X: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Mean distance to the middle of the features, which lie between 0 and 1 in these data; nothing is learnt."""
    return np.abs(X - 0.5).mean(axis=1)


detectors = [
    IsolationForest(),
    LocalOutlierFactor(n_neighbors=20),
    ("one-class svm", make_pipeline(StandardScaler(), OneClassSVM(nu=0.1))),
    ECOD(),
    distance_to_centre,
]
data = load_dataset("communities")
model = FairOutlierEnsemble(detectors, random_state=0)
model.fit(data.X, sensitive_features=data.sensitive)
for name, score in {"base": model.target_, "fair": model.outlier_scores_}.items():
    ratio = flag_rate_ratio(score, sensitive_features=data.sensitive)
    print(f"{name}: flag-rate ratio {ratio:.2f}, AUC {roc_auc(data.y, score):.3f}")

# %%
# Left: how uneven each detector is by itself; that does not depend on the weight with which it is added. Right: its
# weight in the fair score; the dashed line is its weight in the base score, the plain average. Weights may also come
# out negative, which is hard to defend to an auditor; ask for ``weights="nonnegative"`` then.

parts = model.contributions(data.X)[:, :-1]  # the last column is the base score
own = [
    demographic_parity(part, sensitive_features=data.sensitive, scale_free=True)
    for part in parts.T
]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
axes[0].barh(model.detector_names_, own, color="#D55E00")
axes[0].set_xlabel("group bias of the detector alone")
axes[1].barh(model.detector_names_, model.weights_, color="#0072B2")
axes[1].axvline(model.path_.weights(0.0)[0], color="0.4", linewidth=0.8, linestyle="--")
axes[1].set_xlabel("weight in the fair score")
plt.show()

# %%
# Scores that another system has made go in as they are, one column per detector; then only groups are needed.

forest = IsolationForest(random_state=0).fit(data.X)
ready = np.column_stack(
    [
        -forest.score_samples(data.X),
        ECOD().fit(data.X).decision_scores_,
        distance_to_centre(data.X.to_numpy()),
    ]
)
again = FairOutlierEnsemble("precomputed", alpha=3000, random_state=0)
again.fit(ready, sensitive_features=data.sensitive)
low, high = again.bias_reduction_interval_
print(
    f"from three columns: removed {again.bias_reduction_:.0%} ({low:.0%} to {high:.0%})"
)

# %%
# That is stated for rows that the weights have not seen: only the other system knows whether its scores have.
