"""Damage to files: bytes cut, flipped or moved; archives that are no models; models with one wrong entry."""

import copy
import io
import json
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from evenout.storage.archive import read_plain, write_plain


def damaged(rng, content, other=b""):
    """The bytes with one to three things wrong."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        start = rng.randrange(len(content) + 1)
        stop = min(len(content), start + rng.choice((1, 4, 30)))
        match rng.randrange(8):
            case 0:
                content = content[:start]
            case 1:
                content = content[start:]
            case 2 | 3:
                content = (
                    content[:start] + bytes(b ^ 1 << rng.randrange(8) for b in content[start:stop]) + content[stop:]
                )
            case 4:
                content = content[:start] + rng.randbytes(stop - start) + content[start:]
            case 5:
                content = content[:start] + content[stop:]
            case 6:
                content = content[:start] + content[start:stop] * 3 + content[stop:]
            case _:
                content = content[:start] + rng.choice((other[start:], b"\0" * 50, b"\xff" * 9, rng.randbytes(200)))
    return content


def wrong_archive(rng, model):
    """A zip file that is no model: foreign, with odd names, compressed, with a schema that is wrong, or claims."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(model)) as source, zipfile.ZipFile(file, "w") as target:
        schema = source.read("schema.json").decode()
        names = [name for name in source.namelist() if name != "schema.json"]
        packing = zipfile.ZIP_DEFLATED if rng.random() < 0.1 else zipfile.ZIP_STORED
        for place, name in enumerate(names):
            renamed = rng.choice((f"../../{place}", f"/{place}", f"C:/{place}")) if rng.random() < 0.1 else name
            content = source.read(name) if rng.random() < 0.95 else b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 70000
            target.writestr(zipfile.ZipInfo(renamed), content, packing)
        match rng.randrange(9):
            case 0:
                schema = rng.choice(("", "{}", "[]", "null", "1", '"x"', "{", "\xff", "NaN", "1" * 5000))
            case 1:
                schema = "[" * 100_000
            case 2:
                schema = _nested(schema, 2000)
            case 3:
                schema = schema.replace('"builtins"', '"os"').replace('"dict"', '"system"')
            case 4:
                schema = schema.replace(".npy", rng.choice((".npz", "", "/../x", "\\u0000")), 1)
            case 5:
                schema = schema.replace(rng.choice(('"content"', '"__class__"', '"key_types"')), '"x"')
            case 6:
                schema = schema.replace("0", rng.choice(("9" * 500, "-1", "NaN", "1e999", "null", "[]")), 1)
            case 7:
                target.writestr("bomb", b"\0" * 5_000_000, zipfile.ZIP_DEFLATED)
        target.writestr("schema.json", schema)
    return file.getvalue()


def _nested(schema, depth):
    node = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
    text = json.dumps(node | {"content": []})
    for _ in range(depth):
        text = json.dumps(node)[:-1] + f', "content": [{text}]}}'
    return text if depth else schema


def wrong_entry(rng, model):
    """A model file, whole in itself, in which an entry is missing, of another type, or out of its range."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        path.write_bytes(model)
        data = read_plain(path)
        for _ in range(rng.choice((1, 1, 2))):
            _change(rng, data)
        write_plain(data, path)
        return path.read_bytes()


def _change(rng, node):
    """Walk down to a random entry and change it."""
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(node[key], dict | list) and rng.random() < 0.95:
            node = node[key]
            continue
        if isinstance(node, dict) and rng.random() < 0.1:
            del node[key]
        elif isinstance(node[key], np.ndarray) and rng.random() < 0.8:
            node[key] = _wrong_array(rng, node[key])
        else:
            node[key] = copy.deepcopy(rng.choice(_ENTRIES))  # the next change may be in it
        return


def _wrong_array(rng, array):
    array = array.copy()
    match rng.randrange(7):
        case 0:
            return array[: rng.randrange(len(array) + 1)] if array.ndim else array
        case 1:
            return array.astype(rng.choice(("float64", "int64", "int32", "bool")))
        case 2:
            return array.reshape(-1)
        case 3:
            return np.concatenate([array, array]) if array.ndim else array
        case 4:
            return np.zeros_like(array)
        case 5:
            return array[None]
    if array.size:
        places = [rng.randrange(array.size) for _ in range(rng.choice((1, array.size)))]
        value = rng.choice((0, -1, 1, 7, 2**31 - 1, 1e300, -1e300, 1e-320, np.nan, np.inf))
        with np.errstate(invalid="ignore"):
            array.ravel()[places] = np.array(value).astype(array.dtype)
    return array


_ENTRIES = (
    None, True, False, 0, -1, 1, 2, 3.5, 2**31, 2**70, 10**400, float("nan"), float("inf"), 1e308, "", "x", "rank",
    "maximum", "zscore", "individual", "precomputed", [], [1], ["x"], [[]], {}, {"x": 1}, {"individual": 1.0},
    np.zeros(0), np.zeros(3), np.ones((3, 3)), np.array(1.0), np.arange(4), np.array([True]), "\x1b[2J", "x" * 3000,
)  # fmt: skip
