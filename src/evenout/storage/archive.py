"""Plain data in a skops file, and nothing else out of one.

A file holds dicts with text as keys, lists, text, numbers, truth values, None and arrays of numbers. It names no other
class, so loading one creates only these objects and runs no code. The claims of a file are checked before any of it is
read: members are not compressed, so they cannot be larger than the file, and an array is as long as its header says.
Large arrays are packed (`evenout.storage.packing`).
"""

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from evenout.exceptions import InputError
from evenout.storage.packing import packed, unpacked
from evenout.tables.files import require_file

# The whole list: how skops is asked to build a node, and of which type.
TRUSTED = {
    ("DictNode", "builtins", "dict"),
    ("ListNode", "builtins", "list"),
    ("JsonNode", "builtins", "str"),  # text, numbers, truth values and None
    ("NdArrayNode", "numpy", "ndarray"),
    ("TypeNode", "builtins", "str"),  # of the keys of a dict
}
_DTYPES = tuple(np.dtype(kind) for kind in (np.float64, np.float32, np.int64, np.int32, np.bool_, np.uint8))
_SCHEMA = "schema.json"


class ModelFileError(InputError):
    """A file that is no model of evenout, or a damaged one, or one that asks for more than plain data.

    Text without fields is no template: it may hold what a file says.
    """

    def __init__(self, text: str = "", /, **fields: Any) -> None:
        super().__init__(text if fields else "{text}", **(fields or {"text": text}))


def write_plain(data: Any, path: Path) -> None:
    """Write plain data (see `plain`); the same data gives the same bytes."""
    import skops.io

    with (
        ZipFile(io.BytesIO(skops.io.dumps(packed(data)))) as source,
        ZipFile(path, "w", compression=ZIP_STORED) as target,
    ):
        schema = json.loads(source.read(_SCHEMA))
        for node in _nodes(schema):
            node.pop("__id__", None)  # ids and names of members are addresses in memory, new in every run
            if "file" in node:
                array, node["file"] = source.read(node["file"]), f"{len(target.filelist)}.npy"
                target.writestr(ZipInfo(node["file"]), array)
        target.writestr(ZipInfo(_SCHEMA), json.dumps(schema))


def read_plain(path: Path) -> Any:
    """Read plain data; a `ModelFileError` in one line if the file is anything else."""
    import skops.io

    require_file(path)
    with path.open("rb") as file:
        try:
            _check(file)
            return unpacked(skops.io.load(file, trusted=[]))
        except ModelFileError:
            raise
        except Exception as error:  # anything that readers of zip, JSON and arrays raise on a damaged file
            raise ModelFileError(f"it is damaged, or no model file of evenout ({type(error).__name__})") from error


def plain(value: Any) -> Any:
    """Turn tuples into lists and numpy's numbers into Python's; refuse what is no plain data.

    >>> plain({"size": np.int64(3), "names": ("a", "b")})
    {'size': 3, 'names': ['a', 'b']}
    """
    match value:
        case dict() if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case np.ndarray() if value.dtype in _DTYPES:
            return np.ascontiguousarray(value)
        case np.generic():
            return plain(value.item())
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"{type(value).__name__} is not plain data")


def _check(file: IO[bytes]) -> None:
    """Refuse a file whose members, nodes or arrays are other than `write_plain` makes them."""
    size = file.seek(0, io.SEEK_END)
    with ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        stored = all(member.compress_type == ZIP_STORED for member in archive.filelist)
        total = sum(max(member.file_size, member.compress_size) for member in members.values())
        if len(members) != len(archive.filelist) or not stored or total > size:
            raise ModelFileError("its parts are compressed or overlap, which evenout never writes")
        for node in _nodes(json.loads(archive.read(_SCHEMA))):
            if "__id__" in node:  # one node in the place of another
                raise ModelFileError("it holds references, which evenout never writes")
            if "file" in node:
                array = members.pop(node["file"], None)
                if array is None:  # a few bytes each would otherwise repeat a large array without end
                    raise ModelFileError("it holds an array twice or not at all, which evenout never writes")
                with archive.open(array) as member:  # numpy reserves as much memory as the header asks for
                    if np.lib.format.read_magic(member) != (1, 0):
                        raise ModelFileError("it holds an array in an unknown format")
                    shape, _, dtype = np.lib.format.read_array_header_1_0(member)
                    if dtype not in _DTYPES or min(shape, default=0) < 0:
                        raise ModelFileError(f"it holds an array of type {dtype}, which a model of evenout never does")
                    if member.tell() + math.prod(shape) * dtype.itemsize != array.file_size:
                        raise ModelFileError("it holds an array that is longer or shorter than it says")
    file.seek(0)


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every node of a skops schema, depth first; each is checked to be of a trusted type before its content is used."""
    kind = (node["__loader__"], node["__module__"], node["__class__"])
    if kind not in TRUSTED:
        raise ModelFileError(f"it holds {kind[1]}.{kind[2]}, which a model of evenout never does")
    if kind[0] == "NdArrayNode" and node["type"] != "numpy":
        raise ModelFileError("it holds an array of objects, which a model of evenout never does")
    yield node
    if kind[0] == "DictNode":
        yield from _nodes(node["key_types"])
    if kind[0] in ("DictNode", "ListNode"):
        for child in node["content"].values() if kind[0] == "DictNode" else node["content"]:
            yield from _nodes(child)
