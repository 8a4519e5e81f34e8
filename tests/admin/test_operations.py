"""The table of operations: it names each method of the contract, with rules, and a function of the right messages."""

from datetime import timedelta
from typing import Any, get_type_hints

import pytest
from google.protobuf.message_factory import GetMessageClass

from amoro_core.admin.operations import OPERATIONS
from amoro_core.admin.rights import by_blocker, by_lease, by_process, by_table
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2

METHODS = tuple(admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods)
READERS = ("Get", "List", "Select", "Plan", "Preview", "Verify", "Suggest", "Show", "Check", "Compare")


def test_the_table_names_the_methods_of_the_contract_and_no_others() -> None:
    assert sorted(OPERATIONS) == sorted(method.name for method in METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_each_operation_takes_and_gives_the_messages_of_its_method(method: Any) -> None:
    hints = get_type_hints(OPERATIONS[method.name].work)
    assert hints["request"] is GetMessageClass(method.input_type)
    assert hints["return"] is GetMessageClass(method.output_type)


def test_each_operation_has_a_function_of_its_own() -> None:
    assert len({operation.work for operation in OPERATIONS.values()}) == len(OPERATIONS)


def test_who_looks_at_what_is_no_secret_is_a_viewer_and_who_changes_something_is_not() -> None:
    no_sight = {
        "GetSettings",
        "GetState",
        "GetInstanceLogs",
        "ListTokens",
        "CheckState",
        "PreviewMaintenance",
        "PreviewUndo",
        "ListAudit",
        "ListUsers",
    }
    for method, operation in OPERATIONS.items():
        assert operation.changes == (not method.startswith(READERS)), method
        assert (operation.role is Role.VIEWER) == (not operation.changes and method not in no_sight), method
        assert operation.role is not Role.ENROLMENT
        assert operation.on is None or operation.role is not Role.VIEWER, "a pattern limits no sight"
        assert operation.deadline > timedelta(0)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_each_action_on_a_table_says_where_its_table_is(method: Any) -> None:
    """What an operator may do is limited by a pattern of tables, except for groups and optimizers, of no one table."""
    fields, operation = method.input_type.fields_by_name, OPERATIONS[method.name]
    named = next((field for field in ("table", "process_id", "blocker_id", "lease_id") if field in fields), "")
    expected = {"table": by_table, "process_id": by_process, "blocker_id": by_blocker, "lease_id": by_lease}
    if operation.role is Role.VIEWER:
        assert operation.on is None
    elif operation.role is Role.OPERATOR and not named:
        assert method.name in {"DrainOptimizer", "ReleaseOptimizer", "ScaleGroup"}
    else:
        assert operation.on is expected.get(named)


def test_an_operation_that_waits_is_asked_by_messages_that_say_how_long() -> None:
    for method in METHODS:
        waits = "wait_ms" in method.input_type.fields_by_name
        assert waits == (OPERATIONS[method.name].is_news is not None), method.name
