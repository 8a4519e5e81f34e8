"""The newest schema as one script, `schema.sql`: a new database needs none of the history that made it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amoro_core.store.connection import Connection

SCRIPT = Path(__file__).with_name("schema.sql")

_END = ";\n\n"
_HEAD = """\
-- The state database as the migrations leave a new one, made from them by `python docs/generate.py`. Not edited.

"""


def make_newest(db: Connection) -> None:
    """Run the script in an empty database, within the caller's transaction."""
    for statement in SCRIPT.read_text(encoding="utf-8").split(_END)[:-1]:
        db.execute(statement)


def is_empty(db: Connection) -> bool:
    """Whether nothing has been made in the database yet."""
    return db.select_one("SELECT 1 FROM sqlite_master") is None


def script_of(db: Connection) -> str:
    """What makes this database anew: statements that end in a semicolon and an empty line. Times are left out."""
    found = db.select("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*'")
    statements = [row["sql"] for row in found]
    statements += [insert for row in found if row["type"] == "table" for insert in _inserts(db, row["name"])]
    if unclear := [statement for statement in statements if _END in statement]:
        raise ValueError(f"a statement has an empty line after a semicolon: {unclear[0]}")
    return _HEAD + "".join(statement + _END for statement in statements)


def _inserts(db: Connection, table: str) -> Iterator[str]:
    for row in db.select(f'SELECT * FROM "{table}"'):
        kept = {name: value for name, value in row.items() if value is not None and name != "applied_at_ms"}
        yield f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({', '.join(map(_literal, kept.values()))})"


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"
