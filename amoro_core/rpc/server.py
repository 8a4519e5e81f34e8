"""The gRPC server: its port, and the AdminService built from the table of operations."""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from amoro_core.admin.dispatcher import Operations
from amoro_core.errors import AddressInUse, InvalidSettings, UnknownToken
from amoro_core.model.principals import Certificates, anonymous
from amoro_core.notifier import Changes
from amoro_core.protocol import admin_pb2, optimizing_pb2
from amoro_core.protocol.operations import OPERATIONS
from amoro_core.protocol.optimizing_pb2_grpc import OptimizingServiceServicer, add_OptimizingServiceServicer_to_server
from amoro_core.rpc.calls import Context, abort, address_of, bearer, user_of, way_of

SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]


def admin_handler(operations: Operations) -> "grpc.GenericRpcHandler[Any, Any]":
    """The handler of every method of the AdminService."""
    return grpc.method_handlers_generic_handler(
        SERVICE.full_name, {method: _handler(operations, method) for method in OPERATIONS}
    )


def _handler(operations: Operations, method: str) -> "grpc.RpcMethodHandler[Any, Any]":
    described = SERVICE.methods_by_name[method]

    async def answer(request: Message, context: Context) -> Message:
        try:
            way, address, user = way_of(context), address_of(context), user_of(context)
            try:
                principal = await operations.admit(bearer(context), way, address, user)
            except UnknownToken as error:
                await operations.refuse(method, anonymous(way, address, user), error)
                raise
            message: Message = await operations.call(method, request, principal)
        except Exception as error:
            await abort(context, error)
        return message

    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=GetMessageClass(described.input_type).FromString,
        response_serializer=GetMessageClass(described.output_type).SerializeToString,
    )


def listen_error(host: str, port: int) -> InvalidSettings:
    """The error of listening there: AddressInUse, or that the host is not an address of this machine."""
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in addresses:
            with socket.socket(family, kind, protocol) as tried:
                tried.bind((place[0], 0))
    except OSError as error:
        return InvalidSettings(
            f"host {host} can't be listened on: {error.strerror or error}",
            hint="Give an address of this machine, such as 127.0.0.1, with --host or in amoro.yaml.",
        )
    return AddressInUse(
        f"{host}:{port} can't be listened on{holder_of(port)}",
        hint="Stop what listens there, or choose another port with --port (0 picks a free one).",
    )


def holder_of(port: int) -> str:
    """The process that listens on the port, as ": process 12 (name) listens there"; empty when unknown."""
    import psutil  # only for this error

    with suppress(psutil.Error):  # processes of other users stay unnamed
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f": process {connection.pid} ({name}) listens there"
    return ""


MESSAGE_LIMIT = 16 * 1024 * 1024
STOP_GRACE_S = 1.0


class Server:
    """Serves both services on one address until stopped; without `optimizing`, AdminService alone.

    With certificates the address is encrypted; clients that can read the state directory also have a plain one on
    loopback.
    """

    def __init__(
        self,
        host: str,
        port: int,
        admin: "grpc.GenericRpcHandler[Any, Any]",
        optimizing: Callable[[], OptimizingServiceServicer] | None,
        *,
        changes: Sequence[Changes],
        certificates: Certificates | None = None,
        interceptors: "Sequence[grpc.aio.ServerInterceptor[Any, Any]]" = (),
    ) -> None:
        self._interceptors = tuple(interceptors)
        self._host = f"[{host}]" if ":" in host and not host.startswith("[") else host  # IPv6 before a port
        self._wanted_port = port
        self._optimizing = optimizing
        self._admin = admin
        self._changes = changes
        self._credentials: grpc.ServerCredentials | None = None
        if certificates is not None:
            from amoro_core.rpc.tls import server_credentials  # with the library of certificates

            self._credentials = server_credentials(certificates)
        self._loop = asyncio.new_event_loop()
        self._server: grpc.aio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="grpc", daemon=True)
        self.port = port
        self._local_port: int | None = None

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def local_address(self) -> str:
        """The unencrypted address for clients on this machine."""
        return self.address if self._local_port is None else f"127.0.0.1:{self._local_port}"

    def start(self) -> None:
        """Listen. Raises AddressInUse, InvalidSettings."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        except BaseException:
            self._end_loop()
            raise

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Refuse new calls, end running ones after `grace_s` seconds, and stop."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(grace_s), self._loop).result()
            self._end_loop()

    async def _start(self) -> None:
        server = grpc.aio.server(
            interceptors=self._interceptors,
            options=[
                ("grpc.max_send_message_length", MESSAGE_LIMIT),
                ("grpc.max_receive_message_length", MESSAGE_LIMIT),
                ("grpc.so_reuseport", 0),
            ],
        )
        if self._optimizing is not None:
            add_OptimizingServiceServicer_to_server(self._optimizing(), server)
        server.add_generic_rpc_handlers((self._admin,))
        health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        names = (optimizing_pb2.DESCRIPTOR.services_by_name["OptimizingService"].full_name, SERVICE.full_name)
        try:
            wanted = f"{self._host}:{self._wanted_port}"
            if self._credentials is None:
                self.port = server.add_insecure_port(wanted)
            else:
                self.port = server.add_secure_port(wanted, self._credentials)
                self._local_port = server.add_insecure_port("127.0.0.1:0")
        except RuntimeError as error:
            raise listen_error(self._host, self._wanted_port) from error
        for change in self._changes:
            change.bind(self._loop)
        await server.start()
        for name in ("", *names):
            await health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._server = server

    async def _stop(self, grace_s: float) -> None:
        for change in self._changes:
            change.end()
        if self._server is not None:
            await self._server.stop(grace_s)
        # Calls that still run lose their callers.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
