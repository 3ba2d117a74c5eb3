"""Partitions side by side and read ahead: the same results in the same order, bounded memory, no thread left behind."""

import signal
import threading
import time
import weakref
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.validation import check_array

from evenout import FairOutlierEnsemble
from evenout.out_of_core.engines import AHEAD, Engine, Partition, Staged, _features, in_order, merge_tree

N_PARTS = 9


def threads_at_work():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("evenout-parts")]


class Rows(np.ndarray):
    """An array whose life can be watched."""


class Watched:
    """Partitions that know which of them were read, and how many were in memory at most."""

    def __init__(self, slow=(), bad=(), seconds=0.02):
        self.slow, self.bad, self.seconds = slow, bad, seconds
        self.read, self.alive, self.most, self.lock = [], 0, 0, threading.Lock()
        self.parts = [Partition(i, f"part-{i}", partial(self._load, i)) for i in range(N_PARTS)]

    def engine(self, n_threads):
        return Engine(self.parts, None, n_threads)

    def _load(self, i):
        with self.lock:
            self.read.append(i)
            self.alive += 1
            self.most = max(self.most, self.alive)
        time.sleep(self.seconds if i in self.slow else 0.001)
        if i in self.bad:
            raise ValueError(f"part {i} is bad")
        rows = np.full(3, float(i)).view(Rows)
        weakref.finalize(rows, self._gone)
        return (rows,)

    def _gone(self):
        with self.lock:
            self.alive -= 1


def rows_of(part, *shared):  # noqa: ARG001
    return part.load()[0]


def told(rows, word):
    return f"{word}{rows[0]:.0f}"


def told_part(part, word):
    return told(rows_of(part), word)


def same(rows, word):  # noqa: ARG001
    return rows


# Whole partitions side by side; rows that are read ahead; and those that are finished by others too.
STEPS = (told_part, Staged(rows_of, told), Staged(rows_of, same, told))


def joined(one, two):
    return f"({one}{two})"


EXPECTED = merge_tree([f"p{i}" for i in range(N_PARTS)], joined)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("slow", [(), (0,), (3, 4)])
def test_results_are_merged_in_the_order_of_the_partitions(n_threads, slow):
    for work in STEPS:
        watched = Watched(slow)
        assert watched.engine(n_threads).reduce(work, joined, "p") == EXPECTED
        assert sorted(watched.read) == list(range(N_PARTS))
        assert not threads_at_work()


def test_no_more_partitions_are_in_memory_than_is_said():
    for n_threads in (1, 2, 4):
        watched = Watched(slow=(2,))
        watched.engine(n_threads).reduce(told_part, joined, "p")
        assert watched.most <= n_threads
        assert watched.alive == 0

    def slowly(step, *given):
        time.sleep(0.01)  # so that others come as far as they may
        return step(*given)

    for steps, finished in (((told, None), 0), ((same, partial(slowly, told)), 1)):
        work = Staged(rows_of, partial(slowly, steps[0]), steps[1])
        for n_threads in (1, 2, 8):
            watched, most = Watched(), 1 + (AHEAD + finished) * (n_threads > 1)
            assert watched.engine(n_threads).reduce(work, joined, "p") == EXPECTED
            assert min(most, 2) <= watched.most <= most
            assert watched.alive == 0


@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_first_bad_partition_is_the_one_that_is_told(n_threads):
    """Part 5 fails sooner than part 2, and is not told; most of the others are never read."""
    for work in STEPS:
        watched = Watched(slow=(2,), bad=(2, 5), seconds=0.05)
        with pytest.raises(ValueError, match="part 2 is bad"):
            watched.engine(n_threads).reduce(work, joined, "p")
        assert not threads_at_work()
        assert len(watched.read) <= (3 if n_threads == 1 else 3 + 2 * n_threads)


def test_an_earlier_error_goes_before_a_later_one():
    """Part 1 fails after it was worked on, slowly; part 2 at once, in the work."""

    def work(rows, word):  # noqa: ARG001
        if rows[0] == 2:
            raise ValueError("part 2 failed")
        return rows

    def after(rows, word):
        if rows[0] == 1:
            time.sleep(0.05)
            raise ValueError("part 1 failed")
        return told(rows, word)

    with pytest.raises(ValueError, match="part 1 failed"):
        Watched().engine(3).reduce(Staged(rows_of, work, after), joined, "p")
    assert not threads_at_work()


