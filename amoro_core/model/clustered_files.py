"""How a clustered file says which group it belongs to and in which order its rows stand: by its name and its footer."""

import json
import re

from amoro_core.model.clustering import Layout, LayoutKey, Strategy

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
