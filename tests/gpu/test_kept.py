"""What a fitted part has sent to a device stays there while the part lives, and one row costs what one row needs."""

import gc
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from evenout import gpu  # noqa: E402
from evenout.detectors.forest import Forest  # noqa: E402
from evenout.detectors.neighbours import Nearness, Neighbours  # noqa: E402
from evenout.gpu import _torch_forest, _torch_neighbours, _torch_rows  # noqa: E402
from evenout.gpu._torch_rows import (  # noqa: E402
    scale_to_halves,
    split,
)

THREADS = 4


def make_rows(n, seed):
    return np.random.default_rng(seed).normal(size=(n, 4))


FITTED = {
    "neighbours": lambda X: Neighbours.fit(X, lof=[4, 9], knn=[3])[0],
    "forest": lambda X: Forest.fit(X, sizes=[3, 8], random_state=0)[0],
    "nearness": lambda X: Nearness.fit(X, lof=[5], decorrelate=True)[0],
}


@pytest.fixture(params=[*FITTED])
def part(request):
    return FITTED[request.param](make_rows(300, seed=0))


@pytest.fixture
def sends(monkeypatch):
    """The parts that were sent, call by call."""
    seen = []
    for module in (_torch_forest, _torch_neighbours):

        def counted(part, device, send=module._send):
            seen.append(type(part))
            return send(part, device)

        monkeypatch.setattr(module, "_send", counted)
    monkeypatch.setattr(_torch_forest, "FEW", 0)  # so that single rows go down the trees there, too
    return seen


def one_by_one(part, rows):
    return np.concatenate([gpu.score(part, rows[i : i + 1], device="cpu") for i in range(len(rows))])


def test_a_part_is_sent_once(part, sends):
    rows = make_rows(30, seed=1)
    found = one_by_one(part, rows)
    np.testing.assert_array_equal(found, gpu.score(part, rows, device="cpu"))
    np.testing.assert_array_equal(found, part.score(rows))
    assert len(sends) == 1


def test_threads_that_ask_at_once_send_it_once(part, sends):
    rows, together = make_rows(10 * THREADS, seed=1), Barrier(THREADS)
    expected = part.score(rows)

    def ask(some):
        together.wait()
        return one_by_one(part, some)

    with ThreadPoolExecutor(THREADS) as pool:
        found = np.concatenate(list(pool.map(ask, np.split(rows, THREADS))))
    np.testing.assert_array_equal(found, expected)
    assert len(sends) == 1


def test_other_parts_and_other_devices_have_their_own(sends):
    X, rows = make_rows(300, seed=0), make_rows(5, seed=1)
    one, two = (Neighbours.fit(X + shift, lof=[4], knn=[3])[0] for shift in (0.0, 1.0))
    for part in (one, two):
        np.testing.assert_array_equal(gpu.score(part, rows, device="cpu"), part.score(rows))
    assert len(sends) == 2
    _torch_neighbours.score(one, rows, "cpu:0", 1)
    assert len(sends) == 3
    assert {str(device) for device in _torch_rows._KEPT[one]} == {"cpu", "cpu:0"}


@pytest.mark.parametrize("name", ["neighbours", "forest"])
def test_it_is_freed_with_the_part_and_goes_into_no_copy(name, sends):  # noqa: ARG001
    part = FITTED[name](make_rows(300, seed=0))
    gc.collect()
    before = len(_torch_rows._KEPT)
    gpu.score(part, make_rows(3, seed=1), device="cpu")
    assert len(_torch_rows._KEPT) == before + 1
    again = pickle.loads(pickle.dumps(part))
    assert again not in _torch_rows._KEPT
    del part
    gc.collect()
    assert len(_torch_rows._KEPT) == before


