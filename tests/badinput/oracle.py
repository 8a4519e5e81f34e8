"""A table of its own for each bad input, what holds of every command that is given one, and of the table afterwards."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sqlite3
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from amoro_core import errors
from amoro_core.errors import AmoroError, CheckFailed
from tests.acceptance.processes import Installation, wait_until
from tests.acceptance.tables import name_of
from tests.badinput.values import Chance
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.files import PLAIN, Layout
from tests.engine.parquet_rows import local_path
from tests.engine.values import Row

#: How long one command may take on a busy machine.
LIMIT_S = 120
#: Of every module: what a library leaves open over a bad input is not the point.
MARKS = [pytest.mark.filterwarnings("ignore::ResourceWarning"), pytest.mark.timeout(LIMIT_S)]
#: Exit status by documented code, but for the one that stands for errors of ours.
CODES: Mapping[str, int] = {
    kind.code: kind.exit_status
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, AmoroError) and kind is not AmoroError
}
#: Of what a coordinator keeps, all that a command could change; by table, with the columns that time changes left out.
_KEPT = {
    **dict.fromkeys(("catalog_metadata", "resource_group", "access_token", "table_blocker", "table_process"), "*"),
    **dict.fromkeys(("task_runtime", "commit_attempt", "optimizer", "resource", "table_identifier"), "*"),
    # A look at the table may find work, and a request that can not be planned has it evaluated anew.
    "table_runtime": "table_id, enabled_override, replace(status, 'pending', 'idle')",
}
_SAID_TO_A_PERSON = 16_000  # characters: a notice, an error and a hint, each of which is cut at 4 kB


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it said."""

    arguments: Sequence[str]
    status: int
    out: str
    err: str

    @property
    def code(self) -> str:
        """The code of the error that ended it; "" without one."""
        found = re.findall(r"^Error: .*?\[(AMORO-\d{4})\]$", self.err, re.MULTILINE | re.DOTALL)
        return found[-1] if found else ""


#: A command with its arguments, and how it ends.
Call = Callable[..., Ended]


def assert_ended_as_documented(ended: Ended, how: str = "") -> None:
    """Fail unless it ended with 0, or with an error as they are documented: code, status, hint, in readable text."""
    told = f"{how}: {list(ended.arguments)!r} ended with {ended.status}: {ended.out}{ended.err}"
    assert "Traceback" not in ended.err, told
    assert not re.search(r"AMORO-1000| object at 0x|This should not have happened", ended.err), told
    # A row of a list and a line of an error alike: nothing steers the terminal or turns the text around.
    steering = [
        letter for letter in ended.out + ended.err if letter != "\n" and unicodedata.category(letter) in _STEERS
    ]
    assert not steering, f"{steering} in {told}"
    if ended.status == 0:
        assert "Error: " not in ended.err, told
        return
    assert (ended.code, ended.status) in CODES.items(), told
    assert "\nHint: " in ended.err, told
    assert len(ended.err) <= _SAID_TO_A_PERSON, told


_STEERS = ("Cc", "Cf", "Cs")


def state_of(home: Path) -> dict[str, list[Any]]:
    """What a coordinator keeps, as it is on disk."""
    with closing(sqlite3.connect(f"file:{home / 'amoro.db'}?mode=ro", uri=True, timeout=60)) as db:
        return {
            table: db.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()
            for table, columns in _KEPT.items()
        }


def files_of(directory: Path) -> dict[str, str]:
    """Every file below the directory with the digest of its bytes; what is no regular file by its kind."""
    return {str(path.relative_to(directory)): _digest(path) for path in sorted(directory.rglob("*"))}


