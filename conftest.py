"""Examples in modules that need a package which is not installed are left out; any other module must import."""

from importlib.util import find_spec

_NEEDS = {"torch": "src/evenout/gpu/_torch_*.py", "triton": "src/evenout/gpu/_triton_kernels.py"}

collect_ignore_glob = [files for package, files in _NEEDS.items() if find_spec(package) is None]
