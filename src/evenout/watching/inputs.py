"""Scores and groups of a batch, cleaned at the door: what was known at the start is compared, the rest is counted."""

from typing import Any

import numpy as np

from evenout.auditing.inputs import aligned, read_numbers
from evenout.core.exceptions import InputError
from evenout.core.types import FloatArray, IntArray
from evenout.inputs.groups import label_rows


def read_scores(scores: Any, sensitive_features: Any) -> FloatArray:
    """One finite number per row, with a group for each."""
    values = read_numbers(scores, "scores")
    if len(values) == 0:
        raise InputError("{@scores} has no rows; give one score per row")
    if sensitive_features is None:
        raise InputError("{@sensitive_features} is missing: a watch needs the group of every row")
    aligned(sensitive_features, "sensitive_features", scores, len(values))
    return values


def read_codes(
    sensitive_features: Any, n_rows: int, labels: tuple[str, ...], unknown_groups: str
) -> tuple[IntArray, dict[str, int]]:
    """The place of each row's group in ``labels``, -1 for others; and how many rows of which others, "" for none."""
    import pandas as pd

    frame = pd.DataFrame(sensitive_features)
    codes, missing = np.full(n_rows, -1, dtype=np.intp), frame.isna().any(axis=1).to_numpy()
    if missing.any() and unknown_groups == "error":
        raise InputError(
            "{@sensitive_features} has missing values in {n} of {n_rows} rows (first: {#row}); fill them in, "
            "or set {unknown_groups='ignore'}",
            n=int(missing.sum()), n_rows=n_rows, row=int(missing.argmax()),
        )  # fmt: skip
    others = {"": int(missing.sum())} if missing.any() else {}
    if missing.all():
        return codes, others
    groups = label_rows(frame[~missing], int((~missing).sum()))
    place = {label: g for g, label in enumerate(labels)}
    codes[~missing] = np.array([place.get(label, -1) for label in groups.labels], dtype=np.intp)[groups.codes]
    counts = zip(groups.labels, groups.counts.tolist(), strict=True)
    return codes, others | {label: n for label, n in counts if label not in place}
