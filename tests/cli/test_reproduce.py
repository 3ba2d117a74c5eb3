import pytest
from click.testing import CliRunner

from evenout.cli import main


def run(*arguments):
    return CliRunner().invoke(main, ["reproduce", *map(str, arguments)])


def test_reproduce_shows_the_claims_and_where_the_page_is(tmp_path):
    out = tmp_path / "results"
    result = run("--datasets", "breastw", "--repeats", "1", "--out", out)
    assert result.exit_code == 0, result.output
    assert "A1" in result.output
    assert "index.html" in result.output
    assert (out / "index.html").exists()
    assert (out / "points.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--datasets", "bresatw"], "bresatw"), (["--repeats", "0"], "repeats"), (["--seed", "-1"], "seed")],
)
def test_wrong_requests_are_one_line_and_status_2(tmp_path, arguments, message):
    out = tmp_path / "results"
    result = run(*arguments, "--out", out)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_unwritable_out_is_one_line_and_status_2(tmp_path):
    file = tmp_path / "taken"
    file.write_text("mine")
    result = run("--datasets", "breastw", "--repeats", "1", "--out", file)
    assert result.exit_code == 2
    assert "is a file, not a folder" in result.stderr
    assert file.read_text() == "mine"
