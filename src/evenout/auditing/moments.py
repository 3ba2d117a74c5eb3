"""Means of groups and the noise of each, of rows that may come in clusters."""

import numpy as np

from evenout.core.forms import GroupMoments
from evenout.core.types import FloatArray, IntArray


def group_moments(
    scores: FloatArray, groups: IntArray, n_groups: int, clusters: IntArray | None = None
) -> GroupMoments:
    """Mean and variance of the scores of each group, such that ``variance / count`` is the squared error of the mean.

    Parameters
    ----------
    scores, groups : arrays of shape (n,)
    n_groups : int
    clusters : array of shape (n,), optional
        Codes 0.. of clusters of rows, each within one group. Then ``count`` is the number of clusters, and the squared
        error of a mean comes from the sums of its residuals over clusters:
        ``C / (C - 1) sum_c (sum_{i in c} (y_i - m))^2 / n^2``.
    """
    y = scores - scores.mean()
    n = np.bincount(groups, minlength=n_groups).astype(float)
    mean = np.bincount(groups, weights=y, minlength=n_groups) / n
    off = y - mean[groups]
    units, owner = off, groups
    if clusters is not None:
        units = np.bincount(clusters, weights=off)
        owner = np.empty(len(units), dtype=np.intp)
        owner[clusters] = groups
    count = np.bincount(owner, minlength=n_groups).astype(float)
    squares = np.bincount(owner, weights=units**2, minlength=n_groups)
    error = count / np.maximum(count - 1, 1) * squares / n**2
    return GroupMoments(count, (scores.mean() + mean)[None], (count * error)[None], np.array([y.var()]))
