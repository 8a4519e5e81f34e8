"""Roles of tokens over the wire: each method refuses tokens below its role before anything else."""

from collections.abc import Callable

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from amoro_core.admin.operations import OPERATIONS
from amoro_core.app import Coordinator
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub

METHODS = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods
#: They take what is asked for and do it, so that only a refusal is tried.
UNASKED = {"AddCatalog", "BackupState", "CreateToken", "CreateGroup"}

Call = Callable[[str, str], grpc.RpcError | None]


@pytest.fixture
def call(coordinator: Coordinator) -> Callable[[str, str], tuple[grpc.StatusCode, str, dict[str, object]]]:
    def made(method: str, token: str) -> tuple[grpc.StatusCode, str, dict[str, object]]:
        request = next(item for item in METHODS if item.name == method).input_type
        message = GetMessageClass(request)()
        try:
            with grpc.insecure_channel(coordinator.address) as channel:
                getattr(AdminServiceStub(channel), method)(
                    message, metadata=(("authorization", f"Bearer {token}"),), timeout=30
                )
        except grpc.RpcError as error:
            sent = dict(error.trailing_metadata() or ())
            return error.code(), error.details() or "", sent
        return grpc.StatusCode.OK, "", {}

    return made


def test_a_token_is_let_in_to_what_its_role_allows_and_to_nothing_else(
    coordinator: Coordinator, call: Callable[[str, str], tuple[grpc.StatusCode, str, dict[str, object]]]
) -> None:
    held = {role: coordinator.tokens.create(f"a-{role}", role)[1] for role in Role}
    for method, needed in ((name, operation.role) for name, operation in OPERATIONS.items()):
        for role, token in held.items():
            if role.allows(needed):
                if method not in UNASKED:
                    assert call(method, token)[0] is not grpc.StatusCode.PERMISSION_DENIED, (method, role)
                continue
            status, said, sent = call(method, token)
            assert status is grpc.StatusCode.PERMISSION_DENIED, (method, role)
            assert said == f"the token a-{role} has the role {role}; {method} needs the role {needed}"
            assert (sent["amoro-code"], sent["amoro-exit"]) == ("AMORO-4001", "4")
            assert f"with the role {needed}".encode() in sent["amoro-hint-bin"]
    assert call("GetStatus", "nobody's")[0] is grpc.StatusCode.UNAUTHENTICATED
