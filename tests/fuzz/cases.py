"""Case number in, command line and files out: the same ones on every machine."""

import gzip
import random
from dataclasses import dataclass, field
from pathlib import Path

from damage import damaged, wrong_archive, wrong_entry
from tables import NAMES, NUMBERS, TEXTS, csv_bytes, odd_csv, odd_parquet, parquet_bytes, people, spoil

CORPUS = Path(__file__).parent / "corpus"
MODELS = {path.name: path.read_bytes() for path in sorted(CORPUS.glob("model-*.skops"))}
SEEDS = {
    path.name: path.read_bytes() for path in sorted(CORPUS.iterdir()) if path.suffix in (".csv", ".gz", ".parquet")
}

# A fit that takes milliseconds: three columns are scores already.
QUICK = ["--detectors", "precomputed"]
SMALL = [["--min-size", "2"]] * 3 + [[]]  # tables of 12 to 30 rows: by default there is nobody to compare
REQUESTS = [["--alpha", "2"]] * 4 + [
    ["--alpha", "0"],
    ["--bias-reduction", "1"],
    ["--flag-rate-ratio", "0.8"],
    [],
]
NOTIONS = [
    [],
    ["--fairness", "individual"],
    ["--fairness", "demographic_parity=1,individual=2", "--pairs", "sampled"],
]
FEATURES = ("income", "debt", "risk")

VALUES = (
    *NUMBERS, *TEXTS, "0.5", "1", "2", "--", "-", "--alpha", "median:", "median:nan", "median:1", "minmax", ",", ",,",
    "individual", "demographic_parity=0", "demographic_parity=nan,individual=inf", "individual=,individual=2", "=",
    "demographic_parity=1,individual=1", "sex", "sex,age", "sex,sex", "SEX", "sex,", ",sex", "fraud", "*", "[", "?",
    "~", ".", "/proc/x", "/proc/self/mem", "in.csv", "in.csv/x", "out", "out/deep/er", "link.csv", "loop.csv", "folder",
    "\udcff", "x" * 300, "x/" * 2500, "nan", "NaN", "average", "greedy", "rank", "paper", "local", "cuda", "credit",
)  # fmt: skip
OPTIONS = {
    "fit": [
        "--sensitive", "--out", "--id", "--label", "--clusters", "--drop", "--bias-reduction", "--flag-rate-ratio",
        "--alpha", "--confidence", "--judged-on", "--fairness", "--length-scale", "--pairs", "--detectors",
        "--combination", "--scaling", "--weighting", "--correction", "--cross", "--min-size", "--small",
        "--unknown", "--device", "--contamination", "--reference-size", "--seed", "--engine", "--scheduler",
        "--n-jobs",
    ],
    "score": ["--out", "--id", "--engine", "--scheduler", "--n-jobs"],
    "audit": [
        "--score", "--sensitive", "--label", "--features", "--given", "--clusters", "--contamination", "--baseline",
        "--confidence", "--resamples", "--min-size", "--small", "--unknown", "--length-scale",
        "--seed", "--out",
    ],
    "reproduce": ["--datasets", "--out", "--repeats", "--seed"],
}  # fmt: skip
FLAGS = [
    "--quiet",
    "--json",
    "--show-small-cells",
    "--help",
    "--version",
    "--quick",
    "--nonsense",
    "-x",
    "-h",
    "---",
]
CHOICES = {
    "--scaling": ("minmax", "rank", "zscore", "gaussian"),
    "--combination": ("average", "maximum", "median", "aom", "moa", "greedy"),
    "--correction": ("weights", "nonnegative", "simplex", "published"),
    "--weighting": ("rank", "uniform"),
    "--judged-on": ("unseen", "training"),
    "--small": ("merge", "leave_out"),
    "--unknown": ("ignore",),
    "--contamination": ("0.01", "0.5", "3"),
    "--seed": ("1", "123456789"),
}


@dataclass
class Case:
    """A command line, the files that it finds, and what lies in the place of files besides.

    ``files`` maps paths to bytes; ``places`` maps paths to "folder", "pipe", "loop" (a link to itself) or "astray" (a
    link to nowhere). ``sound`` cases must succeed. ``disk`` is the number of bytes that fit into a file.
    """

    kind: str
    arguments: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    sound: bool = False
    disk: int | None = None


def make(number):
    """The case of this number."""
    rng = random.Random(f"evenout {number}")
    command = rng.choices(("fit", "score", "audit", "reproduce", "main"), (40, 28, 26, 4, 2))[0]
    case = {"fit": _fit, "score": _score, "audit": _audit, "reproduce": _reproduce, "main": _main}[command](rng)
    if not case.sound and rng.random() < 0.15:
        _clutter(rng, case)
    case.arguments = [word.replace("\0", "") for word in case.arguments]  # no shell can give one
    return case


