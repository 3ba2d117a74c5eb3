"""How the tests are run: on all cores, or in this process where paths are named; and what cannot be imported here."""

from importlib.util import find_spec

import pytest

_NEEDS = {"torch": "src/evenout/gpu/_torch_*.py", "triton": "src/evenout/gpu/_triton_kernels.py"}

# Examples in modules that need a package which is not installed are left out; any other module must import.
collect_ignore_glob = [files for package, files in _NEEDS.items() if find_spec(package) is None]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Start no workers for paths that are named, unless asked for with ``-n auto`` or a number."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    return 0 if named and config.option.numprocesses == "logical" else None
