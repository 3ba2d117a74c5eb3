"""The state of a watch: nothing is lost in a file, by a kill, or by a hostile file."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenout import FairnessMonitor, Groups
from evenout.persistence import ModelFileError
from evenout.storage.archive import plain, read_plain, write_plain


def example(n_weeks=5, person=None, **settings):
    rng = np.random.default_rng(0)
    monitor = FairnessMonitor(groups=Groups(unknown="ignore"), **settings)
    for i in range(n_weeks):
        groups = rng.choice(np.array(["a", "b & c", "new", None], dtype=object), size=200)
        if i == 0:
            groups[groups == "new"] = "a"
        scores = rng.normal(size=200) + 2.0 * (groups == "a")
        monitor.update(scores, sensitive_features=groups, batch=f"w{i}", person=person)
    monitor.columns = {"score": ["risk"], "sensitive": ["sex", "age"]}
    return monitor


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tolerance": {"a": 0.1}, "flag_rate_ratio": 0.8, "contamination": 20},
        {"tolerance": "start", "person": [f"p{i}" for i in range(200)]},
    ],
)
def test_a_watch_comes_back_as_it_was(tmp_path, settings):
    monitor = example(**settings)
    assert monitor.alarm == (settings.get("tolerance") != "start")
    monitor.save(tmp_path / "state.skops")
    again = FairnessMonitor.load(tmp_path / "state.skops")
    assert (again.settings, again.alarms, again.batches) == (monitor.settings, monitor.alarms, monitor.batches)
    assert again.columns == monitor.columns
    assert repr(again) == repr(monitor)
    assert "w0" in again
    pd.testing.assert_frame_equal(again.history(), monitor.history())
    again.save(tmp_path / "twice.skops")
    assert (tmp_path / "twice.skops").read_bytes() == (tmp_path / "state.skops").read_bytes()
    for each in (monitor, again):  # and goes on alike
        rng = np.random.default_rng(9)
        each.update(rng.normal(size=200), sensitive_features=["a", "b & c"] * 100, person=settings.get("person"))
    assert repr(again) == repr(monitor)


def numbers(data):
    """Every number in a file's plain data."""
    if isinstance(data, dict | list):
        return np.concatenate([numbers(each) for each in (data.values() if isinstance(data, dict) else data)] or [[]])
    return np.atleast_1d(np.asarray(data, dtype=float)).ravel() if not isinstance(data, str | None) else np.zeros(0)


