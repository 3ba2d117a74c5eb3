"""Build what would be released, look into it, and try it as a user would: from another folder, without any extra.

    python tools/check_release.py

The wheel is built twice, from the tree and from the source distribution, and must be the same; it is installed into a
new environment, where the command line and the library are run on bundled data. Needs pip, and packages for it.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]

KINDS = (".py", "/py.typed", ".csv.gz", ".j2", ".js", ".css", ".md", ".toml")  # files of the package
TOP = {  # of the source distribution
    *("benchmarks", "docs", "examples", "src", "tests", "tools", ".ci", ".gitignore", "Makefile", "conftest.py"),
    ".pre-commit-config.yaml",
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
    *("pyproject.toml", "PKG-INFO"),
}

SMOKE = """\
from pathlib import Path
import evenout
from evenout.datasets import load_dataset
from evenout.persistence import load_model

assert "site-packages" in evenout.__file__, evenout.__file__
data = load_dataset("breastw")
model = evenout.FairOutlierEnsemble(random_state=0).fit(data.X, sensitive_features=data.sensitive)
assert (model.predict(data.X) == -1).any()
assert load_model(Path("out", "model.skops"))["ensemble"].bias_reduction_ > 0
"""

COMMANDS = (
    ["evenout", "--version"],
    ["evenout", "--help"],
    ["evenout", "fit", "breastw", "--out", "out"],
    ["evenout", "score", "out/model.skops", "rows.csv", "--out", "scores.csv"],
    ["evenout", "audit", "out/scores.csv", "--score", "fair_score", "--sensitive", "group"],
    ["python", "-c", SMOKE],
    ["pip", "check"],
)


def main() -> None:
    """Run every check; the first fault ends the run with a line that names it."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        builder = environment(work / "builder", "build")
        run([builder / "python", "-m", "build", "--outdir", work / "dist", ROOT])
        run([builder / "python", "-m", "build", "--wheel", "--outdir", work / "tree", ROOT])
        (wheel,), (source,) = (work / "dist").glob("*.whl"), (work / "dist").glob("*.tar.gz")
        (direct,) = (work / "tree").glob("*.whl")
        require(contents(wheel) == contents(direct), "the source distribution builds another wheel than the tree")
        check_wheel(wheel)
        check_source(source)
        print(f"built and looked into {wheel.name} ({wheel.stat().st_size / 2**20:.1f} MiB)", flush=True)
        try_out(wheel, work)
    print(f"ready for release, after {time.monotonic() - start:.0f} s")


def check_wheel(wheel: Path) -> None:
    """The package with its data and nothing else, and complete, consistent metadata."""
    files = contents(wheel)
    (info,) = {name.partition("/")[0] for name in files if ".dist-info/" in name}
    package = {name for name in files if not name.startswith(info)}
    present = {path.as_posix() for path in sources(ROOT / "src")}
    require(package == present, f"the wheel differs from the sources in {sorted(package ^ present)}")
    strays = [name for name in package if not name.endswith(KINDS)]
    require(not strays, f"the wheel holds files of other kinds: {strays}")
    for needed in ("py.typed", "datasets/data/credit.csv.gz", "report/templates/report.html.j2"):
        require(f"evenout/{needed}" in package, f"the wheel lacks {needed}")
    require(f"{info}/licenses/LICENSE" in files, "the wheel lacks the licence")
    check_metadata(HeaderParser().parsestr(files[f"{info}/METADATA"].decode()))


def check_metadata(metadata: Message) -> None:
    """One version everywhere, a licence, a description, and classifiers that fit the Python that is asked for."""
    version = metadata["Version"]
    module = (ROOT / "src" / "evenout" / "__init__.py").read_text(encoding="utf-8")
    require(f'__version__ = "{version}"' in module, f"__version__ is not {version}")
    for name, words in (("CITATION.cff", f"version: {version}"), ("CHANGELOG.md", f"## {version}")):
        require(words in (ROOT / name).read_text(encoding="utf-8"), f"{name} does not say {words!r}")
    require(metadata["License-Expression"] == "BSD-3-Clause", "the licence is not named")
    require("# evenout" in metadata.get_payload(), "the description is not README.md")
    lowest = re.fullmatch(r">=(3\.\d+)", metadata["Requires-Python"] or "")
    named = [name.rpartition(" ")[2] for name in metadata.get_all("Classifier", []) if " :: 3." in name]
    require(lowest is not None and named[:1] == [lowest[1]], "classifiers and Requires-Python differ")


def check_source(source: Path) -> None:
    """Files needed to build and test, and nothing that lay about in the folder."""
    with tarfile.open(source) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    strays = {name.partition("/")[0] for name in files} - TOP
    require(not strays, f"strays in the source distribution: {sorted(strays)}")
    for needed in ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "tests/conftest.py"):
        require(needed in files, f"the source distribution lacks {needed}")


def try_out(wheel: Path, work: Path) -> None:
    """Install the wheel alone into a new environment, use it from an empty folder, then add the extra for pages."""
    tools, desk = environment(work / "user", str(wheel)), work / "desk"
    desk.mkdir()
    rows = "from evenout.datasets import load_dataset; load_dataset('breastw').X.to_csv('rows.csv', index=False)"
    for program, *arguments in (["python", "-c", rows], *COMMANDS):
        run([tools / program, *arguments], desk)
        print(f"  {program} {' '.join(arguments)}".partition("\n")[0], flush=True)
    report = desk / "out" / "report.html"
    require(not report.exists(), "a report was written without the extra pages")
    run([tools / "python", "-m", "pip", "install", "--quiet", f"{wheel}[pages]"])
    run([tools / "evenout", "fit", "breastw", "--out", "out"], desk)
    require(report.exists(), "no report was written with the extra pages")


def environment(folder: Path, *packages: str) -> Path:
    """A new environment with some packages; the folder of its programs."""
    venv.create(folder, with_pip=True)
    tools = folder / ("Scripts" if sys.platform == "win32" else "bin")
    run([tools / "python", "-m", "pip", "install", "--quiet", *packages])
    return tools


def sources(folder: Path) -> list[Path]:
    """Every file below a folder, relative to it, but what Python and numba keep beside their modules."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return [path for path in found if "__pycache__" not in path.parts]


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file in a wheel, but the list of hashes."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def run(command: list[str | Path], folder: Path | None = None) -> str:
    """Output of a program; show its last words and exit if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def require(truth: bool, words: str) -> None:
    """End with ``words`` if something is not as it should be."""
    if not truth:
        sys.exit(words)


if __name__ == "__main__":
    main()
