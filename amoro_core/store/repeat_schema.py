"""What is kept of requests that carry a key, as the migration makes it; append another migration, do not edit this."""

#: The statements of the migration, in order.
REPEATS = (
    """
    CREATE TABLE keyed_request (
        key_hash TEXT NOT NULL PRIMARY KEY,
        request_hash TEXT NOT NULL,
        begun_at_ms INTEGER NOT NULL,
        status INTEGER CHECK (status BETWEEN 100 AND 599),
        media_type TEXT NOT NULL DEFAULT '',
        location TEXT NOT NULL DEFAULT '',
        content BLOB NOT NULL DEFAULT x''
    ) STRICT
    """,
    "CREATE INDEX keyed_request_by_time ON keyed_request (begun_at_ms)",
)
