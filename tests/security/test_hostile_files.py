"""Files from strangers: they run no code, reach no other file and fill no memory."""

import gzip
import json
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenout import FairOutlierEnsemble
from evenout.datasets import load_dataset
from evenout.persistence import ModelFileError, load_model, save_model
from evenout.storage.archive import write_plain

# Reads files and prints what was said of each, then how much memory, in MiB, was taken at most above what the
# libraries need, and which events happened that could run code from a file: Python itself reports them.
WATCHED = """
import resource, sys
from pathlib import Path
import pandas, pyarrow.parquet, skops.io
from evenout.tables.files import read_table
from evenout.persistence import load_model

forbidden = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")
happened = []
sys.addaudithook(lambda event, _: event in forbidden and happened.append(event))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in map(Path, sys.argv[1:]):
    try:
        print("read", type((load_model if path.suffix == ".skops" else read_table)(path)).__name__)
    except ValueError as error:
        print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, happened)
"""


def watch(paths):
    """What is said of each file when it is read in another process, in which no code from a file is run."""
    command = [sys.executable, "-c", WATCHED, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *said, last = done.stdout.splitlines()
    memory, happened = last.split(maxsplit=1)
    assert (int(memory) < 100, happened) == (True, "[]")
    assert len(said) == len(paths)
    return said


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    X, path = np.random.default_rng(0).normal(size=(60, 3)) ** 2, tmp_path_factory.mktemp("m") / "m.skops"
    model = FairOutlierEnsemble("precomputed", alpha=1.0).fit(X, sensitive_features=["p", "q"] * 30)
    save_model(model, path)
    return path


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path, content, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in content.items():
            archive.writestr(name, data)


class Evil:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return open, (str(self.trace), "w")


def test_no_file_runs_code_when_it_is_loaded(model_file, tmp_path):
    own, payload = members(model_file), pickle.dumps(Evil(tmp_path / "trace"))
    (tmp_path / "pickle.skops").write_bytes(payload)
    for place, name in enumerate(["0.npy", "schema.json", "model.pkl", "../evil.pkl"]):
        write(tmp_path / f"{place}.skops", own | {name: payload})
    said = watch([model_file, *sorted(tmp_path.glob("*.skops"))])
    assert [words.startswith("read FairOutlierEnsemble") for words in said] == [
        True,  # the model itself
        False,
        False,
        True,  # with members that nothing refers to, and nothing reads
        True,
        False,  # a pickle under the name of a model
    ]
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("place", ["../secret.npy", "/etc/passwd", "..\\0.npy", "0.npy\0", "", None, ["0.npy"]])
def test_arrays_come_from_the_file_itself_alone(place, model_file, tmp_path):
    np.save(tmp_path / "secret.npy", np.zeros(3))
    content = members(model_file)
    content["schema.json"] = content["schema.json"].replace(b'"0.npy"', json.dumps(place).encode(), 1)
    write(tmp_path / "m.skops", content)
    with pytest.raises(ModelFileError, match="was not loaded"):
        load_model(tmp_path / "m.skops")


@pytest.mark.parametrize("name", ["../data/credit", "/etc/passwd", "credit.csv.gz/../credit", "credit\0", "."])
def test_names_of_data_sets_are_no_paths(name):
    with pytest.raises(ValueError, match="the data sets are"):
        load_dataset(name)


def many_times(path):
    """One array of 8 MiB, named 500 times: 4 GiB from a file of 8 MiB."""
    write_plain({"a": np.zeros(2**20)}, path)
    content = members(path)
    schema = json.loads(content["schema.json"])
    shape = {"__loader__": "ListNode", "__module__": "builtins", "__class__": "list"}
    schema["content"]["a"] = shape | {"content": [schema["content"]["a"]] * 500}
    write(path, content | {"schema.json": json.dumps(schema)})


def swollen_schema(path):
    write(path, {"schema.json": b" " * 2**28}, zipfile.ZIP_DEFLATED)


def endless_array(path):
    """An array that says to be of 8 TiB."""
    write_plain({"a": np.zeros(3)}, path)
    content = members(path)
    header = content["0.npy"].replace(b"(3,), }           ", b"(1099511627776,), }")
    assert header != content["0.npy"]
    write(path, content | {"0.npy": header})


def endless_line(path):
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(16):
            file.write(b"a" * 2**24)


def endless_rows(path):
    row = b",".join([b"1"] * 50_000) + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b",".join(b"%d" % i for i in range(50_000)) + b"\n")
        for _ in range(2**30 // len(row) + 1):
            file.write(row)


def endless_column(path):
    """2^28 rows in a few kilobytes."""
    pq.write_table(pa.table({"a": pa.nulls(2**28)}), path, row_group_size=2**28)


BOMBS = {
    "many_times.skops": (many_times, "an array twice"),
    "swollen_schema.skops": (swollen_schema, "compressed"),
    "endless_array.skops": (endless_array, "longer or shorter than it says"),
    "endless_line.csv.gz": (endless_line, "line 1: longer than"),
    "endless_column.parquet": (endless_column, "more than 200 times its size"),
}


def test_small_files_that_would_fill_the_memory_are_refused_before_they_do(tmp_path):
    for name, (make, _) in BOMBS.items():
        make(tmp_path / name)
        assert (tmp_path / name).stat().st_size < 2**24
    said = watch([tmp_path / name for name in BOMBS])
    assert [words in line for (_, words), line in zip(BOMBS.values(), said, strict=True)] == [True] * 5, said


@pytest.mark.long
def test_endless_rows_are_refused_before_they_fill_the_memory(tmp_path):
    endless_rows(tmp_path / "t.csv.gz")
    assert "more than 200 times its size" in watch([tmp_path / "t.csv.gz"])[0]
