"""Small tables, whole ones and ones with something wrong in them, as the bytes of CSV and Parquet files."""

import csv
import io

import pyarrow as pa
import pyarrow.parquet as pq

# What a cell, a name or an option may hold that nobody thought of.
NUMBERS = (
    "1e308", "-1e308", "1e31", "1e30", "1e-320", "inf", "-inf", "nan", "1e400", "-1e400", "9" * 400, "0x1F",
    "1_000", "1,5", " 3 ", "--1", "+5", "1e", "-0", "0", "-1", "٣", "½", "18446744073709551616", "0.1e-5000",
)  # fmt: skip
TEXTS = (
    "", " ", "NA", "null", "missing", "True", "2020-01-01", "=1+1", "@x", "é", "İ", "日本", "\u202e", "\x1b[2J",
    "\0", "\r", "a\nb", "a,b", '"', "'", "x" * 3000, "🙂", "\ufeff", "nan & f", "merged: f", "f & m", "{}", "%s",
)  # fmt: skip
NAMES = (
    "", " ", "sex", "Sex", "sex ", "id", "group", "fair_score", "1", "nan", "a,b", "a\nb", '"', "x" * 3000, "é",
    "__index_level_0__", "index", "level_0", "income", "=x", "\x1b[2J", "\ufeffsex", "None", "[bold]", "0", "-1",
)  # fmt: skip


