"""A receiver of webhooks as the documentation has it, which notes what it took and answers as it is told."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from docs.examples import receiver
from tests.acceptance.processes import wait_until

SECRET = "whsec_" + base64.b64encode(b"a key of no less than 24 bytes").decode()


class Server(ThreadingHTTPServer):
    """What was sent, in order: CloudEvents that were taken, and how many were not."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.status, self.refused = 204, 0
        self.taken: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks?for=tests"

    @property
    def asked(self) -> int:
        """How often something was sent."""
        return len(self.taken) + self.refused

    def wait_for_more(self, known: int) -> None:
        """Until something was sent more often than that."""
        wait_until(lambda: self.asked > known, "something was sent")

    @property
    def ids(self) -> list[int]:
        return [int(event["id"].partition("-")[0]) for event in self.taken]


class _Receiver(receiver.Receiver):
    server: Server
    protocol_version = "HTTP/1.1"

    def take(self, event: dict[str, Any]) -> None:
        if self.server.status == 204:
            self.server.taken.append(event)

    def send_response_only(self, code: int, message: str | None = None) -> None:
        is_ours = code == 204
        code = self.server.status if is_ours else code
        if code != 204:
            self.server.refused += 1
        super().send_response_only(code, message)
        if code == 302:
            self.send_header("Location", self.server.url)
        if is_ours:
            self.send_header("Content-Length", "0")

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def receiving() -> Iterator[Server]:
    """A receiver that knows SECRET."""
    with Server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LISTENER_SECRET", SECRET)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
