"""The operations over services of a new store, with no server, no loop and no catalog around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from amoro_core.bootstrap.composition import CoordinatorHooks, Services, installed, utc_now
from amoro_core.bootstrap.settings import Settings
from amoro_core.model.principals import Channel, Principal, Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2
from amoro_core.store import catalogs
from amoro_core.store.database import Store

ADMIN_TOKEN = "amo_admin"
ADMIN = Principal("admin", Role.ADMIN, way=Channel.REST, address="10.0.0.7", said="ann")


def services_over(
    store: Store,
    home: Path,
    settings: Settings | None = None,
    clock: Callable[[], datetime] = utc_now,
    address: Callable[[], str] = lambda: "nowhere",
) -> Services:
    """The services of a coordinator whose admin token is known."""
    around = CoordinatorHooks(address=address, local_address=lambda: "nowhere", http_address=lambda: "http://localhost")
    own_tokens = {Role.ADMIN: Secret(ADMIN_TOKEN), Role.ENROLMENT: Secret("amo_enrolment")}
    parts = replace(installed(home, ()), clock=clock)
    return Services(store, home, settings or Settings(), own_tokens, around, parts)


@dataclass
class Rig:
    """Operations, the store below them, and the time on their clock."""

    store: Store
    home: Path
    services: Services
    pool: Executor
    address: Callable[[], str] = lambda: "nowhere"  # where the coordinator says that it listens

    def call(self, method: str, request: Any, by: Principal = ADMIN) -> Any:
        """The answer to that account."""
        return asyncio.run(self.services.operations(self.pool).call(method, request, by))

    def create_group(self, name: str, by: Principal = ADMIN) -> None:
        """A call that changes something."""
        self.call("CreateGroup", pb.CreateGroupRequest(name=name), by)

    def add_catalog(self, name: str) -> None:
        self.store.write(lambda db: catalogs.add(db, CatalogConfig(name, (("type", "in-memory"),))))

    def audit(self, **wanted: Any) -> list[audit_pb2.AuditEvent]:
        """What the audit has, the newest first."""
        return list(self.call("ListAudit", audit_pb2.ListAuditRequest(**wanted)).events)

    def execute(self, sql: str) -> None:
        """A statement on the store that no service makes."""
        self.store.write(lambda db: db.execute(sql))
