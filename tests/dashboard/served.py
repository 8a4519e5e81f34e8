"""A coordinator in the test's process that serves pages and REST, and requests to it as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from amoro_core.bootstrap import coordinator_app
from amoro_core.bootstrap.coordinator_app import Coordinator, running
from amoro_core.bootstrap.settings import Settings
from amoro_core.web.server import Listener


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its status, headers by their names in lower case, and body."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Served:
    """A coordinator and the port on which it serves."""

    coordinator: Coordinator
    port: int

    @property
    def admin(self) -> str:
        return self.coordinator.admin_token.reveal()

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        token: str | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """What it answers; with the admin token unless another ("": none) is given. A body is sent as JSON."""
        given = self.admin if token is None else token
        sent = {**({"Authorization": f"Bearer {given}"} if given else {}), **(headers or {})}
        content = None
        if body is not None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"Content-Type": "application/json", **sent}
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=90)) as connection:
            connection.request(method, path, body=content, headers=sent)
            answer = connection.getresponse()
            names: dict[str, str] = {}
            for name, value in ((name.lower(), value) for name, value in answer.getheaders()):
                names[name] = f"{names[name]}, {value}" if name in names else value
            return Answer(answer.status, names, answer.read().decode())


@contextmanager
def without_catalogs(directory: Path) -> Iterator[None]:
    """No catalog of whoever runs the tests is found during the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(directory))
        patch.setenv("PYICEBERG_HOME", str(directory))
        yield


@contextmanager
def serving(home: Path, settings: Settings | None = None, *, watch: bool = False) -> Iterator[Served]:
    """A coordinator with that state directory, and no other catalogs, which serves on loopback during the block."""
    wanted = replace(settings or Settings(), port=0)
    with (
        without_catalogs(home.parent),
        closing(Listener("127.0.0.1", 0, wanted.certificates())) as listener,
        running(home, wanted, watch=watch) as coordinator,
        coordinator_app.serving(coordinator, listener),
    ):
        yield Served(coordinator, listener.port)
