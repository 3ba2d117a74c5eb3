import numpy as np
import pytest

SIZES = {2: (300, 120), 4: (400, 150, 90, 40)}


def simulated_scores(sizes=4, seed=0, gap=0.7, ties=None):
    """Skewed scores; later groups are shifted and more spread. ``sizes`` may be how many groups there are."""
    sizes = SIZES.get(sizes, sizes)
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    y = rng.gamma(2.0, size=len(groups)) * (1 + 0.5 * gap * groups) + gap * groups
    return (y if ties is None else y.round(ties)), np.array(list("abcd"))[groups]


@pytest.fixture
def simulated():
    return simulated_scores
