"""Users, by name, in `user_account`; of their passwords slow hashes alone are stored."""

from amoro_core.errors import AlreadyExists, NotFound
from amoro_core.model.accounts import UserAccount
from amoro_core.model.tokens import Role
from amoro_core.store.connection import Connection, Duplicate, Row
from amoro_core.store.rows import from_ms, insert_into, to_ms, update_of

_COLUMNS = ("user_name", "role", "pattern", "password_hash", "created_at_ms")
_INSERT = insert_into("user_account", _COLUMNS)
_UPDATE = update_of("user_account", _COLUMNS, ("user_name",))


def add(db: Connection, user: UserAccount) -> UserAccount:
    """Raises AlreadyExists."""
    try:
        db.execute(_INSERT, _row(user))
    except Duplicate as error:
        raise AlreadyExists(f"user {user.name!r} exists already") from error
    return user


def find(db: Connection, name: str) -> UserAccount | None:
    """The user of that name; None when there is none."""
    row = db.select_one("SELECT * FROM user_account WHERE user_name = :name", {"name": name})
    return None if row is None else _from_row(row)


def get(db: Connection, name: str) -> UserAccount:
    """The user of that name. Raises NotFound."""
    found = find(db, name)
    if found is None:
        raise _unknown(name)
    return found


def save(db: Connection, user: UserAccount) -> UserAccount:
    """Raises NotFound."""
    if not db.execute(_UPDATE, _row(user)):
        raise _unknown(user.name)
    return user


def remove(db: Connection, name: str) -> None:
    """Raises NotFound."""
    if not db.execute("DELETE FROM user_account WHERE user_name = :name", {"name": name}):
        raise _unknown(name)


def list_page(db: Connection, after: str, limit: int) -> list[UserAccount]:
    """Up to `limit` of them in order of name, after the name `after`, which need not exist."""
    sql = "SELECT * FROM user_account WHERE user_name > :after ORDER BY user_name LIMIT :most"
    return [_from_row(row) for row in db.select(sql, {"after": after, "most": limit})]


def count(db: Connection) -> int:
    """How many there are."""
    return int(db.select("SELECT count(*) AS known FROM user_account")[0]["known"])


def _unknown(name: str) -> NotFound:
    return NotFound(f"user {name!r} is not known", hint="`amoro user list` shows the known ones.")


def _row(user: UserAccount) -> Row:
    return {
        "user_name": user.name,
        "role": user.role.value,
        "pattern": user.pattern,
        "password_hash": user.password_hash,
        "created_at_ms": to_ms(user.created_at),
    }


def _from_row(row: Row) -> UserAccount:
    return UserAccount(
        row["user_name"], Role(row["role"]), row["pattern"], row["password_hash"], from_ms(row["created_at_ms"])
    )