def _fit(rng):
    if rng.random() < 0.15:
        return _fit_folder(rng)
    kind, name, content = _table(rng)
    case = Case(f"fit {kind}", ["fit", name, "--sensitive", "sex"], {name: content}, sound=kind == "sound")
    if rng.random() < 0.1:
        case.arguments += [
            "--id",
            "person",
            "--detectors",
            rng.choice(("paper", "diverse")),
            *rng.choice(NOTIONS),
        ]
    else:
        case.arguments += [*QUICK, "--drop", "age,home", "--id", "person", "--label", "fraud"]
    case.arguments += [*rng.choice(REQUESTS), *rng.choice(SMALL)]
    if rng.random() < 0.1:
        case.arguments += ["--clusters", rng.choice(("age", "home"))]
        case.sound = False
    for option, values in rng.sample([*CHOICES.items()], rng.choice((0, 1, 2))):
        case.arguments += [option, rng.choice(values)]
    if "merge" in case.arguments and "--min-size" not in case.arguments:
        case.sound = False  # one group of all
    case.arguments += ["--n-jobs", "1", rng.choice(("--quiet", "--json"))]
    if rng.random() < 0.2:
        case.files |= {"evenout-out/scores.csv": b"old", "evenout-out/mine.txt": b"mine"}
    return _with_wrong_arguments(rng, case, "fit") if rng.random() < 0.35 else case


def _fit_folder(rng):
    table = {name: values for name, values in people(rng).items() if name not in ("person", "home", "age")}
    case = Case("fit sound folder", ["fit", "in", "--sensitive", "sex", *QUICK, *rng.choice(REQUESTS)], sound=True)
    case.arguments += rng.choice(SMALL)
    case.arguments += ["--n-jobs", "1", rng.choice(("--quiet", "--json"))]
    case.files = {f"in/{part}.parquet": parquet_bytes(table.items()) for part in "ab"}
    if rng.random() < 0.7:
        case.kind, case.sound = "fit wrong folder", False
        wrong = rng.choice((
            lambda: odd_parquet(rng, [*table.items()]), lambda: parquet_bytes(spoil(rng, table.items())),
            lambda: damaged(rng, case.files["in/a.parquet"]), lambda: b"",
        ))  # fmt: skip
        case.files[f"in/{rng.choice('abc')}.parquet"] = wrong()
    if rng.random() < 0.2:
        case.arguments[1], case.sound = (
            rng.choice(("in/*.parquet", "in/[", "in/?.csv", "in/../in", "[!]*", "**")),
            False,
        )
    return _with_wrong_arguments(rng, case, "fit") if rng.random() < 0.3 else case


def _score(rng):
    kind, name, content = _table(rng)
    case = Case(
        f"score {kind}",
        ["score", "m.skops", name, "--out", "out.csv"],
        {name: content},
        sound=kind == "sound",
    )
    model = rng.choice(list(MODELS.values()))
    if rng.random() < 0.6:
        what, wrong = rng.choice((
            ("damaged", lambda: damaged(rng, model, content)), ("archive", lambda: wrong_archive(rng, model)),
            ("entry", lambda: wrong_entry(rng, model)), ("entry", lambda: wrong_entry(rng, model)),
        ))  # fmt: skip
        case.kind, case.sound, model = f"score model {what}", False, wrong()
        if kind != "sound" and rng.random() < 0.8:
            name, case.arguments[2] = "in.csv", "in.csv"
            case.files = {name: csv_bytes(people(rng).items())}
    case.files["m.skops"] = model
    if rng.random() < 0.1:
        case.arguments[2], case.kind = "in", f"{case.kind} folder"
        case.files.pop(name, None)
        case.files["in/a.parquet"] = parquet_bytes([item for item in people(rng).items() if item[0] in FEATURES])
        case.sound = False
    case.arguments += [rng.choice(("--quiet", "--json", "--n-jobs=1"))]
    if rng.random() < 0.3:
        case.arguments += ["--id", "person"]
    if rng.random() < 0.3:
        case.files["out.csv"] = b"old"
    return _with_wrong_arguments(rng, case, "score") if rng.random() < 0.2 else case


def _audit(rng):
    kind, name, content = _table(rng)
    case = Case(f"audit {kind}", ["audit", name, "--score", "risk", "--sensitive", "sex"], {name: content})
    case.sound = kind == "sound"
    case.arguments += [
        "--resamples",
        "9",
        "--min-size",
        "2",
        *rng.choice(([], ["--json"], ["--quiet"], ["--out", "out.csv"])),
    ]
    for option, value in (
        ("--label", "fraud"),
        ("--features", "income,home"),
        ("--given", "home"),
        ("--given", "debt"),
    ):
        if rng.random() < 0.3:
            case.arguments += [option, value]
    if rng.random() < 0.2:
        case.arguments += ["--baseline", "before.csv"]
        case.files["before.csv"] = csv_bytes(people(rng).items() if case.sound else spoil(rng, people(rng).items()))
    return _with_wrong_arguments(rng, case, "audit") if rng.random() < 0.3 else case


