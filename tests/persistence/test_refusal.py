"""Damaged and crafted files are refused in one line before anything of them is used."""

import copy
import io
import json
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import IsolationForest
from sklearn.preprocessing import FunctionTransformer

import evenout
from evenout import Groups
from evenout.persistence import ModelFileError, load_model
from evenout.storage.archive import read_plain, write_plain

DATES = {"kind": "dates", "name": "a", "note": "", "median": 1.0, "first": 0.0, "way": "date %Y", "parts": []}


def refused(path, words=""):
    with pytest.raises(ModelFileError, match="was not loaded") as caught:
        load_model(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def data(model_file):
    """What a file holds, as the tests of this module leave it: `put` makes copies."""
    return read_plain(model_file)


@pytest.fixture(scope="module", params=["model_file", "default_file"])
def any_data(request):
    return read_plain(request.getfixturevalue(request.param))


@pytest.fixture
def refused_data(data, monkeypatch):
    """`refused`, of what a file holds: for many changes, each of which would take a tenth of a second to write."""
    held = [copy.deepcopy(data)]
    monkeypatch.setattr("evenout.persistence.read_plain", lambda _: held[0])
    load_model("m.skops")  # nothing is wrong with it yet

    def check(data, words=""):
        held[0] = data
        refused("m.skops", words)

    return check


MAPS = ("maps", "models")
FREE = {"buckets", "crowd"}  # any detectors, and any rows: a shorter array is another one that is sound


def arrays(value, place=()):
    """Every array of plain data that has entries, with the keys that lead to it; of models for new rows the first."""
    if isinstance(value, np.ndarray):
        if value.size:
            yield place, value
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value[:1] if place[-2:] == MAPS else value)
        for key, item in items:
            yield from arrays(item, (*place, key))


def put(data, place, value):
    """A copy of plain data with another value at a place."""
    changed = copy.deepcopy(data)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


def test_every_array_of_another_length_type_or_dimension_is_refused(any_data, refused_data):
    tried = 0
    for place, array in arrays(any_data):
        other = np.int32 if array.dtype != np.int32 else np.int64
        shorter = () if FREE & {*place} else (array[:-1],)
        for wrong in (*shorter, array.astype(other) if len(array) % 2 else array[None]):
            refused_data(put(any_data, place, wrong))
            tried += 1
    assert tried > 50


def test_every_index_out_of_bounds_is_refused(any_data, refused_data):
    tried = 0
    for place, array in arrays(any_data):
        if array.dtype.kind == "i":
            for wrong in (-2, np.iinfo(array.dtype).max):  # -1 is a row without a group
                changed = array.copy()
                changed.flat[-1] = wrong
                refused_data(put(any_data, place, changed), place[-1] if isinstance(place[-1], str) else "")
                tried += 1
    assert tried > 20


def test_every_array_that_is_not_finite_is_refused(any_data, refused_data):
    tried = 0
    for place, array in arrays(any_data):
        if array.dtype.kind == "f" and place[-1] != "flag_rates":  # which are not known without the rows
            changed = array.copy()
            changed.flat[0] = np.nan
            refused_data(put(any_data, place, changed), "is not finite")
            tried += 1
    assert tried > 15


def at(data, name):
    """The place of the part of the given kind."""
    kinds = [part["kind"] for part in data["ensemble"]["result"]["scores"]["pool"]["parts"]]
    return ("ensemble", "result", "scores", "pool", "parts", kinds.index(name))