def test_an_error_in_the_work_itself_ends_the_reading():
    watched = Watched()

    def fails(rows, word):
        if rows[0] == 1:
            raise KeyboardInterrupt
        return told(rows, word)

    with pytest.raises(KeyboardInterrupt):
        watched.engine(4).reduce(Staged(rows_of, fails), joined, "p")
    assert not threads_at_work()
    assert max(watched.read) <= 1 + AHEAD


def test_an_interruption_ends_a_pass_at_once():
    """Only what threads have in hand is finished: some hundredths of a second, of two seconds that are left.

    The signal comes again and again: Python ignores an exception in a place where none can be raised.
    """
    watched = Watched(slow=range(N_PARTS), seconds=0.05)
    parts = [replace(part, index=i) for i in range(10) for part in watched.parts]
    done = threading.Event()

    def interrupt(*_):
        if not done.is_set():
            raise KeyboardInterrupt

    def again():
        while not done.wait(0.12):
            signal.raise_signal(signal.SIGINT)

    before, sender = signal.signal(signal.SIGINT, interrupt), threading.Thread(target=again)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            Engine(parts, None, 2).reduce(told_part, joined, "p")
    finally:
        done.set()
        sender.join()
        signal.signal(signal.SIGINT, before)
    assert not threads_at_work()
    assert len(watched.read) < 20


def test_a_closed_generator_ends_its_threads():
    made = in_order(abs, range(-50, 0), 2, 3)
    assert next(made) == 50
    made.close()
    assert not threads_at_work()


@pytest.mark.parametrize(
    "settings",
    [
        {"detectors": "default"},
        pytest.param({"detectors": "paper", "correction": "resemblance"}, marks=pytest.mark.long),
    ],
)
def test_the_model_does_not_depend_on_the_threads(settings, tables, engine, tmp_path):
    """Bit for bit: what is summed, in which order, is the same."""
    local = engine(tables(700), 7)
    found = []
    for n_threads in (1, 3):
        folder = tmp_path / str(n_threads)
        folder.mkdir()
        model = FairOutlierEnsemble(random_state=0, alpha=20.0, reference_size=200, **settings)
        model.fit_partitions(replace(local, n_threads=n_threads), exact_rows=100, scores_to=folder)
        found.append((model, _written(folder)))
    (one, scores), (three, others) = found
    np.testing.assert_array_equal(one.weights_, three.weights_)
    np.testing.assert_array_equal(one.flag_rates_, three.flag_rates_)
    np.testing.assert_array_equal(one.path_.cross.held.plain, three.path_.cross.held.plain)
    assert (one.offset_, one.rank_error_) == (three.offset_, three.rank_error_)
    pd.testing.assert_frame_equal(scores, others, check_exact=True)


def test_scores_without_room_to_keep_them_are_those_with_room(tables, engine):
    class Forgetful(Engine):
        def scratch(self):
            return nullcontext(partial(Path, "no/such/folder"))

    local = engine(tables(900), 5)
    settings = {"random_state": 0, "alpha": 20.0, "reference_size": 200}
    kept = FairOutlierEnsemble(**settings).fit_partitions(replace(local, n_threads=2))
    again = FairOutlierEnsemble(**settings).fit_partitions(Forgetful(local.parts, local.header, 2))
    np.testing.assert_array_equal(kept.weights_, again.weights_)
    assert kept.offset_ == again.offset_


def _written(folder):
    return pd.concat([pd.read_parquet(file) for file in sorted(folder.iterdir())], ignore_index=True)


@pytest.mark.parametrize("kinds", ["float64", "float32", "int64", "mixed"])
def test_plain_numbers_are_cleaned_as_by_the_long_way(kinds):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)) * 100, columns=list("abc"))
    frame = frame.astype({"a": "int32", "b": "float32"} if kinds == "mixed" else kinds)
    expected = check_array(frame, dtype=np.float64, order="C")
    for X in (frame, frame.to_numpy(), np.asfortranarray(frame.to_numpy())):
        found = _features(X)
        assert found.flags.c_contiguous
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e40])
def test_gaps_and_huge_numbers_are_refused_as_before(value):
    X = np.zeros((4, 2))
    X[2, 1] = value
    with pytest.raises(ValueError, match=r"X .*(NaN|infinity|1e\+30|1e\+40)"):
        _features(X)
