"""Log events with keys and values, as records of the standard library's logging below the logger `amoro`.

As for any library, the program configures where they go; by default nowhere. Our commands and services send them to
stderr (`amoro_core.bootstrap.process`).
"""

import logging
from collections.abc import MutableMapping
from typing import Any, cast

import structlog

ROOT = "amoro"
#: The attribute of a record that holds the event with its keys and values.
FIELDS = "amoro_event"

logging.getLogger(ROOT).addHandler(logging.NullHandler())


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger of events; its name is below `amoro`."""
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _record],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast(structlog.stdlib.BoundLogger, logger)


def _record(logger: Any, method: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """Arguments for the standard library's logger: a line for any handler, and the fields for ours."""
    fields = dict(event)
    error = fields.pop("exc_info", None)
    words = (str(fields["event"]), *(f"{key}={value}" for key, value in fields.items() if key != "event"))
    return (" ".join(words),), {"exc_info": error, "extra": {FIELDS: fields}}
