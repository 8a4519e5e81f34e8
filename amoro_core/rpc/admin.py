"""AdminService over gRPC, built from the table of operations."""

from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from amoro_core.admin.dispatcher import Operations
from amoro_core.errors import UnknownToken
from amoro_core.model.principals import anonymous
from amoro_core.protocol import admin_pb2
from amoro_core.protocol.operations import OPERATIONS
from amoro_core.rpc.calls import abort, address_of, bearer, user_of, way_of

SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]


def admin_handler(operations: Operations) -> "grpc.GenericRpcHandler[Any, Any]":
    """The handler of every method of the AdminService."""
    return grpc.method_handlers_generic_handler(
        SERVICE.full_name, {method: _handler(operations, method) for method in OPERATIONS}
    )


def _handler(operations: Operations, method: str) -> "grpc.RpcMethodHandler[Any, Any]":
    described = SERVICE.methods_by_name[method]

    async def answer(request: Message, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
        try:
            way, address, user = way_of(context), address_of(context), user_of(context)
            try:
                principal = await operations.admit(bearer(context), way, address, user)
            except UnknownToken as error:
                await operations.refuse(method, anonymous(way, address, user), error)
                raise
            found: Message = await operations.call(method, request, principal)
        except Exception as error:
            await abort(context, error)
        return found

    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=GetMessageClass(described.input_type).FromString,
        response_serializer=GetMessageClass(described.output_type).SerializeToString,
    )
