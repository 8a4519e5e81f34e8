"""What holds of every command that was given a bad input, and what of the installation afterwards."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from amoro_core import errors
from amoro_core.errors import AmoroError

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
    "catalog_metadata": "*",
    "resource_group": "*",
    "access_token": "*",
    "table_blocker": "*",
    "table_process": "*",
    "task_runtime": "*",
    "commit_attempt": "*",
    "optimizer": "*",
    "resource": "*",
    "table_identifier": "*",
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
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no regular file"
