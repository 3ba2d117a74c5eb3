"""Every detector of PyOD serves as a base detector, except those named here with a reason, which is checked."""

import importlib
import importlib.util
import inspect
import pkgutil

import numpy as np
import pytest

from evenout import FairOutlierEnsemble

pyod = pytest.importorskip("pyod", minversion="3", reason="the tables below describe PyOD 3")
models = importlib.import_module("pyod.models")
KNN = importlib.import_module("pyod.models.knn").KNN

# Modules without a detector.
HELPERS = {
    "_pyg_utils",
    "_ts_utils",
    "base",
    "base_dl",
    "combination",
    "gaal_base",
    "sklearn_base",
    "thresholds",
}

# Packages that PyOD leaves to its extras; where they are missing the detector must fail, where not it must work.
NEEDS = {
    **dict.fromkeys(("ae1svm", "alad", "anogan", "deep_svdd", "devnet", "dif", "lunar"), ("torch",)),
    **dict.fromkeys(("mo_gaal", "so_gaal", "ts_anomaly_transformer", "ts_lstm"), ("torch",)),
    **dict.fromkeys(("auto_encoder", "so_gaal_new", "vae"), ("torch", "tqdm")),
    **dict.fromkeys(("feature_bagging", "suod"), ("combo",)),
    "audio_ae": ("torch", "librosa"),
    "xgbod": ("xgboost",),
}

# Detectors that a small table of numbers without labels cannot serve, and the words in which they say so.
REFUSES = {
    "audio_ae": "audio",
    "devnet": "'y'",  # learns from labels
    "embedding": "'encoder'|'modalities'",  # texts and pictures, through an encoder of the user's
    "mad": "univariate",
    **dict.fromkeys((f"pyg_{name}" for name in ("anomalous", "anomalydae", "cola", "conad")), "torch"),  # graphs
    **dict.fromkeys((f"pyg_{name}" for name in ("dominant", "guide", "radar", "scan")), "torch"),
    "so_gaal_new": "criterion",  # its own default is refused by PyOD
    "ts_anomaly_transformer": "shorter than window_size",
    "ts_matrix_profile": "does not support decision_function on new data",  # such as rows that are left out
    "ts_lstm": "negative dimensions",  # fewer rows are left out than its window has
    "ts_od": r"Found array with 0 sample\(s\)",  # likewise
    "xgbod": "'y'",
}

# Compiled when first used, or trained, or slow to fit once more for each fold.
SLOW = {
    *("abod", "cblof", "hbos", "inne", "lmdd", "loci", "lscp", "qmcd", "rgraph", "rod", "sod", "ts_kshape", "ts_sand"),
    *NEEDS,
}

MODULES = [
    pytest.param(name, marks=[pytest.mark.long] * (name in SLOW))
    for name in sorted(module.name for module in pkgutil.iter_modules(models.__path__))
    if name not in HELPERS
]


def detectors_of(module):
    """Small instances of all detectors that are defined in a module."""
    for name, kind in list(vars(module).items()):
        own = inspect.isclass(kind) and kind.__module__ == module.__name__
        if own and issubclass(kind, importlib.import_module("pyod.models.base").BaseDetector):
            known = inspect.signature(kind).parameters
            few = {"epochs": 2, "epoch_num": 2, "n_epochs": 2, "stop_epochs": 2, "n_features": 4}
            settings = {key: value for key, value in few.items() if key in known}
            if name == "LSCP":
                settings["detector_list"] = [KNN(n_neighbors=k) for k in (3, 5, 7)]
            yield kind(**settings)


@pytest.mark.filterwarnings("ignore")  # PyOD's own
@pytest.mark.parametrize("name", MODULES)
def test_every_detector_of_pyod_is_a_base_detector_or_says_why_not(name, request):
    missing = [package for package in NEEDS.get(name, ()) if importlib.util.find_spec(package) is None]
    if missing:
        raises = (ImportError, NameError)
        request.applymarker(pytest.mark.xfail(raises=raises, reason=f"needs {missing[0]}", strict=True))
        fit_all(name)
    elif name in REFUSES:
        with pytest.raises((TypeError, ValueError, ImportError, NotImplementedError), match=REFUSES[name]):
            fit_all(name)
    else:
        assert fit_all(name) > 0


def fit_all(name):
    """Fit an ensemble over each detector of a module, and check its scores; the number of detectors."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))  # a fifth is left out at a time, and some need 20 rows to score
    X[:3] += 6.0
    groups, count = np.array(["p", "q"] * 60), 0
    for detector in detectors_of(importlib.import_module(f"pyod.models.{name}")):
        model = FairOutlierEnsemble([detector], alpha=0.0, random_state=0).fit(X, sensitive_features=groups)
        scores = model.outlier_scores(X[::-1])
        assert scores.shape == (120,)
        assert np.isfinite(scores).all()
        assert np.ptp(model.target_) == 1.0
        count += 1
    return count


def test_tables_name_modules_of_pyod_alone():
    known = {module.name for module in pkgutil.iter_modules(models.__path__)}
    assert (HELPERS | SLOW | set(REFUSES)) <= known
