"""The access matrix: every operation, as every caller, over gRPC and REST. What it expects is written down here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from amoro_core.admin.operations import OPERATIONS
from amoro_core.dashboard.rest.parameters import fill, parameters
from amoro_core.dashboard.rest.requests import request_type
from amoro_core.dashboard.rest.routes import PREFIX, ROUTES, Route
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tokens import Role
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from tests.acceptance.tables import messy_table
from tests.dashboard.served import Served
from tests.engine import writer

#: Whoever may look may ask for these.
LOOKS = """
    GetStatus ListConditions GetCatalog ListCatalogs ListTables SelectTables GetTable GetTableProperties
    GetTableHealth CheckCatalog GetOptimizer GetTableMetadata GetTableDigest ListTableFiles ListSnapshots
    ListBlockers PlanTable GetSavedPlan ShowClustering SuggestColumns ListActions ListTrash ShowTrash ListLeases
    VerifyTable
    GetOverview ListQueue ListProcesses ListTasks ListAttempts ListEvents CompareSnapshots GetRetention GetProcess
    GetSeries ListOptimizers GetInstance ListGroups GetGroup
"""
#: An operator acts on the tables of a pattern.
ACTS = """
    SetTableEnabled BlockTable RenewBlocker ReleaseBlocker OptimizeTable PreviewMaintenance MaintainTable PreviewUndo
    TableChanged UndoProcess LearnScans RestoreTrash TakeLease RenewLease ReleaseLease CancelProcess StartProcess
"""
#: An operator does these whatever the pattern.
RUNS = "DrainOptimizer ReleaseOptimizer ScaleGroup"
#: An administrator alone.
RULES = """
    GetSettings GetState BackupState CheckState CreateToken ListTokens ListAudit RevokeToken AddCatalog UpdateCatalog
    RemoveCatalog ConfirmMaintenance HurryTrash GetInstanceLogs KillInstance CreateGroup UpdateGroup RemoveGroup
    UpgradeTable AddUser UpdateUser SetPassword RemoveUser ListUsers MakeLoginLink
