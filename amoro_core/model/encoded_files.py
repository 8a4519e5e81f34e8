"""Why rewritten files were decoded and encoded anew where their row groups might have been copied."""

from collections import Counter
from collections.abc import Iterable

from amoro_core.model.texts import briefly
from amoro_core.records import record

#: How many reasons are told; files of the rarer ones are counted together.
MOST = 5
OTHERS = "other reasons"
#: Of files whose task's plan allows no copy.
PLANNED = "the plan copies nothing of their task"
#: Of files whose optimizer is of a version that does not tell.
UNTOLD = "the optimizer does not tell"
_LONGEST = 200  # characters of a reason: it comes from outside, and may name a column


@record
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