def _digest(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if path.is_dir():
        return "directory"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no regular file"
    except FileNotFoundError:  # removed between listing and reading
        return "gone"


#: Makes the table bad, and says how.
Break = Callable[[Chance, Table], str]
NO_RETRIES = {"self-optimizing.execute.num-retries": "0"}
#: With these, minor optimizing copies row groups of files as small as ours.
COPYING = {"self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes": "0"}
#: Where the outputs are not what the inputs' manifest entries say, no file alone is at fault.
OTHER_VALUES = CheckFailed.code
#: A turned bit is seen before its page is copied.
CHECKED = Layout(options=(("write_page_checksum", True), ("write_page_index", True)), row_group_rows=2)
_NUMBERS = itertools.count(1)
_LOOKS = (
    *(("plan", "--explain"), ("table", "show"), ("table", "files"), ("table", "snapshots"), ("table", "properties")),
    *(("table", "health"), ("verify",)),
)
#: What stays of a coordinator's state whatever happens to one table.
_ALWAYS_KEPT = ("catalog_metadata", "resource_group", "access_token", "table_blocker", "optimizer", "resource")
#: Ends of an optimizing that say that the table is bad: nobody waits for anything, and nothing is left open.
_STATUSES = (0, 1, 2, 3, 6)


def new_table(catalog: Catalog, copies: bool = False) -> Table:
    """A table with data files, equality and position deletes in two partitions."""
    properties = {**NO_RETRIES, **(COPYING if copies else {})}
    table = writer.make_table(catalog, f"db.t{next(_NUMBERS)}", SCHEMA, BY_PART, properties=properties)
    for first in (0, 10):
        rows = [row(first + number, part) for number in range(4) for part in ("a", "b")]
        writer.append(table, rows, layout=CHECKED if copies else PLAIN)
    writer.upsert(table, [row(1, "a", "new")], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 12)
    return table


def rows_of(table: Table) -> Counter[Row] | None:
    """The rows as the slow reader sees them; None where it sees none of them for the table's faults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyiceberg warns of what it reads all the same
        return _rows_of(table)


def _rows_of(table: Table) -> Counter[Row] | None:
    try:
        # A pipe would be waited for, and a device never ends.
        if all(Path(local_path(file.path)).is_file() for file in oracle.live_files(table)):
            return oracle.live_rows(table)
    except Exception:  # whatever is wrong: it is the input that is bad
        return None
    return None


def check(installed: Installation, call: Call, chance: Chance, break_it: Break, *, copies: bool = False) -> None:
    """Fail unless each command ends as documented, and the table is as it was or has the same rows by a new commit.

    `copies`: row groups of its files can be copied. No commit is without a file that was; a failure names the file that
    was broken, or is that of a check.
    """
    table = new_table(installed.catalog, copies)
    name, whole = name_of(table), rows_of(table)
    how = break_it(chance, table)
    directory = Path(local_path(table.metadata.location))
    where, before, rows = _metadata_location(installed, table), files_of(directory), rows_of(table)
    kept = {key: value for key, value in state_of(installed.home).items() if key in _ALWAYS_KEPT}

    look = chance.choice(_LOOKS)
    ended = call(*look, name)
    assert_ended_as_documented(ended, how)
    assert (_metadata_location(installed, table), files_of(directory)) == (where, before), (how, look)

    copied = _copied(installed)
    ended = call("optimize", name, "--type", "minor" if copies else "full", "--wait", "--timeout", "60s")
    assert_ended_as_documented(ended, how)
    assert ended.status in _STATUSES, _told(how, ended)
    after = _metadata_location(installed, table)
    if after == where:
        _assert_same_files(directory, before, _told(how, ended))
        assert not copies or how.split(":")[0] in ended.err or ended.code == OTHER_VALUES, _told(how, ended)
    else:
        assert ended.status == 0, _told(how, ended)
        # Where the slow reader gives up, as for a name in an Avro schema, what was committed are the rows from before.
        oracle.assert_same_rows(whole or Counter() if rows is None else rows, rows_of(table) or Counter())
        assert (_copied(installed) > copied) is copies, how
    stands = state_of(installed.home)
    assert {key: stands[key] for key in _ALWAYS_KEPT} == kept, how
    assert _held(installed) == [], _told(how, ended)


def _assert_same_files(directory: Path, before: Mapping[str, str], told: str) -> None:
    """What a process that failed has written is removed soon after it."""
    try:
        wait_until(lambda: files_of(directory) == before, "what a process that failed has written is removed")
    except AssertionError:
        left = set(files_of(directory).items()) ^ set(before.items())
        raise AssertionError(f"{sorted(left)} came or went: {told}") from None


def _told(how: str, ended: Ended) -> str:
    return f"{how}: {ended.status}\n{ended.out}{ended.err}"


def _metadata_location(installed: Installation, table: Table) -> str:
    with closing(sqlite3.connect(installed.directory / "catalog.db", timeout=60)) as db:
        (found,) = db.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", table.name()[-1:])
    return str(found[0])


def _copied(installed: Installation) -> int:
    """How many files the tasks so far copied whole, as the log says."""
    lines = (line for _, text in installed.logs() for line in text.splitlines() if '"files.copied"' in line)
    return sum(json.loads(line)["copied"] for line in lines)


def _held(installed: Installation) -> list[str]:
    """Tables that a process still holds."""
    with closing(sqlite3.connect(f"file:{installed.home / 'amoro.db'}?mode=ro", uri=True, timeout=60)) as db:
        query = "SELECT process_id FROM table_process WHERE status IN ('running', 'committing', 'commit_unknown')"
        return [str(process_id) for (process_id,) in db.execute(query)]
