"""Tables of points made by hand, so that each claim can be made true and false."""

import pandas as pd
import pytest

ORDINARY = {
    "f1": [1.0, 2.0, 3.0, 4.0],
    "f2": [4.0, 3.0, 2.0, 1.0],
    "bias": [4.0, 3.0, 2.0, 1.0],
    "auc": [0.9, 0.8, 0.7, 0.6],
    "negative": [0, 0, 0, 0],
}


def make_setting(
    dataset="pima", base="maximum", fairness="group", *, repeats=1, target=0.9, average=0.8, alphas=None, **changed
):
    """One setting whose curve, in both frameworks, is `ORDINARY`.

    ``weighted`` and ``unweighted`` change columns of a framework's curve, ``random`` is a dict by framework of the
    (f2, auc) of the random alphas; each may be a function of the repeat.
    """
    rows = []
    for repeat in range(repeats):
        place = {"dataset": dataset, "fairness": fairness, "repeat": repeat}
        for name, auc in ((base, target), ("average", average)):
            rows.append({**place, "base": name, "framework": "none", "kind": "target", "f1": 0.0, "auc": auc})
        for framework in ("weighted", "unweighted"):
            own = {**place, "base": base, "framework": framework}
            change = changed.get(framework, {})
            curve = ORDINARY | (change(repeat) if callable(change) else change)
            steps = range(len(curve["f2"]))
            for i in steps:
                at = {"alpha": float((alphas or {}).get(framework, steps)[i])}
                rows.append({**own, "kind": "curve", **at, **{key: curve[key][i] for key in ORDINARY}})
            draws = changed.get("random", {}).get(framework, [(3.0, 0.8), (2.0, 0.7)])
            for i, (f2, auc) in enumerate(draws(repeat) if callable(draws) else draws):
                rows.append({**own, "kind": "random", "alpha": i + 1.0, "f2": f2, "auc": auc})
    return pd.DataFrame(rows)


@pytest.fixture
def setting():
    return make_setting
