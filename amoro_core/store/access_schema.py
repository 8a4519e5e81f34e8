"""What accounts and their audit keep in the store, as migrations make it; append another, do not edit these."""

from amoro_core.store.connection import Connection


def limit_tokens(db: Connection) -> None:
    """A token may end by itself, and may act on some tables alone."""
    db.execute("ALTER TABLE access_token ADD COLUMN pattern TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE access_token ADD COLUMN expires_at_ms INTEGER")


_OUTCOMES = "'begun', 'done', 'refused', 'failed'"
_KEPT = ("at_ms", "actor", "is_user", "said", "role", "address", "way", "operation", "object", "parameters_json")
_CHANGED = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in _KEPT)
AUDIT = (
    f"""
    CREATE TABLE audit_event (
        event_id INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms INTEGER NOT NULL,
        actor TEXT NOT NULL,
        is_user INTEGER NOT NULL CHECK (is_user IN (0, 1)),
        said TEXT NOT NULL,
        role TEXT NOT NULL,
        pattern TEXT NOT NULL,
        address TEXT NOT NULL,
        way TEXT NOT NULL,
        operation TEXT NOT NULL CHECK (operation <> ''),
        object TEXT NOT NULL,
        parameters_json TEXT NOT NULL,
        is_dry_run INTEGER NOT NULL CHECK (is_dry_run IN (0, 1)),
        outcome TEXT NOT NULL CHECK (outcome IN ({_OUTCOMES})),
        code TEXT NOT NULL
    ) STRICT
    """,
    # What was written down stays as it is; the outcome of a call that has begun is set once.
    f"""
    CREATE TRIGGER audit_event_stays BEFORE UPDATE ON audit_event WHEN OLD.outcome <> 'begun' OR {_CHANGED}
    BEGIN SELECT RAISE(ABORT, 'audit_event is append only'); END
    """,
    "CREATE INDEX audit_event_by_time ON audit_event (at_ms)",
    "CREATE INDEX audit_event_by_actor ON audit_event (actor)",
    "CREATE INDEX audit_event_by_operation ON audit_event (operation, at_ms)",
)


def keep_audit(db: Connection) -> None:
    """Who has changed what."""
    for statement in AUDIT:
        db.execute(statement)


ACCOUNTS = (
    """
    CREATE TABLE user_account (
        user_name TEXT PRIMARY KEY CHECK (user_name <> ''),
        role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
        pattern TEXT NOT NULL CHECK (pattern = '' OR role = 'operator'),
        password_hash TEXT NOT NULL CHECK (password_hash <> ''),
        created_at_ms INTEGER NOT NULL
    ) STRICT
    """,
    # Sessions hold no secret: the browser has the id. No reference: a session of a removed account fits none.
    """
    CREATE TABLE http_session (
        session_hash TEXT PRIMARY KEY CHECK (session_hash <> ''),
        holder TEXT NOT NULL CHECK (holder IN ('user', 'token')),
        account_name TEXT NOT NULL CHECK (account_name <> ''),
        fingerprint TEXT NOT NULL CHECK (fingerprint <> ''),
        created_at_ms INTEGER NOT NULL,
        seen_at_ms INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX http_session_by_account ON http_session (holder, account_name)",
    "CREATE INDEX http_session_by_use ON http_session (seen_at_ms)",
)


def keep_accounts(db: Connection) -> None:
    """Users, and the sessions of browsers."""
    for statement in ACCOUNTS:
        db.execute(statement)


#: SQLite alters no CHECK: the table is made anew.
PEOPLE = (
    "ALTER TABLE http_session RENAME TO http_session_before",
    """
    CREATE TABLE http_session (
        session_hash TEXT PRIMARY KEY CHECK (session_hash <> ''),
        holder TEXT NOT NULL CHECK (holder IN ('user', 'token', 'person')),
        account_name TEXT NOT NULL CHECK (account_name <> ''),
        fingerprint TEXT NOT NULL CHECK (fingerprint <> ''),
        created_at_ms INTEGER NOT NULL,
        seen_at_ms INTEGER NOT NULL,
        role TEXT NOT NULL CHECK (role IN ('', 'viewer', 'operator', 'admin') AND (role <> '') = (holder = 'person')),
        pattern TEXT NOT NULL CHECK (pattern = '' OR role = 'operator')
    ) STRICT
    """,
    """
    INSERT INTO http_session
    SELECT session_hash, holder, account_name, fingerprint, created_at_ms, seen_at_ms, '', '' FROM http_session_before
    """,
    "DROP TABLE http_session_before",
    "CREATE INDEX http_session_by_account ON http_session (holder, account_name)",
    "CREATE INDEX http_session_by_use ON http_session (seen_at_ms)",
)


def admit_people(db: Connection) -> None:
    """Sessions of an OpenID provider's people, who have no account here: their roles are kept with them."""
    for statement in PEOPLE:
        db.execute(statement)
