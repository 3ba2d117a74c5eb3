"""How the tests are run: on how many cores, in which order, and where nothing beside the source can be written."""

import atexit
import os
import random
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

_NEEDS = {"torch": "src/evenout/gpu/_torch_*.py", "triton": "src/evenout/gpu/_triton_kernels.py"}

# Examples in modules that need a package which is not installed are left out; any other module must import.
collect_ignore_glob = [files for package, files in _NEEDS.items() if find_spec(package) is None]

if not os.access(Path(__file__).with_name("src"), os.W_OK) and "NUMBA_CACHE_DIR" not in os.environ:
    # Workers, and the processes that tests start, inherit this: kernels are still compiled once.
    os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="evenout-kernels-")
    atexit.register(shutil.rmtree, os.environ["NUMBA_CACHE_DIR"], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Start no workers for paths that are named, unless asked for with ``-n auto`` or a number."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    return 0 if named and config.option.numprocesses == "logical" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle modules, and the tests of each, where ``EVENOUT_SHUFFLE`` has a seed: no test may need another."""
    if seed := os.environ.get("EVENOUT_SHUFFLE"):
        generator = random.Random(seed)
        modules = sorted({item.path for item in items})
        place = {path: generator.random() for path in modules}
        items.sort(key=lambda item: (place[item.path], generator.random()))
