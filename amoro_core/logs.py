"""Logs: human on a terminal, JSON otherwise, always on stderr."""

import logging
import sys

import structlog


def configure_logs(level: int = logging.INFO) -> None:
    """Send our events, and warnings of the libraries beneath, to stderr."""
    human = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer() if human else structlog.processors.dict_tracebacks,
            *([] if human else [structlog.processors.JSONRenderer()]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, force=True)
