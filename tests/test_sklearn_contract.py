"""scikit-learn's own checks, with the groups supplied by a thin subclass."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from evenout import FairOutlierEnsemble

# The checks' data are small, random and without groups: these warnings are the right answer to them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:n_neighbors:UserWarning"),
    pytest.mark.filterwarnings("ignore::evenout.NoGapWarning"),
    pytest.mark.filterwarnings("ignore::evenout.TargetNotReachedWarning"),
    pytest.mark.filterwarnings("ignore::evenout.ConstantScoreWarning"),
    pytest.mark.filterwarnings("ignore::evenout.SmallGroupWarning"),
]
SEEN_ONCE = (
    "detectors see each row once, whatever its weight: a weight counts in misfit, bias and errors alone"
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": SEEN_ONCE,
    "check_sample_weight_equivalence_on_sparse_data": SEEN_ONCE,  # asked by scikit-learn 1.6 of dense models too
}


class WithGroups(FairOutlierEnsemble):
    """Alternates two groups down the rows, since the checks know nothing of groups."""

    def fit(self, X, y=None, *, sensitive_features=None, sample_weight=None):
        if sensitive_features is None:
            shape = X.shape if hasattr(X, "shape") else np.shape(np.asarray(X))
            sensitive_features = np.arange(shape[0]) % 2 if shape else None
        return super().fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)


@parametrize_with_checks(
    [WithGroups(random_state=0, min_group_size=2, alpha=1.0)], expected_failed_checks=lambda _: EXPECTED
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_small_tables_give_the_base_score():
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = WithGroups(random_state=0).fit(X)
    np.testing.assert_array_equal(model.outlier_scores(X), model.base_scores(X))
