"""The design, the people and the places are shared with ``benchmarks/matrix.py``: their folder is put on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
