from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
import pytest
from typing_extensions import TypeAliasType

from evenout.storage import walker

T = TypeVar("T", bound=np.generic)
NDArray = TypeAliasType("NDArray", np.ndarray[tuple[Any, ...], np.dtype[T]], type_params=(T,))


@dataclass(frozen=True, eq=False)
class Kept:
    weights: Annotated[NDArray[np.float64], "k"]
    counts: NDArray[np.intp] | None


@pytest.mark.parametrize("counts", [None, np.arange(3)])
def test_arrays_come_back_where_their_type_has_a_name_as_in_newer_numpy(counts):
    kept = Kept(np.array([0.5, 0.25]), counts)
    read = walker.read(Kept, walker.describe(kept, Kept), "kept")
    np.testing.assert_array_equal(read.weights, kept.weights)
    assert (read.counts is None) == (counts is None)
    with pytest.raises(ValueError, match="weights"):
        walker.read(Kept, {"weights": "text", "counts": None}, "kept")
