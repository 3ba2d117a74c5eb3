"""Packed arrays come back bit for bit, take the space they should, and damaged ones are refused."""

import numpy as np
import pytest

from evenout.detectors.units import Units
from evenout.storage.archive import ModelFileError, read_plain, write_plain
from evenout.storage.packing import packed, unpacked

RNG = np.random.default_rng(0)
N = 3000
CASES = {  # array, and its packed size as a share of its own
    "one-hot": (np.eye(20)[RNG.integers(0, 20, N)], 0.15),
    "few values": (RNG.choice([0.1, 0.3, -7.7], size=(N, 3)), 0.15),
    "singles": (RNG.normal(size=(N, 3)).astype(np.float32).astype(float), 0.51),
    "grid": (np.rint(RNG.normal(0, 100, size=(N, 3)) * 2**20) / 2**20, 0.51),
    "units": (Units.fit(X := RNG.lognormal(size=(N, 3))).apply(X), 0.51),
    "mixed": (np.column_stack([RNG.integers(0, 2, N), RNG.normal(size=N)]), 0.6),
    "doubles": (RNG.normal(size=(N, 3)), 1.0),
    "vector of whole numbers": (RNG.integers(0, 9, 5000), 0.13),
    "vector of larger ones": (RNG.integers(-(10**6), 10**6, 5000), 0.51),
    "vector of huge ones": (RNG.integers(0, 2**60, 5000), 1.0),
    "symmetric": ((S := RNG.normal(size=(3, 60, 60))) + S.transpose(0, 2, 1), 0.52),
    "symmetric but for rounding": (
        np.einsum("ri,rj,r->ij", Z := RNG.normal(size=(50, 80)), Z, RNG.random(50)) * 1.1,
        0.6,
    ),
    "two zeros": (np.where(RNG.random((N, 3)) < 0.5, -0.0, 0.0), 1.0),
    "not finite": (np.where(RNG.random((N, 3)) < 0.5, np.nan, 1.0), 1.0),
    "vector of few values": (RNG.choice([0.1, 0.2], 5000), 0.14),
}


@pytest.mark.parametrize("name", CASES)
def test_arrays_come_back_bit_for_bit_in_less_space(name, tmp_path):
    array, share = CASES[name]
    write_plain({"a": [array]}, tmp_path / "a")
    (found,) = read_plain(tmp_path / "a")["a"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    small = packed(array)
    assert (share == 1.0) == (small is array)
    if share < 1.0:
        assert (tmp_path / "a").stat().st_size <= share * array.nbytes + 8000


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("kinds", np.array([0, 0, 9, 3], dtype=np.uint8)),
        ("kinds", np.zeros(9, dtype=np.uint8)),
        ("tables", np.zeros(1)),
        ("lengths", np.array([2], dtype=np.int64)),
        ("bytes", np.full((2, N), 255, dtype=np.uint8)),
        ("double", np.zeros((1, 3))),
        ("double", None),
    ],
)
def test_damaged_packed_arrays_are_refused(part, wrong, tmp_path):
    array = np.column_stack([RNG.integers(0, 2, N), RNG.integers(0, 3, N), RNG.normal(size=N), RNG.normal(size=N)])
    data = packed(array)
    np.testing.assert_array_equal(unpacked(data), array)
    data = {name: value for name, value in data.items() if name != part} | ({} if wrong is None else {part: wrong})
    write_plain({"a": data}, tmp_path / "a")
    with pytest.raises(ModelFileError, match="it is damaged, or no model file of evenout"):
        read_plain(tmp_path / "a")


def test_a_triangle_of_another_size_is_refused_before_memory_is_taken(tmp_path):
    data = packed(CASES["symmetric"][0]) | {"size": 10**8}
    write_plain({"a": data}, tmp_path / "a")
    with pytest.raises(ModelFileError, match="it is damaged"):
        read_plain(tmp_path / "a")


def test_small_arrays_stay_as_they_are():
    small = np.zeros((10, 10))
    assert packed(small) is small