def people(rng, n=None):
    """A sound table: its columns by name. Three groups, two ages, four features, labels and ids."""
    n = n or rng.choice((12, 18, 24, 30))
    sex = [*"ffmmxx", *rng.choices("fmx", k=n)][:n]
    return {
        "person": [f"p{i:03}" for i in range(n)],
        "sex": sex,
        "age": rng.choices(("old", "young"), k=n),
        "home": ["own", "rent", *rng.choices(("own", "rent"), k=n)][:n],
        "income": [round(rng.gauss(0, 3 if group == "f" else 1), 3) for group in sex],
        "debt": [round(rng.gauss(0, 2), 3) for _ in sex],
        "risk": [round(rng.random(), 3) for _ in sex],
        "fraud": [i % 4 // 3 for i in range(n)],
    }


def spoil(rng, columns, times=1):
    """A list of columns, the names of which may repeat, with something changed."""
    for _ in range(times):
        columns = _spoil(rng, [(name, list(values)) for name, values in columns])
    return columns


def _spoil(rng, columns):
    if not columns or not columns[0][1]:
        return columns
    place = rng.randrange(len(columns))
    name, values = columns[place]
    n = len(values)
    match rng.randrange(10):
        case 0:  # a name
            columns[place] = rng.choice(NAMES), values
        case 1:  # a column
            columns.pop(place)
        case 2:
            columns.append((name, values))
        case 3:  # the rows
            few = rng.choice((0, 1, 2, 3))
            columns = [(name, values[:few]) for name, values in columns]
        case 4:
            columns = [(name, values[:1] * len(values)) for name, values in columns]
        case 5:  # all values of a column
            values[:] = [rng.choice(("", "NA", rng.choice(TEXTS), rng.choice(NUMBERS)))] * n
        case 6:
            values[:] = [rng.choice(NUMBERS) for _ in values]
        case 7:
            values[:] = [rng.choice(TEXTS) for _ in values]
        case 8:
            scale = rng.choice((1e-300, 1e-30, 1e15, 1e29, 1e30, 1e300))
            values[:] = [scale * (1 + i % 5) for i in range(n)]
        case _:  # one value
            values[n // 2 : n // 2 + 1] = [rng.choice(NUMBERS + TEXTS)]
    return columns


def csv_bytes(columns, **dialect):
    """The columns as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, **({"lineterminator": "\n"} | dialect))
    writer.writerow([name for name, _ in columns])
    writer.writerows(zip(*(values for _, values in columns), strict=True))
    return text.getvalue().encode("utf-8", "surrogatepass")


def odd_csv(rng, columns):
    """The columns as CSV of another kind: other separators, line ends, quotes, encodings, or cut lines."""
    text = csv_bytes(columns, quotechar="'" if rng.random() < 0.1 else '"').decode("utf-8", "surrogatepass")
    lines = text.split("\n")
    line = rng.randrange(len(lines))
    match rng.randrange(8):
        case 0:
            text = text.replace(",", rng.choice(";\t|: "))
        case 1:
            text = text.replace("\n", rng.choice(("\r", "\r\n", "\n\n", "\n\r")))
        case 2:
            lines[line] += rng.choice((",", '"', "'", ",,,,", "\0", '"x"y', " ", "\\", "#"))
        case 3:
            lines[line] = lines[line].partition(",")[2]
        case 4:
            lines.insert(line, rng.choice(("", " ", ",", '"', "# comment", lines[0], "," * 7, "\ufeff")))
        case 5:
            return text.encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig")), "surrogatepass")
        case 6:
            return text.encode(rng.choice(("latin1", "cp1252", "utf-7", "ascii")), "replace") + b"\xe9,\xff\n"
        case _:
            return text.encode("utf-8", "surrogatepass").replace(b"\n", rng.choice((b"\x85", b"\x0c", b"\0")))
    return (text if text != "\n".join(lines) and line % 2 else "\n".join(lines)).encode("utf-8", "surrogatepass")


def parquet_bytes(columns, metadata=None, **options):
    """The columns as Parquet: each of one type, text where its values are mixed."""
    arrays = [values if isinstance(values, pa.Array) else _array(values) for _, values in columns]
    return _parquet(pa.table(arrays, names=[name for name, _ in columns], metadata=metadata), **options)


def odd_parquet(rng, columns):
    """The columns as Parquet with another type in one of them, another layout, or odd metadata."""
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        place = rng.randrange(len(columns))
        kind, *values = rng.choice(_ODD)
        gap = rng.choice((1, 3, 100, 100, 100))
        array = [None if i % gap == gap - 1 else values[i % len(values)] for i in range(len(columns[place][1]))]
        columns = [*columns[:place], (columns[place][0], pa.array(array, kind)), *columns[place + 1 :]]
    name = rng.choice(columns)[0]
    index = rng.choice(('{"index_columns": ["NAME"]', '{"index_columns": [{"kind": "range"}]'))
    index = index.replace("NAME", name).encode("utf-8", "surrogatepass")
    metadata = rng.choice((
        None, None, {b"pandas": b"{"}, {b"pandas": b"[]"}, {b"pandas": b"\xff"}, {b"pandas": index + b"}"},
        {b"pandas": index + b', "columns": [], "column_indexes": []}'},
        {b"pandas": b'{"index_columns": ["x"], "columns": [{"name": 1}], "column_indexes": [{}]}'},
    ))  # fmt: skip
    layout = {
        "row_group_size": rng.choice((1, 5, 1000)),
        "compression": rng.choice(("snappy", "zstd", "none")),
    }
    return parquet_bytes(columns, metadata, **layout)


def _parquet(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def _array(values):
    try:
        return pa.array([None if value == "" else value for value in values])
    except (pa.ArrowException, UnicodeError):
        return pa.array([str(value).encode("utf-8", "surrogatepass") for value in values], pa.binary()).cast(
            pa.string(), safe=False
        )


_ODD = (
    (pa.null(), None), (pa.bool_(), True, False), (pa.int8(), 1, 0), (pa.uint64(), 2**64 - 1, 0, 1),
    (pa.int64(), 2**63 - 1, -(2**63), 0), (pa.float16(), 1.5, 2.5), (pa.float32(), float("inf")),
    (pa.float32(), 0.1, 3e38), (pa.float64(), float("nan"), 1.0), (pa.date32(), 0, 9), (pa.timestamp("s"), 2**50),
    (pa.timestamp("ns", "Europe/Rome"), 0), (pa.time64("us"), 0), (pa.duration("s"), 5, 6),
    (pa.decimal128(5, 2), 1, 2), (pa.decimal256(60, 2), 10**50, 1), (pa.binary(), b"\xff", b"f"),
    (pa.large_string(), "f", "m"), (pa.list_(pa.int8()), [1], []), (pa.list_(pa.float64(), 2), [1.0, 2.0]),
    (pa.struct([("a", pa.int8())]), {"a": 1}), (pa.map_(pa.string(), pa.int8()), [("a", 1)], []),
    (pa.dictionary(pa.int8(), pa.string()), "f", "m"), (pa.dictionary(pa.int8(), pa.float64()), 0.5, 1.5),
    (pa.list_(pa.string()), [], ["x"]), (pa.binary(3), b"abc"),
)  # fmt: skip
