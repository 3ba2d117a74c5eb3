"""What the README shows is what happens."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_first_example_prints_what_the_readme_says():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL).group(1)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue().strip() == shown.strip()


def test_set_up_is_two_commands():
    commands = re.findall(r"```\n(pip install .*?)\n```", README)
    assert commands == ['pip install ".[pages]" && evenout fit credit', 'pip install -e ".[test]" && pytest']
