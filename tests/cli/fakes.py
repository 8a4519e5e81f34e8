"""A coordinator that gives scripted answers over real gRPC, and a launcher that writes down what it is asked."""

import json
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Any, NoReturn

import grpc
from jsonschema import Draft202012Validator

from amoro_cli.connection import Endpoint, Finding, Kind, Package
from amoro_core.documents.json_documents import schemas
from amoro_core.errors import AmoroError
from amoro_core.protocol import admin_pb2
from amoro_core.protocol.admin_pb2_grpc import AdminServiceServicer, add_AdminServiceServicer_to_server

#: Of this process alone: a client of another one, whose server went, may find this one on the same port.
TOKEN = token_hex(8)


@dataclass
class Failure:
    """An answer that is an error: of ours if it has a code, else plain gRPC."""

    message: str
    code: str = ""
    exit_status: int = 1
    hint: str = ""
    status: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION


class FakeAdmin(AdminServiceServicer):
    """Answers each method from its script: the next answer, or what it gives for the request; the last one for ever."""

    def __init__(self) -> None:
        self.scripts: dict[str, list[Any]] = {"ListTasks": [admin_pb2.ListTasksResponse()]}
        self.requests: list[tuple[str, Any]] = []

    def script(self, method: str, *answers: Any) -> None:
        self.scripts[method] = list(answers)

    def asked(self, method: str) -> list[Any]:
        return [request for name, request in self.requests if name == method]

    def _answer(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        if dict(context.invocation_metadata()).get("authorization") != f"Bearer {TOKEN}":
            self._abort(Failure("unknown token", "AMORO-4002", 4, status=grpc.StatusCode.UNAUTHENTICATED), context)
        self.requests.append((method, request))
        answers = self.scripts[method]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Failure):
            self._abort(answer, context)
        return answer

    def _abort(self, failure: Failure, context: grpc.ServicerContext) -> NoReturn:
        if failure.code:
            told = {"amoro-code": failure.code, "amoro-exit": str(failure.exit_status)}
            context.set_trailing_metadata((*told.items(), ("amoro-hint-bin", failure.hint.encode())))
        context.abort(failure.status, failure.message)
        raise AssertionError("abort raises")


def _method(name: str) -> Any:
    return lambda self, request, context: self._answer(name, request, context)


for _rpc in admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods:
    setattr(FakeAdmin, _rpc.name, _method(_rpc.name))


@contextmanager
def serving(admin: FakeAdmin) -> Iterator[str]:
    """The address where the fake answers."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    add_AdminServiceServicer_to_server(admin, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@dataclass
class FakeLauncher:
    """Writes down what it is asked; `endpoint` is what an embedded coordinator would answer at."""

    endpoint: Endpoint | None = None
    findings: list[Finding] = field(default_factory=list)
    error: BaseException | None = None
    locked: AmoroError | None = None  # who does not wait for the state directory's lock gets this
    while_locked: Callable[[], None] | None = None  # happens while somebody waits, who does not get the lock
    calls: list[Any] = field(default_factory=list)
    known: dict[Kind, list[str]] = field(default_factory=dict)

    def _called(self, call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    up = optimizer = _called  # with their options

    def package(self, output: Path | None, include: tuple[str, ...], *, with_interpreter: bool) -> Package:
        self._called((output, *include, with_interpreter))
        return Package(Path("made.tar.gz"), 1_572_864, "3.11", True, (("amoro", "0.1.0"), ("pyarrow", "26.0")))

    def demo(self, seconds: int, directory: Path | None, *, plain: bool) -> None:
        self._called((seconds, directory, plain))

    def doctor(self, home: Path, config: Path | None) -> list[Finding]:
        self._called(("doctor", home, config))
        return self.findings

    def names(self, kind: Kind, home: Path) -> list[str]:
        self._called(("names", kind, home))
        return self.known.get(kind, [])

    def reading(self, home: Path, config: Path | None) -> AbstractContextManager[Endpoint]:
        self._called(("reading", home, config))
        return self._opened("reading")

    def embedded(self, home: Path, config: Path | None, wait: timedelta) -> AbstractContextManager[Endpoint]:
        self._called(("embedded", home, config, wait))
        if self.locked is not None and wait and self.while_locked is not None:
            self.while_locked()
        if self.locked is not None and (not wait or self.while_locked is not None):
            raise self.locked
        return self._opened("embedded")

    @contextmanager
    def _opened(self, way: str) -> Iterator[Endpoint]:
        if self.endpoint is None:
            raise AmoroError(f"nothing is {way} in this test")
        try:
            yield self.endpoint
        finally:
            self.calls.append(f"{way} ended")


def check_document(text: str) -> None:
    """Fail when a JSON document of ours, or one of several lines, is not allowed by its schema, or has a key more."""
    if not text.startswith("{"):
        return
    for part in text.splitlines() if text.startswith('{"') else [text]:
        document = json.loads(part)
        # A line of a list is an item, which its schema holds as a part of the list.
        if text is part or "schema" in document:
            _validator(document["schema"]).validate(document)


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(_closed(schemas()[name]), format_checker=Draft202012Validator.FORMAT_CHECKER)


def _closed(schema: Any) -> Any:
    """The schema with every object closed: within a version keys may be added, but not without the schema."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema.get("required"), list):
        closed["additionalProperties"] = False
    return closed
