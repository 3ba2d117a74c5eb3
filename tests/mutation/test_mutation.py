import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("run.py")
LISTED = ("base_score", "pairwise", "sketch")  # gone through mutant by mutant

SOURCE = '''"""A < b - c."""

def keep(x: "int < 3", low=-1) -> bool:
    if not 0 <= x < 9:
        raise ValueError(f"{x - 1}")
    x += (1
          - low)  # a comment with a - in it
    return x != 0
'''


def test_every_comparison_and_sign_is_flipped_where_it_stands(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(SOURCE)
    mutants = runpy.run_path(str(SCRIPT))["list_mutants"](path)
    assert [(mutant.name, mutant.line) for mutant in mutants] == [
        ("small.keep: - to + #1", 'def keep(x: "int < 3", low=+1) -> bool:'),
        ("small.keep: <= to < #1", "if not 0 < x < 9:"),
        ("small.keep: <= to >= #1", "if not 0 >= x < 9:"),
        ("small.keep: < to <= #1", "if not 0 <= x <= 9:"),
        ("small.keep: < to > #1", "if not 0 <= x > 9:"),
        ("small.keep: + to - #1", "x -= (1"),
        ("small.keep: - to + #2", "+ low)  # a comment with a - in it"),
        ("small.keep: != to == #1", "return x == 0"),
    ]
    for mutant in mutants:
        changed = [a != b for a, b in zip(SOURCE.splitlines(), mutant.source.decode().splitlines(), strict=True)]
        assert sum(changed) == 1


def test_list_of_survivors_is_up_to_date():
    script = runpy.run_path(str(SCRIPT))
    mutants = [
        mutant for path in (script["ROOT"] / script["CORE"]).glob("*.py") for mutant in script["list_mutants"](path)
    ]
    listed = script["read_list"](mutants)
    assert len(listed) < (1 - script["REQUIRED"]) * len(mutants)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.nightly)])
def test_sampled_mutants_are_caught(count):
    """Seeded: the same mutants are drawn as long as the modules have as many comparisons and signs.

    The modules that state what unseen rows have are newer than the list of survivors and are left out of the sample.
    """
    command = [
        sys.executable,
        str(SCRIPT),
        "--sample",
        str(count),
        "--seed",
        "0",
        "--jobs",
        "2",
        "--only",
        ",".join(LISTED),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
