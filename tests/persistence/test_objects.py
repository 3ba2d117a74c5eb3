"""Objects that are not plain data: kept by skops, and opened only where every type is named."""

import io
import re
import sys
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evenout import FairOutlierEnsemble, Groups, persistence
from evenout.detectors.fairlof import FairLOF
from evenout.persistence import ModelFileError, load_model, save_model
from evenout.storage.archive import read_plain, write_plain


def small(**settings):
    X = np.random.default_rng(0).normal(size=(40, 2))
    return FairOutlierEnsemble(alpha=0.0, random_state=0, groups=Groups(min_size=5), **settings).fit(
        X, sensitive_features=["p", "q"] * 20
    )


def test_detectors_of_other_libraries_come_back_by_name_alone(tmp_path):
    X = np.random.default_rng(1).normal(size=(30, 2))
    pipeline = make_pipeline(StandardScaler(), LocalOutlierFactor(n_neighbors=5))
    for detectors in ([IsolationForest(n_estimators=5)], ["paper", pipeline], [FairLOF(n_neighbors=4)]):
        model, path = small(detectors=detectors), tmp_path / "m.skops"
        save_model(model, path)
        with pytest.raises(ModelFileError, match=r"it holds objects of .* pass trusted=\[") as error:
            load_model(path)
        trusted = re.findall(r"'([\w.]+)'", str(error.value).split("trusted=")[1])
        loaded = load_model(path, trusted=trusted)
        given = {"sensitive_features": ["p", "q"] * 15}
        np.testing.assert_array_equal(loaded.outlier_scores(X, **given), model.outlier_scores(X, **given))
        assert loaded.at(alpha=3.0).alpha_ == 3.0


def test_functions_that_nobody_could_import_are_refused_at_saving(tmp_path):
    for settings in ({"combination": lambda S: S.mean(axis=1)}, {"detectors": [lambda X: X.sum(axis=1)]}):
        with pytest.raises(ValueError, match="define classes and functions in a module that can be imported"):
            save_model(small(**settings), tmp_path / "m.skops")
    assert list(tmp_path.iterdir()) == []


def with_objects(path, objects):
    """A model file whose objects are these bytes."""
    save_model(small(detectors=[IsolationForest(n_estimators=5)]), path)
    write_plain({**read_plain(path), "objects": np.frombuffer(objects, dtype=np.uint8)}, path)
    return path


def test_no_code_named_among_objects_is_even_imported(tmp_path, monkeypatch):
    module = tmp_path / "evil_module.py"
    module.write_text("class Evil:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import evil_module

    kept = skops.io.dumps([evil_module.Evil()])
    del sys.modules["evil_module"]
    module.write_text("raise SystemExit('imported')")
    path = with_objects(tmp_path / "m.skops", kept)
    for trusted in ((), ("sklearn.ensemble._iforest.IsolationForest",)):
        with pytest.raises(ModelFileError, match=r"it holds objects of 'evil_module\.Evil'"):
            load_model(path, trusted=trusted)
    assert "evil_module" not in sys.modules


def test_damaged_and_compressed_objects_are_refused_in_one_line(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", "[" * 10_000)
    for objects, words in ((b"no archive", "its objects are damaged"), (packed.getvalue(), "objects is compressed")):
        with pytest.raises(ModelFileError, match=words) as error:
            load_model(with_objects(tmp_path / "m.skops", objects))
        assert "\n" not in str(error.value)


class Knob(BaseEstimator):
    """A small object of parameters, as if it were our own."""

    __module__ = "evenout.knob"

    def __init__(self, size=3, inner=None):
        self.size = size
        self.inner = inner


def test_our_own_small_objects_are_parameters_by_name(tmp_path, monkeypatch):
    """Also as keys of a dict, and inside each other; nobody need be trusted for them."""
    model, path = small(), tmp_path / "m.skops"
    model.fairness = {Knob(7, inner=Knob(size=("a", 0.5))): 2.0, "demographic_parity": 1.0}
    monkeypatch.setattr(persistence, "_SETTINGS", persistence._SETTINGS | {"Knob": Knob})
    save_model(model, path)
    (knob, weight), (name, _) = load_model(path).fairness.items()
    assert (knob.size, knob.inner.size, weight, name) == (7, ("a", 0.5), 2.0, "demographic_parity")
    monkeypatch.setattr(persistence, "_SETTINGS", {})
    with pytest.raises(ModelFileError, match="parameters is of no known kind"):
        load_model(path)
