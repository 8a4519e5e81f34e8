"""Files of small row groups that were copied together, told by the ends of their names.

Manifests tell how many row groups a file has, but not whether it was encoded already: where an optimizer has little
memory, row groups stay small, and the file would be encoded for ever.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_core.model.text_sanitizing import briefly

#: What names of such files end with, before the extension.
SUFFIX = "-copied"
#: The same with the extension.
ENDING = f"{SUFFIX}.parquet"


def is_copied(path: str) -> bool:
    """Whether the file at the path has small row groups that were copied."""
    return path.endswith(ENDING)


#: The name, for Arrow as for Python.
NAME = r"\.?[0-9]+-(B|I|ED|PD|IED|L)-[0-9]+-[0-9]+-[0-9]+-[^/\n]*"
_MIXED_NAME = re.compile(NAME)


def is_mixed(path: str) -> bool:
    """Whether the file at the path is named as one of Amoro's Mixed format."""
    return _MIXED_NAME.fullmatch(path.rpartition("/")[2]) is not None


#: How many reasons are told; files of the rarer ones are counted together.
MOST = 5
OTHERS = "other reasons"
#: Of files whose task's plan allows no copy.
PLANNED = "the plan copies nothing of their task"
#: Of files whose optimizer is of a version that does not tell.
UNTOLD = "the optimizer does not tell"
_LONGEST = 200  # characters of a reason: it comes from outside, and may name a column


@dataclass(frozen=True, slots=True)
class EncodedFiles:
    """How many files were encoded for one reason: of several that a file has, the first."""

    reason: str
    files: int


def commonest(counted: Iterable[tuple[str, int]]) -> tuple[EncodedFiles, ...]:
    """The commonest reasons with the files of each, equal ones summed, most files first; the rest as other reasons."""
    counts: Counter[str] = Counter()
    for reason, files in counted:
        if files > 0:
            counts[briefly(reason, _LONGEST) or UNTOLD] += files
    others = counts.pop(OTHERS, 0)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    others += sum(files for _, files in ordered[MOST:])
    told = [*ordered[:MOST], *([(OTHERS, others)] if others else [])]
    return tuple(EncodedFiles(reason, files) for reason, files in told)


#: The key of a clustered file's metadata under which its group and layout stand.
METADATA_KEY = "amoro.cluster"

_GROUP_ID = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"-g([0-9a-f]{12})\.[a-z]+\Z")


def group_suffix(group_id: str) -> str:
    """The end of the names of a group's files, before the extension. Raises ValueError unless it is 12 hex digits."""
    if not _GROUP_ID.fullmatch(group_id):
        raise ValueError(f"{group_id!r} is no id of a group: 12 lower-case hexadecimal digits")
    return f"-g{group_id}"


def group_of(path: str) -> str | None:
    """The id of the group that the file's name tells; None for a file that was not clustered."""
    found = _NAME.search(path)
    return found.group(1) if found else None


def layout_text(layout: Layout, group_id: str) -> str:
    """Group and layout as a file's metadata has them, the same text each time."""
    columns = [
        {
            "id": key.field_id,
            "transform": key.transform,
            "direction": "desc" if key.descending else "asc",
            "null-order": "nulls-last" if key.nulls_last else "nulls-first",
        }
        for key in layout.keys
    ]
    told = {
        "group": group_id,
        "strategy": layout.strategy.value,
        "columns": columns,
        "curve-version": layout.curve_version,
    }
    return json.dumps(told)


def parse_layout_text(text: str) -> tuple[str, Layout]:
    """Group and layout that a file's metadata tells. Raises ValueError for what `layout_text` does not write."""
    try:
        told = json.loads(text)
        keys = tuple(
            LayoutKey(
                int(column["id"]),
                str(column["transform"]),
                column["direction"] == "desc",
                column["null-order"] == "nulls-last",
            )
            for column in told["columns"]
        )
        return str(told["group"]), Layout(Strategy(told["strategy"]), keys, int(told["curve-version"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no description of a layout: {text[:200]}") from error
