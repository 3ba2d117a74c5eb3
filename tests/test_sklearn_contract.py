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
]


class WithGroups(FairOutlierEnsemble):
    """Alternates two groups down the rows, since the checks know nothing of groups."""

    def fit(self, X, y=None, *, sensitive_features=None):
        if sensitive_features is None:
            shape = X.shape if hasattr(X, "shape") else np.shape(np.asarray(X))
            sensitive_features = np.arange(shape[0]) % 2 if shape else None
        return super().fit(X, y, sensitive_features=sensitive_features)


@parametrize_with_checks([WithGroups(random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
