"""How long calls take, by method."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc

from amoro_core.meters import Meters
from amoro_core.model import metrics

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    _Interceptor = grpc.aio.ServerInterceptor  # generic in its stubs alone


class Timing(_Interceptor):
    """Measures every call of a known method that has one request and one answer."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._timed: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}  # by method: handlers are the same for every call

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """The handler of the call, timed."""
        if (known := self._timed.get(handler_call_details.method)) is not None:
            return known
        handler = await continuation(handler_call_details)
        inner = handler.unary_unary if handler else None  # no handler: the method is not known
        if inner is None:
            return handler
        name = handler_call_details.method.rpartition("/")[2]

        async def answer(request: Any, context: Any) -> Any:
            with self._meters.timed(metrics.RPC_TIME, name):
                return await inner(request, context)

        timed = self._timed[handler_call_details.method] = grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )
        return timed
