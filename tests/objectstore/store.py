"""moto's S3 on loopback, and in front of it a store that is busy or slow as told."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

BUCKET = "warehouse"
REGION = "eu-west-1"
#: Nothing of the machine's own configuration, and no question to the network who we are.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
}
_BUSY = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"""
_PIECE = 2048

Environment = dict[str, Any]


@dataclass
class Store:
    """A WSGI application: S3, some requests to which are answered 503 or dribble, as the rules say."""

    #: Of each object (method and key) that this is true of so many requests are answered 503.
    is_busy_for: Callable[[str, str], int] = lambda method, key: 0
    #: Seconds between the pieces of an object that is read.
    pause_s: float = 0.0
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    slow_reads: int = 0
    _moto: Any = field(default_factory=lambda: _moto())
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _never: threading.Event = field(default_factory=threading.Event)

    def __call__(self, environ: Environment, respond: Callable[..., Any]) -> Iterable[bytes]:
        request = environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix(f"/{BUCKET}/")
        with self._lock:
            is_refused = self.refused[request] < self.is_busy_for(*request)
            self.refused[request] += is_refused
        if is_refused:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            respond("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(_BUSY)))])
            return [b"" if request[0] == "HEAD" else _BUSY]
        found = self._moto(environ, respond)
        return self._dribbled(found) if self.pause_s and request[0] == "GET" else found

    def _dribbled(self, body: Iterable[bytes]) -> Iterator[bytes]:
        content = b"".join(body)
        self.slow_reads += 1
        for start in range(0, len(content), _PIECE):
            self._never.wait(self.pause_s)
            yield content[start : start + _PIECE]

    def calm(self) -> None:
        """Serve honestly from now on."""
        self.is_busy_for, self.pause_s = lambda method, key: 0, 0.0


def _moto() -> Any:
    from moto.server import DomainDispatcherApplication, create_backend_app

    return DomainDispatcherApplication(create_backend_app)


@contextmanager
def bucket(shop: Store) -> Iterator[tuple[str, Any]]:
    """The store's address and boto's client of it, with an empty bucket, while the block lasts."""
    import boto3

    with served(shop) as address, pytest.MonkeyPatch.context() as environment:
        for key, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": address}.items():
            environment.setenv(key, value)
        client = boto3.client("s3", region_name=REGION, endpoint_url=address)
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        try:
            yield address, client
        finally:
            client.close()


@contextmanager
def served(application: Any) -> Iterator[str]:
    """The address of the application while the block lasts; moto knows nothing of the one before."""
    from moto.backends import get_backend
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *args: object, **more: object) -> None:
            """Nothing: requests are no news."""

    for account in get_backend("s3").values():
        for backend in account.values():
            backend.reset()
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Silent)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def properties(endpoint: str) -> Mapping[str, str]:
    """A catalog's properties for the store at that address."""
    return {"s3.endpoint": endpoint, "s3.region": REGION, "s3.access-key-id": "key", "s3.secret-access-key": "secret"}


def warehouse() -> str:
    """The URI of the warehouse."""
    return f"s3://{BUCKET}/wh"


def said(text: str, event: str) -> list[dict[str, Any]]:
    """The entries of a log of that event."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return [entry for line in lines if (entry := json.loads(line)).get("event") == event]