"""
RIGHTS: Mapping[str, str] = {
    operation: kind
    for kind, operations in {"look": LOOKS, "act": ACTS, "run": RUNS, "rule": RULES}.items()
    for operation in operations.split()
}
#: What callers with a known token may, those who may least first: what they are let in to changes something.
MAY: Mapping[str, frozenset[str]] = {
    "enrolment": frozenset(),
    "viewer": frozenset({"look"}),
    "operator elsewhere": frozenset({"look", "run"}),
    "operator": frozenset({"look", "act", "run"}),
    "admin": frozenset({"look", "act", "run", "rule"}),
}
#: What is there to be changed.
NAMES = {"UpdateCatalog": "lake", "UpdateGroup": "default"}
STRANGERS = ("nobody", "garbage", "expired", "revoked")


@dataclass(frozen=True, slots=True)
class Site:
    """A coordinator, the tokens of the callers, and what requests name."""

    served: Served
    stub: AdminServiceStub
    tokens: Mapping[str, str]
    named: dict[str, object]
    existing: Mapping[str, object]  # what is looked at before it is changed

    def prepare(self, operation: str) -> None:
        """Make what the operation needs: a blocker or a lease in place of the one before, which may be released."""
        held = self.existing["table"]
        bodies = {"Blocker": {"hold": "1h"}, "Lease": {"snapshot_id": self.existing["snapshot_id"]}}
        for kind, body in ((name.lower(), body) for name, body in bodies.items() if operation.endswith(name)):
            self.served.ask(f"{PREFIX}/{kind}s/{self.named.get(f'{kind}_id')}", "DELETE")
            made = self.served.ask(f"{PREFIX}/tables/{held}/{kind}s", "POST", body=body)
            self.named[f"{kind}_id"] = made.document[f"{kind}_id"]

    def over_grpc(self, operation: str, caller: str) -> grpc.StatusCode:
        """The status of the call."""
        message = GetMessageClass(request_type(operation))()
        known = parameters(request_type(operation))
        fill(message, {name: value for name, value in self.named.items() if name in known}, known, "the request")
        token = self.tokens[caller]
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        try:
            getattr(self.stub, operation)(message, metadata=metadata, timeout=120)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    def over_rest(self, route: Route, caller: str) -> int:
        """The status of the answer."""
        named = self.named if route.method != "PATCH" else {**self.existing, "name": NAMES.get(route.operation)}
        segments = [quote(str(named[one[1:-1]])) if one.startswith("{") else one for one in route.segments]
        body = {name: self.named[name] for name in route.required} if route.has_body else None
        headers = {"If-Match": "*"} if route.method == "PATCH" else {}
        path = f"{PREFIX}/{'/'.join(segments)}"
        if not route.has_body and route.required:
            path += f"?{'&'.join(f'{name}=1' for name in route.required)}"
        return self.served.ask(path, route.method, token=self.tokens[caller], body=body, headers=headers).status


@pytest.fixture(scope="module")
def site(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("lake")
    catalog = writer.make_catalog(directory, "lake")
    table = f"lake.{'.'.join(messy_table(catalog).name()[-2:])}"
    held = f"lake.{'.'.join(messy_table(catalog).name()[-2:])}"
    served.coordinator.catalogs.add(CatalogConfig("lake", tuple({**catalog.properties, "type": "sql"}.items())))

    begun = served.ask(f"{PREFIX}/tables/{table}/optimize", "POST", body={}).document
    snapshot = served.ask(f"{PREFIX}/tables/{held}").document["snapshot_id"]
    with grpc.insecure_channel(served.coordinator.address) as channel:
        named = {
            "table": f"{held}_that_is_not_there",
            "process_id": begun["process_id"],
            "optimizer_id": "nobody-here",
            "id": "nobody-here",
            "action": "no-action",
            "name": "no name",
            "path": "relative",
            "plan_id": "not kept",
            "password": "too short",
            "confirm": "no",
            "format_version": 3,
            "enabled": True,
            "instances": 1,
            "scans": [],
        }
        existing = {"table": held, "snapshot_id": snapshot}
        yield Site(served, AdminServiceStub(channel), tokens_of(served), named, existing)


def tokens_of(served: Served) -> dict[str, str]:
    """A token of each caller."""
    tokens, clock = served.coordinator.tokens, served.coordinator.tokens._clock
    tokens._clock = lambda: clock() - timedelta(days=2)
    _, expired = tokens.create("expired", Role.ADMIN, "", timedelta(days=1))
    tokens._clock = clock
    _, revoked = tokens.create("revoked", Role.ADMIN)
    tokens.revoke("revoked")
    return {
        "nobody": "",
        "garbage": "amo_garbage",
        "expired": expired,
        "revoked": revoked,
        "enrolment": tokens.create("a-enrolment", Role.ENROLMENT)[1],
        "viewer": tokens.create("a-viewer", Role.VIEWER)[1],
        "operator elsewhere": tokens.create("a-operator", Role.OPERATOR, "lake.other.*")[1],
        "operator": tokens.create("b-operator", Role.OPERATOR, "lake.db.*")[1],
        "admin": served.admin,
    }


def test_every_operation_is_in_the_matrix() -> None:
    assert set(RIGHTS) == set(OPERATIONS)


@pytest.mark.parametrize("operation", RIGHTS)
def test_over_grpc_who_may_is_let_in_and_nobody_else(site: Site, operation: str) -> None:
    site.prepare(operation)
    found = {caller: site.over_grpc(operation, caller) for caller in (*STRANGERS, *MAY)}
    assert {caller for caller, status in found.items() if status is grpc.StatusCode.UNAUTHENTICATED} == {*STRANGERS}
    denied = {caller for caller, status in found.items() if status is grpc.StatusCode.PERMISSION_DENIED}
    assert denied == {caller for caller, kinds in MAY.items() if RIGHTS[operation] not in kinds}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name or route.operation)
def test_over_rest_who_may_is_let_in_and_nobody_else(site: Site, route: Route) -> None:
    site.prepare(route.operation)
    found = {caller: site.over_rest(route, caller) for caller in (*STRANGERS, *MAY)}
    assert {caller for caller, status in found.items() if status == 401} == {*STRANGERS}
    denied = {caller for caller, status in found.items() if status == 403}
    assert denied == {caller for caller, kinds in MAY.items() if RIGHTS[route.operation] not in kinds}
