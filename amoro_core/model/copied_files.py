"""Files of small row groups that were copied together, told by the ends of their names.

Manifests tell how many row groups a file has, but not whether it was encoded already: where an optimizer has little
memory, row groups stay small, and the file would be encoded for ever.
"""

#: What names of such files end with, before the extension.
SUFFIX = "-copied"
#: The same with the extension.
ENDING = f"{SUFFIX}.parquet"


def is_copied(path: str) -> bool:
    """Whether the file at the path has small row groups that were copied."""
    return path.endswith(ENDING)
