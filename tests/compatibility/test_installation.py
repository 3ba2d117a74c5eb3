"""The package works where its folder and the user's home cannot be written, and where no extra is installed."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import evenout

EXTRAS = (
    *("torch", "dask", "distributed", "pyod", "fairlearn", "matplotlib", "vl_convert"),
    *("starlette", "uvicorn", "python_multipart"),
    *("pytest", "hypothesis", "playwright"),
)

WITHOUT_EXTRAS = f"""
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in {EXTRAS!r} else find(name, *rest)
"""


def run(code, *arguments, **settings):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


def test_import_and_help_need_no_extra():
    done = run(
        WITHOUT_EXTRAS
        + """
import importlib, pkgutil, evenout
for module in pkgutil.walk_packages(evenout.__path__, "evenout."):
    if not module.name.startswith(("evenout.gpu", "evenout.out_of_core", "evenout.app", "evenout.__main__")):
        importlib.import_module(module.name)
from evenout.cli import main
main(["--help"])
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage:")


NEEDED = {
    "FairOutlierEnsemble(device='cuda').fit(X, sensitive_features=a)": "pip install 'evenout[gpu]'",
    "main(['fit', 'rows', '--sensitive', 'a', '--engine', 'dask'])": "pip install 'evenout[dask]'",
    "main(['reproduce', '--quick'])": "Error: reproduce needs the extra pages: pip install 'evenout[pages]'",
    "main(['app', '--no-browser'])": "Error: app needs the extra app: pip install 'evenout[app]'",
    "GroupScoresDisplay.from_scores([1.0] * 20, sensitive_features=a)": "a display needs the extra pages",
    "write_report(None, 'r.html', X=X, sensitive_features=a)": "the report needs the extra pages",
}


def test_a_missing_extra_is_named_with_how_to_install_it(tmp_path):
    done = run(
        WITHOUT_EXTRAS
        + f"""
import sys
import pandas as pd
from pathlib import Path
from evenout import FairOutlierEnsemble
from evenout.cli import main
from evenout.displays import GroupScoresDisplay
from evenout.report import write_report
X, a = [[float(i)] for i in range(20)], ["p", "q"] * 10
Path("rows").mkdir()
pd.DataFrame({{"a": a, "x": range(20)}}).to_parquet("rows/part.parquet")
for code in {list(NEEDED)!r}:
    try:
        eval(code)
    except SystemExit as end:  # of a command, after its line
        assert end.code == 2, end
    except ImportError as error:
        print(error, file=sys.stderr)
    else:
        sys.exit(f"{{code}} needs nothing")
""",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert len(said) == len(NEEDED)
    assert [words in line for words, line in zip(NEEDED.values(), said, strict=True)] == [True] * len(NEEDED), said


@pytest.mark.long
def test_fit_without_the_extra_for_pages_writes_all_but_the_report_and_says_so(tmp_path):
    out = tmp_path / "evenout-out"
    out.mkdir()
    (out / "report.html").write_text("of an earlier fit")
    done = run(WITHOUT_EXTRAS + "from evenout.cli import main\nmain(['fit', 'breastw'])", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "Note: report.html is not written: the report needs the extra pages: pip install 'evenout[pages]'"
    )
    assert done.stdout.splitlines()[-1] == "Written to evenout-out: scores.csv, model.skops, summary.json"
    assert sorted(path.name for path in out.iterdir()) == ["model.skops", "scores.csv", "summary.json"]


SMALL = """
import numpy as np
from evenout import FairOutlierEnsemble, Individual

X, groups = np.random.default_rng(0).normal(size=(90, 3)), ["p", "q", "r"] * 30
settings = {"alpha": 1.0, "random_state": 0}
detectors = [lambda X: X[:, 0] ** 2, lambda X: abs(X).sum(axis=1)]
alike = Individual(length_scale=1.0)
compiled = FairOutlierEnsemble(detectors, fairness=alike, **settings).fit(X, sensitive_features=groups)
plain = FairOutlierEnsemble("precomputed", **settings).fit(X**2, sensitive_features=groups)
"""

READ_ONLY = (
    """
import os, sys
from pathlib import Path
import evenout

out = Path(sys.argv[1])
for folder in (Path(evenout.__file__).parent, Path(os.environ["HOME"])):
    try:
        (folder / "probe").touch()
    except PermissionError:
        continue
    sys.exit(f"{folder} can be written")
"""
    + SMALL
    + """
from evenout.displays import TradeoffDisplay
from evenout.persistence import load_model, save_model
from evenout.report import write_report

save_model(plain, out / "m.skops")
write_report(plain, out / "r.html", X=X**2, sensitive_features=groups)
TradeoffDisplay.from_estimator(plain).figure_.savefig(out / "p.png")
np.save(out / "scores.npy", [compiled.outlier_scores(X), load_model(out / "m.skops").outlier_scores(X**2)])
"""
)


def give_up_the_rights_of_root():
    """Leave root no way past the permissions of files, as for any other user.

    Root may write into read-only folders by two capabilities; dropped from the set that bounds those of a new
    program, they are gone for good in the program that is started next.
    """
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.long  # every kernel is compiled; `tests/core/test_compiled.py` has one that cannot be kept
@pytest.mark.skipif(sys.platform != "linux", reason="permissions of root are set aside in Linux's way")
def test_read_only_installation_fits_scores_saves_and_reports(tmp_path):
    site, home, out = (tmp_path / name for name in ("site", "home", "out"))
    source = Path(evenout.__file__).parent
    shutil.copytree(source, site / "evenout", ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    out.mkdir()
    folders = [home, *(path for path in (site, *site.rglob("*")) if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "HOME": str(home)}
        done = run(READ_ONLY, out, cwd=out, env=kept, preexec_fn=give_up_the_rights_of_root)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    here = {}
    exec(SMALL, here)
    expected = [here["compiled"].outlier_scores(here["X"]), here["plain"].outlier_scores(here["X"] ** 2)]
    np.testing.assert_allclose(np.load(out / "scores.npy"), expected, rtol=1e-9)
    assert "<html" in (out / "r.html").read_text()
    assert not list(site.rglob("__pycache__"))