def test_many_rows_have_the_scores_of_few(monkeypatch):
    """Few rows are weighed on the CPU, and go down the trees there; both ways say the same, bit for bit."""
    X, rows = make_rows(300, seed=0), make_rows(50, seed=1)
    for name in ("neighbours", "forest"):
        part = FITTED[name](X)
        few = gpu.score(part, rows, device="cpu")
        monkeypatch.setattr(_torch_neighbours, "FEW", 0)
        monkeypatch.setattr(_torch_forest, "FEW", 0)
        np.testing.assert_array_equal(gpu.score(part, rows, device="cpu"), few)
        monkeypatch.undo()


def test_an_index_makes_room_for_rows_that_lie_further_out():
    points = torch.as_tensor(make_rows(300, seed=0))
    index = _torch_neighbours.Index(points)
    assert index.reaching(points[:1]) is index
    far = 1e5 * points[:2]
    wider = index.reaching(far)
    assert wider.unit == scale_to_halves(points - index.centre, far - index.centre) < index.unit
    expected = split((points[index.ids[:300]] - index.centre) * wider.unit)
    places = _torch_neighbours._in_lanes(torch.arange(len(index.ids))[:, None])[:, 0]
    there = places < 300
    assert torch.equal(wider.right[there], expected.right[places[there]])
    assert (wider.right[~there] == torch.inf).any(dim=1).all()  # and no other place holds a point
    assert index.unit == scale_to_halves(points - index.centre)  # the index that is kept stays as it was


INTERPRETED = """
import numpy as np
import torch
from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Neighbours
from evenout.gpu import _torch_forest, _torch_neighbours, _torch_pairs

built, grouped, make, group = [], [], _torch_neighbours.Index.__init__, _torch_neighbours.Index._near_blocks
_torch_neighbours.can_fuse = _torch_forest.can_fuse = lambda *_: True
_torch_neighbours.FEW_DISTANCES = _torch_forest.FEW = 0
_torch_neighbours._stages = lambda _: 1
_torch_neighbours.Index.__init__ = lambda self, points: built.append(len(points)) or make(self, points)
_torch_neighbours.Index._near_blocks = lambda self, *asked: grouped.append(1) or group(self, *asked)
rng = np.random.default_rng(0)
X, rows = rng.normal(size=(1100, 3)), rng.normal(size=(3, 3))
rows[0] *= 1e6
model = Neighbours.fit(X, lof=[2], knn=[1])[0]
expected = model.score(rows)
for few in (4096, 0):
    _torch_neighbours.FEW = few
    np.testing.assert_array_equal(_torch_neighbours.score(model, rows, "cpu", 1), expected)
for i in range(2):
    np.testing.assert_array_equal(_torch_neighbours.score(model, rows[i : i + 1], "cpu", 1), expected[i : i + 1])
assert built == [1100] and not grouped
_torch_neighbours.GROUPS = 16
model = Neighbours.fit(rng.normal(size=(20_000, 3)), lof=[2], knn=[1])[0]
np.testing.assert_array_equal(_torch_neighbours.score(model, rows, "cpu", 1), model.score(rows))
assert grouped
forest = Forest.fit(X, sizes=[2, 3], random_state=0)[0]
np.testing.assert_array_equal(_torch_forest.score(forest, X[:200], "cpu", 1), forest.score(X[:200]))
points, groups = torch.as_tensor(X).double(), torch.as_tensor(rng.integers(-1, 3, size=len(X)))
fused, plain = (_torch_pairs.measure_range(points, groups, 3, fused=way) for way in (True, False))
np.testing.assert_allclose(fused, plain, rtol=1e-12)
print("all the same")
"""


def test_fused_kernels_give_what_the_cpu_gives_and_build_an_index_once():
    """By Triton's interpreter, which runs the kernels without a GPU."""
    pytest.importorskip("triton")
    run = [sys.executable, "-c", f"import os; os.environ['TRITON_INTERPRET'] = '1'\n{INTERPRETED}"]
    found = subprocess.run(run, capture_output=True, text=True, check=False)
    if "only 0-dimensional arrays can be converted" in found.stderr:
        pytest.skip("this release of Triton's interpreter does not run with this release of numpy")
    assert found.stdout.strip() == "all the same", found.stderr