@pytest.mark.parametrize(
    ("part", "field", "change"),
    [
        ("forest", "child", lambda child: np.roll(child, 1000, axis=0)),  # into another tree
        ("forest", "root", lambda root: root[::-1].copy()),
        ("forest", "sizes", lambda sizes: sizes + 1),
        ("forest", "depth", lambda _: 10**9),
        ("forest", "depth", lambda _: -1),
        ("forest", "max_samples", lambda _: 10**6),
        ("neighbours", "counts", lambda counts: counts * 2),
        ("neighbours", "lof", lambda lof: lof + 1000),
        ("neighbours", "knn", lambda knn: knn * 0),
        ("forest", "kind", lambda _: "neighbours"),
        ("forest", "kind", lambda _: "precomputed"),
        ("forest", "kind", lambda _: ["forest"]),
    ],
)
def test_detectors_that_would_leave_their_arrays_are_refused(part, field, change, data, tmp_path):
    state = data["ensemble"]["result"]["scores"]["pool"]["parts"][at(data, part)[-1]]
    write_plain(put(data, (*at(data, part), field), change(state[field])), tmp_path / "m.skops")
    refused(tmp_path / "m.skops")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("format",), 8, f"a later evenout ({evenout.__version__}, format 8) wrote it, and this one"),
        (("format",), 8, "reads format 7; update evenout"),
        (("format",), True, "format"),
        (("format",), "2", "format"),
        (("ensemble", "result", "choice", "met"), None, "met"),
        (("ensemble", "result", "choice", "interval"), ["-inf", 1.0], "interval[0] is no number"),
        (("ensemble", "result", "choice", "kind"), "eval", "kind"),
        (("ensemble", "result", "groups", "left_out"), {"x": -1}, "x is out of range"),
        (("ensemble", "result", "n_rows"), 3, "n_rows is out of range"),
        (("objects",), np.zeros(3), "objects"),
        (("ensemble", "result", "mixture", "target"), float("inf"), "target is not finite"),
        (("ensemble", "result", "path", "method"), "magic", "method"),
        (("ensemble", "result", "path", "cross", "refitted"), None, "refitted"),
        (("ensemble", "result", "path", "cross", "held", "sums"), {}, "individual.form is missing"),
        (
            ("ensemble", "result", "path", "cross", "whole", "base"),
            np.ones((1, 24)),
            "training does not go with the rest",
        ),
        (("ensemble",), None, "ensemble"),
        (("ensemble", "result", "choice", "alpha"), float("nan"), "alpha"),
        (("ensemble", "n_features"), 4, ""),
        (("ensemble", "result", "groups", "labels"), ["f", "m"], ""),
        (("ensemble", "result", "groups", "labels"), [1, 2, 3, 4], "labels"),
        (("ensemble", "parameters", "device_of_tomorrow"), "x", "is unknown: update evenout"),
        (("ensemble", "parameters", "n_jobs"), 10**9, "is unknown"),
        (("ensemble", "feature_names"), ["a"], "feature_names"),
        (("ensemble", "result", "scores", "pool", "names"), ["a"], "names"),
        (("ensemble", "result", "scores", "pool", "parts"), [], "parts"),
        (("ensemble", "result", "scores", "combination", "kind"), "eval", "combination.kind"),
        (("ensemble", "result", "scores", "combination", "buckets"), [], "buckets"),
        (("ensemble", "result", "scores", "combination", "buckets"), [[0]], "bucket"),
        (("ensemble", "result", "scores", "scaling", "kind"), "minmax", "sorted_scores"),
        (("ensemble", "result", "path", "notions"), [], "notions"),
        (("ensemble", "result", "path", "notions"), [["demographic_parity", -1.0]], "notions[0][1] is out of range"),
        (("ensemble", "result", "path", "notions"), [["equal_luck", 1.0]], "of no known kind"),
        (("ensemble", "result", "path", "notions"), [[{"object": 0}, 1.0]], "object is missing"),
        (("ensemble", "result", "path", "constraint"), "whatever", "constraint"),
        (("ensemble", "result", "background"), "x", "background"),
        (("ensemble", "result", "background", "n_groups"), -1, "n_groups is out of range"),
        (("ensemble", "result", "background", "tells"), np.full(6, 2.0), "tells is out of range"),
        (("ensemble", "result", "background", "levels"), -np.arange(642.0).reshape(107, 6), "levels is out of order"),
        (("table", "columns"), ["a", "b", "c"], "columns"),
        (("table", "columns", 3, "values"), ["own"], "has other features than its ensemble"),
        (("table", "columns", 3, "values"), ["own", "own"], "values names one twice"),
        (("table", "columns", 3, "values"), [], "values"),
        (("table", "columns", 3, "rest"), True, "values has no place for the rest"),
        (("table", "columns", 3, "kind"), "eval", "kind"),
        (("table", "columns", 3), {"kind": "left out", "name": "a", "note": ""}, "names one twice"),
        (("table", "columns"), [{"kind": "left out", "name": "a", "note": ""}], "holds no feature"),
        (("table", "columns", 0, "name"), "z", "model.table has other features than its ensemble"),
        (("ensemble", "feature_names", 0), "z", "model.table has other features than its ensemble"),
        (("tables",), None, "model.tables is unknown: update evenout"),
        (("table", "columns", 0, "median"), float("inf"), "is not finite"),
        (("table", "columns", 0, "way"), "date x", "way"),
        *(
            (("table", "columns", 0), {**DATES, name: wrong}, name)
            for name, wrong in (("way", "number"), ("parts", ["era"]), ("median", 1e9), ("first", "x"))
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(place, value, words, data, refused_data):
    refused_data(put(data, place, value), words)


def test_a_file_without_its_table_is_refused(data, refused_data):
    refused_data({name: item for name, item in data.items() if name != "table"}, "model.table is missing")


def test_sums_without_a_solution_are_refused(data, tmp_path):
    place = ("ensemble", "result", "path", "cross", "whole", "weighted")
    weighted = data["ensemble"]["result"]["path"]["cross"]["whole"]["weighted"]
    for wrong in (0.0 * weighted, 1e308 * np.linspace(-0.4, 0.4, weighted.size).reshape(weighted.shape)):
        write_plain(put(data, place, wrong), tmp_path / "m.skops")
        refused(tmp_path / "m.skops", "result.path has no solution")


def test_a_file_of_the_first_format_names_its_writer_and_its_reader(data, tmp_path):
    older = {**data, "format": 1, "evenout": "0.0.9\n\x1b[2J" + "9" * 1000}
    write_plain(older, tmp_path / "m.skops")
    refused(tmp_path / "m.skops", "not loaded: an earlier evenout (0.0.9[2J999")
    reader = f", format 1) wrote it, and this one ({evenout.__version__}) reads format 7; fit the model anew"
    refused(tmp_path / "m.skops", reader)
    write_plain({**older, "evenout": None}, tmp_path / "m.skops")
    refused(tmp_path / "m.skops", "evenout is no text")


@pytest.mark.parametrize(
    "thing",
    [
        IsolationForest(n_estimators=2).fit([[0.0], [1.0]]),
        FunctionTransformer(np.exp),
        {"format": OrderedDict(a=1)},
        {"format": np.array([1, "a"], dtype=object)},
        {"format": np.array(["a"])},
        {"format": np.float64(1.0)},
        {"format": slice(0, 1)},
        {"format": (1, 2)},
        {"format": {1}},
        {"format": b"1"},
        {1: "format"},
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_types_other_than_plain_data_are_refused_though_skops_trusts_them(thing, tmp_path):
    (tmp_path / "skops.skops").write_bytes(skops.io.dumps(thing))
    rewrite(tmp_path / "skops.skops", tmp_path / "m.skops")
    refused(tmp_path / "m.skops", "which a model of evenout never does")


def test_no_code_named_in_a_file_is_even_imported(data, tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    write_plain(data, tmp_path / "m.skops")
    for node in (
        {"__loader__": "ObjectNode", "__module__": "evil_module", "__class__": "Evil"},
        {"__loader__": "FunctionNode", "__module__": "os", "__class__": "system"},
        {"__loader__": "TypeNode", "__module__": "evil_module", "__class__": "str"},
        {"__loader__": "JsonNode", "__module__": "evil_module", "__class__": "str", "content": "1"},
    ):
        rewrite(
            tmp_path / "m.skops",
            tmp_path / "evil.skops",
            lambda schema, node=node: schema["content"].update(format=node),
        )
        refused(tmp_path / "evil.skops", "which a model of evenout never does")


def without_id(node):
    """A node as evenout writes it."""
    return {key: value for key, value in node.items() if key != "__id__"}


def rewrite(source, target, change=None, compression=zipfile.ZIP_STORED, replace=None):
    """Copy a model file with another schema, compression or content of its arrays."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression=compression) as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "schema.json":
                schema = json.loads(content, object_hook=without_id)
                if change is not None:
                    change(schema)
                content = json.dumps(schema).encode()
            elif replace is not None:
                content = replace(content)
            new.writestr(name, content)


def test_references_between_nodes_are_refused(model_file, tmp_path):
    rewrite(model_file, tmp_path / "m.skops", lambda schema: schema.update(__id__=1))
    refused(tmp_path / "m.skops", "references")


def test_compressed_parts_are_refused(model_file, tmp_path):
    rewrite(model_file, tmp_path / "m.skops", compression=zipfile.ZIP_DEFLATED)
    refused(tmp_path / "m.skops", "compressed or overlap")


def test_parts_that_claim_more_than_the_file_has_are_refused(model_file, tmp_path):
    content = bytearray(model_file.read_bytes())
    with zipfile.ZipFile(model_file) as archive:
        entry = content.index(b"PK\x01\x02")  # the first entry of the directory
        assert int.from_bytes(content[entry + 24 : entry + 28], "little") == archive.infolist()[0].file_size
    content[entry + 24 : entry + 28] = (2**31).to_bytes(4, "little")
    (tmp_path / "m.skops").write_bytes(content)
    refused(tmp_path / "m.skops", "compressed or overlap")


@pytest.mark.parametrize("shape", ["(10000000000000,)", "(-1, -7)", "(0,)", "()"])
def test_arrays_that_claim_another_length_are_refused(shape, model_file, tmp_path):
    header = str({"descr": "<f8", "fortran_order": False}).replace("}", f", 'shape': {shape}, }}")
    length = len(header).to_bytes(2, "little")
    rewrite(
        model_file,
        tmp_path / "m.skops",
        replace=lambda _: b"\x93NUMPY\x01\x00" + length + header.encode() + b"\0" * 56,
    )
    refused(tmp_path / "m.skops", "array")


def test_arrays_of_pickles_are_refused(model_file, tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.array([print], dtype=object), allow_pickle=True)
    rewrite(model_file, tmp_path / "m.skops", replace=lambda _: buffer.getvalue())
    refused(tmp_path / "m.skops", "array of type object")


def test_deeply_nested_files_are_refused(tmp_path):
    node = {"__loader__": "ListNode", "__module__": "builtins", "__class__": "list", "content": ["deeper"]}
    before, after = json.dumps(node).split('"deeper"')
    with zipfile.ZipFile(tmp_path / "m.skops", "w") as archive:
        archive.writestr("schema.json", before * 5000 + after * 5000)
    refused(tmp_path / "m.skops")


def test_truncated_files_are_refused_at_every_length(model_file, tmp_path):
    content = model_file.read_bytes()
    for share in np.linspace(0.001, 0.999, 10):
        (tmp_path / "m.skops").write_bytes(content[: int(share * len(content))])
        refused(tmp_path / "m.skops")


def test_files_with_a_changed_byte_are_refused_or_load_as_plain_models(model_file, tmp_path, pipeline, new_rows):
    content = model_file.read_bytes()
    rng = np.random.default_rng(0)
    directory = content.index(b"PK\x01\x02")
    places = np.r_[rng.integers(0, len(content), 25), rng.integers(directory, len(content), 25)]
    loaded = 0
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "m.skops").write_bytes(changed)
        try:
            model = load_model(tmp_path / "m.skops")
        except ModelFileError:
            continue
        loaded += 1  # the byte is one that no reader looks at, such as a date
        np.testing.assert_array_equal(model.score_samples(new_rows), pipeline.score_samples(new_rows))
    assert loaded < len(places) / 2


@pytest.mark.parametrize("content", [b"not a zip file", b"PK\x03\x04" + b"\0" * 100, b"\x80\x04N."])
def test_other_files_are_refused(content, tmp_path):
    (tmp_path / "m.skops").write_bytes(content)
    refused(tmp_path / "m.skops", "no model file of evenout")


def test_absent_and_empty_files_and_folders_are_refused(tmp_path):
    (tmp_path / "empty.skops").touch()
    for path, words in (
        (tmp_path, "folder"),
        (tmp_path / "empty.skops", "empty"),
        (tmp_path / "no.skops", "exist"),
    ):
        with pytest.raises(ValueError, match=words):
            load_model(path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("spread", lambda values: -values),
        ("spread", np.zeros_like),
        ("kept", lambda values: values[::-1].copy()),
        ("kept", np.zeros_like),
    ],
)
def test_units_that_no_table_has_are_refused(name, change, any_data, tmp_path):
    place = ("ensemble", "result", "scores", "pool", "units", name)
    values = any_data["ensemble"]["result"]["scores"]["pool"]["units"][name]
    write_plain(put(any_data, place, change(values)), tmp_path / "m.skops")
    refused(tmp_path / "m.skops", name)


@pytest.fixture(scope="module")
def soft_data(tmp_path_factory):
    """A model that compares bands of a number and known inliers."""
    rng, file = np.random.default_rng(0), tmp_path_factory.mktemp("soft") / "soft.skops"
    model = evenout.FairOutlierEnsemble(
        fairness="equal_false_alarms", groups=Groups(continuous=("0",), bands=3), alpha=1.0, random_state=0
    )
    X = rng.normal(size=(200, 3))
    evenout.persistence.save_model(model.fit(X, sensitive_features=rng.random(200), labels=np.zeros(200)), file)
    return read_plain(file)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (("whole", "compared"), None),
        (("held", "compared"), None),
        (("training", "compared", "blocks", 0, "weight"), 0.5),
        (("whole", "compared", "blocks", 0, "groups"), np.array([0, 1, 3])),
        (("whole", "compared", "blocks", 0, "among"), "nobody"),
        (("whole", "compared", "blocks", 0, "among"), "outliers"),
        (("whole", "compared", "blocks", 0, "of"), 3),
        (("whole", "compared", "blocks"), []),
        (("held", "compared", "overlaps"), np.zeros((0, 2), dtype=np.int64)),
        (("whole", "plain"), np.zeros((1, 0, 20, 20))),
    ],
)
def test_groups_that_do_not_go_together_are_refused(place, wrong, soft_data, tmp_path):
    write_plain(soft_data, tmp_path / "right.skops")
    assert load_model(tmp_path / "right.skops").path_.cross.whole.n_groups == 3
    write_plain(put(soft_data, ("ensemble", "result", "path", "cross", *place), wrong), tmp_path / "m.skops")
    refused(tmp_path / "m.skops")
