"""Finding files by normalised path among paths in any spelling."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.live.columns import Ids
from amoro_core.model.paths import normalise

_OTHER_SCHEMES = {"s3": ("s3a", "s3n"), "gs": ("gcs",)}
_SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs", "oss", "abfs", "abfss", "wasb", "wasbs", "hdfs", "viewfs")
_LOCAL = r"(?:/(?:[^/.][^/]*|\.[^/]+))+"
#: The usual spellings of paths: two paths in the same one name the same file only if they are equal.
_WAYS = (_LOCAL, f"file:{_LOCAL}", f"file://{_LOCAL}", *(f"(?s:{scheme}://.*[^/])" for scheme in _SCHEMES))
#: Paths in one of the spellings that `_spellings` knows: nearly all, so few others need to be normalised.
_USUAL = f"^(?:{'|'.join(_WAYS)})$"


def find(paths: pa.ChunkedArray, names: Sequence[str]) -> tuple[Ids, Ids]:
    """The indexes of the paths whose normalised form is among the distinct names, and the indexes of these names."""
    at = {name: index for index, name in enumerate(names)}
    spelled = {text: index for name, index in at.items() for text in _spellings(name) if normalise(text) == name}
    known = np.fromiter(spelled.values(), np.int64, len(spelled))
    found = pc.index_in(paths, value_set=pa.array(list(spelled), paths.type)).fill_null(-1).to_numpy()
    files = np.flatnonzero(found >= 0)
    others = np.flatnonzero(~pc.match_substring_regex(paths, _USUAL).to_numpy() & (found < 0))
    more = [(file, at[name]) for file in others.tolist() if (name := normalise(paths[file].as_py())) in at]
    extra = np.array(more, np.int64).reshape(-1, 2)
    return np.concatenate((files, extra[:, 0])), np.concatenate((known[found[files]], extra[:, 1]))


def repeated(paths: pa.ChunkedArray) -> str | None:
    """A normalised path that occurs more than once among the paths; None without one."""
    if len(pc.unique(paths)) == len(paths) and _is_spelled_one_way(paths):
        return None
    counts = Counter(map(normalise, paths.to_pylist()))
    return next((path for path, count in counts.items() if count > 1), None)


def _is_spelled_one_way(paths: pa.ChunkedArray) -> bool:
    way = next((way for way in _WAYS if len(paths) and re.fullmatch(way, paths[0].as_py())), None)
    return way is not None and bool(pc.all(pc.match_substring_regex(paths, f"^{way}$")).as_py())


def _spellings(name: str) -> tuple[str, ...]:
    """The usual spellings of a normalised path."""
    if name.startswith("/"):
        return name, f"file:{name}", f"file://{name}"
    scheme, found, rest = name.partition("://")
    return name, *(f"{other}{found}{rest}" for other in _OTHER_SCHEMES.get(scheme, ()))