def _reproduce(rng):
    """Always with something wrong: a sound run takes seconds."""
    case = Case("reproduce", ["reproduce", "--quick"])
    wrong = (
        ["--datasets", rng.choice(("", "x", "credit", ",", "pima,x"))],
        ["--repeats", rng.choice(("0", "-1", "x"))],
        ["--seed", rng.choice(("-1", "x", "1.5"))],
        *(["--nonsense"], ["extra"], ["--repeats"]),
    )
    case.arguments += rng.choice(wrong)
    return case


def _main(rng):
    words = rng.choices((*OPTIONS, *FLAGS, "Fit", "", "help", *VALUES[:10]), k=rng.choice((0, 1, 1, 2)))
    case = Case("main", words)
    return case if "reproduce" not in words else Case("main", ["reproduce", "x"])


def _table(rng):
    """What is wrong with it, the name and the bytes of a file of rows."""
    table = people(rng)
    match rng.randrange(10):
        case 0 | 1:
            return _named(rng, "sound", [*table.items()])
        case 2 | 3 | 4:
            return _named(rng, "spoilt", spoil(rng, table.items(), rng.choice((1, 1, 2, 3))))
        case 5:
            return "odd csv", "in.csv", odd_csv(rng, [*table.items()])
        case 6:
            return "odd parquet", "in.parquet", odd_parquet(rng, [*table.items()])
        case 7:
            name, content = rng.choice(list(SEEDS.items()))
            return "seed damaged", f"in.{name.partition('.')[2]}", damaged(rng, content)
        case 8:
            kind, name, content = _named(rng, "damaged", [*table.items()])
            return kind, name, damaged(rng, content)
    name = rng.choice(("in.csv", "in.csv.gz", "in.parquet", "in.txt", "in", "in.CSV", "in[1].csv"))
    return (
        "garbage",
        name,
        rng.choice((b"", b"\n", b",\n,\n", b"\xef\xbb\xbf", rng.randbytes(300), b"PAR1" * 4, b"PK\x03\x04")),
    )


def _named(rng, kind, columns):
    match rng.choice(("csv", "csv", "gz", "parquet")):
        case "parquet":
            return kind, "in.parquet", parquet_bytes(columns)
        case "gz":
            return kind, "in.csv.gz", gzip.compress(csv_bytes(columns), mtime=0)
    return kind, rng.choice(("in.csv", "in.csv", "in[1].csv")), csv_bytes(columns)


def _with_wrong_arguments(rng, case, command):
    """The case with one or two changes to its arguments."""
    case.sound, case.kind = False, f"{case.kind} arguments"
    case.arguments = list(case.arguments)
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(1, len(case.arguments) + 1)
        match rng.randrange(7):
            case 0:
                case.arguments[place:] = case.arguments[place + 1 :]
            case 1:
                case.arguments[place:place] = [rng.choice(FLAGS)]
            case 2:
                case.arguments[place : place + 1] = [rng.choice(VALUES)]
            case 3:
                case.arguments[place:place] = [rng.choice(NAMES)]
            case _:
                option = rng.choice(OPTIONS[command])
                case.arguments += [option, rng.choice((*VALUES, *CHOICES.get(option, ())))]
    # These would start a cluster, or work for long: `test_process` has real ones.
    case.arguments = ["local" if word == "dask" else word for word in case.arguments]
    return case


def _clutter(rng, case):
    """Something in the place of an input or a result, or a disk that is full."""
    case.sound, case.kind = False, f"{case.kind} clutter"
    taken = [*case.files]
    match rng.randrange(7):
        case 0:
            case.disk = rng.choice((0, 10, 1000))
        case 1 if taken:
            case.files.pop(rng.choice(taken))
        case 2 if taken:
            name = rng.choice(taken)
            case.files.pop(name)
            case.places[name] = rng.choice(("folder", "pipe", "loop", "astray"))
        case 3:
            for name in ("out.csv", "evenout-out"):
                if not any(path.startswith(name) for path in case.files):
                    case.places[name] = rng.choice(("folder", "pipe", "loop", "astray"))
        case 4:
            case.places |= {"evenout-out/scores.csv": "folder", "link.csv": "astray", "folder": "folder"}
            case.files.pop("evenout-out/scores.csv", None)
        case _:
            out = rng.choice(
                [
                    *taken,
                    "in.csv",
                    ".",
                    "",
                    "evenout-out/x/y.csv",
                    "m.skops",
                    "/proc/x.csv",
                    "in.csv/x.csv",
                    "in",
                ]
            )
            case.arguments = [*case.arguments, "--out", out]