@pytest.mark.parametrize("n_start", [40, 137, 3000, 20_000])
def test_no_score_and_no_person_is_in_the_file(tmp_path, n_start):
    """Of a start of any size, and of batches in which one group is a single person."""
    rng = np.random.default_rng(0)
    start, scores = rng.normal(size=n_start), rng.normal(size=101)
    monitor = FairnessMonitor("start", flag_rate_ratio=0.8)
    monitor.start(start, sensitive_features=["a", "b"] * (n_start // 2) + ["one"] * (n_start % 2))
    persons = [f"person-{i}" for i in range(101)]
    monitor.update(scores, sensitive_features=["a"] * 100 + ["b"], person=persons)
    monitor.save(tmp_path / "state.skops")
    kept = numbers(read_plain(tmp_path / "state.skops"))
    assert not np.isin(kept, np.concatenate([start, scores])).any()
    assert len(monitor.reference.knots) <= n_start / 10
    assert monitor.findings.ledger.columns["counts"].tolist() == [[100, 0]]
    assert not monitor.findings.ledger.sums[..., 1].any()
    assert not monitor.findings.ledger.signed[:, :, 1].any()
    assert b"person-" not in (tmp_path / "state.skops").read_bytes()


def test_a_watch_of_an_earlier_format_is_refused_in_one_line(tmp_path):
    write_plain(plain({"watch": 1, "settings": {}, "reference": {}}), tmp_path / "old.skops")
    with pytest.raises(ModelFileError, match=r"format 1, of evenout 0\.2: begin another watch$"):
        FairnessMonitor.load(tmp_path / "old.skops")


def test_two_years_fit_into_one_small_file(tmp_path):
    monitor, rng = FairnessMonitor(), np.random.default_rng(0)
    for _ in range(105):
        monitor.update(rng.normal(size=40), sensitive_features=np.tile(list("abcde"), 8))
    monitor.save(tmp_path / "state.skops")
    assert (tmp_path / "state.skops").stat().st_size < 70_000


def test_a_watch_that_has_not_begun_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="not begun"):
        FairnessMonitor().save(tmp_path / "state.skops")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("watch",), 99),
        (("settings", "tolerance"), -1.0),
        (("settings", "nonsense"), 1),
        (("start", "knots"), np.array([2.0, 1.0])),
        (("start", "knots"), np.array([np.nan])),
        (("start", "counts"), np.array([0, 0])),
        (("start", "labels"), ["a", "a"]),
        (("start", "counts"), np.array([4, 100])),
        (("start", "flagged"), np.array([0.1, 2.0])),
        (("start", "ranks"), np.array([0.1])),
        (("start", "low"), np.array([0.9])),
        (("start", "left_out"), {"c": -1}),
        (("columns",), {"score": "risk"}),
        (("looks",), -1),
        (("names",), ["w1"] * 4),
        (("places",), np.array([0, 1, 2, 3])),
        (("sums",), np.full((4, 6, 2), -1.0)),
        (("sums",), np.zeros((4, 6, 3))),
        (("sums",), np.ones((4, 6, 2))),
        (("signed",), np.zeros((4, 2, 2, 64))),
        (("signed",), np.full((4, 2, 2, 0), 1.0)[:2]),
        (("others",), []),
        (("alarms",), [{"promise": "x"}]),
    ],
)
def test_files_that_no_watch_wrote_are_refused_in_one_line(tmp_path, where, value):
    example().save(tmp_path / "state.skops")
    data = read_plain(tmp_path / "state.skops")
    inner = data
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = value
    write_plain(plain(data), tmp_path / "bad.skops")
    with pytest.raises(ModelFileError, match=r"bad\.skops cannot be loaded") as error:
        FairnessMonitor.load(tmp_path / "bad.skops")
    assert "\n" not in str(error.value)


def test_a_model_is_no_watch(tmp_path):
    (tmp_path / "text.skops").write_text("a,b\n1,2\n")
    with pytest.raises(ModelFileError, match="damaged, or no file of a watch"):
        FairnessMonitor.load(tmp_path / "text.skops")


_KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from evenout import FairnessMonitor

folder = Path(sys.argv[1])
rng = np.random.default_rng(0)
batches = [(f"w{i}", rng.normal(size=60), rng.choice(["a", "b"], 60)) for i in range(2)]

def work(state, last):
    monitor = FairnessMonitor.load(state) if state.exists() else FairnessMonitor()
    for name, scores, groups in batches:
        if name not in monitor:
            monitor.update(scores, sensitive_features=groups, batch=name).save(state)
            last(name)

def killed_at(event, state, log):
    seen = 0
    def hook(name, args):
        nonlocal seen
        if name.startswith(("open", "os.", "shutil.", "tempfile.")):
            seen += 1
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    work(state, lambda name: os.write(log, name.encode()))
    os._exit(0)

work(folder / "whole.skops", lambda name: None)
whole = (folder / "whole.skops").read_bytes()
event = kills = 0
while True:
    event += 1
    state = folder / f"state-{event}.skops"
    reading, log = os.pipe()
    child = os.fork()
    if child == 0:
        killed_at(event, state, log)
    os.close(log)
    ended = os.waitpid(child, 0)[1]
    done = [f"w{c}" for c in os.read(reading, 1000).decode().replace("w", "")]
    os.close(reading)
    if state.exists():  # whole, and with all that was said to be counted
        monitor = FairnessMonitor.load(state)
        assert all(name in monitor for name in done), (event, done, monitor.batches)
    else:
        assert not done, (event, done)
    work(state, lambda name: None)
    assert state.read_bytes() == whole, event
    if not os.WIFSIGNALED(ended):
        break
    kills += 1
print(kills)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_between_any_two_writes_loses_nothing(tmp_path):
    """A process is killed for good before each of its file operations in turn; the next one goes on."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) >= 20
    assert {Path(file).suffix for file in tmp_path.glob("state-*")} == {".skops"}
