import gc
from threading import get_ident

import numpy as np
import pytest
from numba import config
from numba.core import event
from threadpoolctl import threadpool_info, threadpool_limits

from evenout.core.parallel import compiled, map_blocks, one_blas_thread


@pytest.mark.parametrize("n_threads", [1, 2, 7])
@pytest.mark.parametrize(
    ("n_rows", "block", "expected"),
    [(0, 3, []), (2, 3, [(0, 2)]), (6, 3, [(0, 3), (3, 6)]), (7, 3, [(0, 3), (3, 6), (6, 7)])],
)
def test_blocks_cover_the_rows_in_order(n_rows, block, expected, n_threads):
    found = map_blocks(lambda rows: (rows.start, rows.stop), n_rows, block, n_threads)
    assert found == expected


def test_one_thread_or_one_block_needs_no_other_thread():
    assert set(map_blocks(lambda _: get_ident(), 3, 1, n_threads=1)) == {get_ident()}
    assert map_blocks(lambda _: get_ident(), 1, 1, n_threads=2) == [get_ident()]
    assert get_ident() not in map_blocks(lambda _: get_ident(), 2, 1, n_threads=2)


def double():
    """A function without a file."""
    names = {}
    exec("def double(x):\n    return 2.0 * x", names)
    return names["double"]


def test_function_without_a_file_is_compiled_though_not_kept():
    assert compiled()(double())(np.float64(1.5)) == 3.0


def test_small_matrices_keep_to_one_thread_and_leave_the_setting_as_it_was():
    def threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    if not threads():
        pytest.skip("this threadpoolctl knows no library of numpy's")
    with threadpool_limits(2, "blas"):
        assert threads() == {2}
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


def test_threads_that_overlap_leave_the_setting_as_it_was():
    """One that comes second and leaves last finds the limit of the first, and must not restore that."""

    def threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    if not threads():
        pytest.skip("this threadpoolctl knows no library of numpy's")
    with threadpool_limits(2, "blas"):
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == {2}


def test_the_collector_rests_while_a_kernel_is_compiled_and_is_left_as_it_was():
    seen = []

    class Look(event.Listener):
        def on_start(self, _):
            seen.append(gc.isenabled())

        def on_end(self, _):
            pass

    kernel = compiled()(double())  # never kept on disk, so it is compiled here
    with event.install_listener("numba:compile", Look()):
        assert kernel(1.5) == 3.0
    assert seen == ([] if config.DISABLE_JIT else [False])
    assert gc.isenabled()
    gc.disable()
    try:
        assert compiled()(double())(1.5) == 3.0
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.skipif(config.DISABLE_JIT, reason="Python's own division raises")
def test_division_by_zero_gives_what_numpy_gives():
    assert compiled(bare=True)(lambda x: 1.0 / x[0])(np.zeros(1)) == np.inf
