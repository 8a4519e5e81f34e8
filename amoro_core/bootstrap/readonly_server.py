"""A server for read-only commands: the coordinator's services over a read-only state."""

import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from amoro_core.bootstrap.composition import CoordinatorHooks, Services, installed
from amoro_core.bootstrap.settings import Settings
from amoro_core.iceberg.catalog.timeouts import limit_requests
from amoro_core.iceberg.support.pyiceberg_sandbox import allow_classes
from amoro_core.model.principals import Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.text_sanitizing import Secret
from amoro_core.rpc.admin import admin_handler
from amoro_core.rpc.server import Server
from amoro_core.store.readonly import ReadingStore

RPC_THREADS = 4


class Reader:
    """Serves the AdminService on loopback for one command, from the state directory and the catalogs.

    It takes no lock, creates and changes no file, and runs no loop and no optimizer: it may run beside a coordinator,
    and resumes nothing that an earlier one left.
    """

    def __init__(self, home: Path, settings: Settings, catalogs: Sequence[CatalogConfig] = ()) -> None:
        """`catalogs` are added to those of the store and of pyiceberg. Raises StoreFailed."""
        allow_classes(settings.allowed_classes)
        limit_requests(settings.catalog_timeout)
        self.token = Secret(secrets.token_urlsafe(32))
        self._store = ReadingStore.open(home / "amoro.db")
        own_tokens = {Role.ADMIN: self.token, Role.ENROLMENT: Secret(secrets.token_urlsafe(32))}
        around = CoordinatorHooks(
            commit_due=_nothing,
            left_over=_nothing,
            explore=_nothing,
            address=lambda: self.address,
            local_address=lambda: self.address,
            joining={settings.groups[0]: os.cpu_count() or 1},
        )
        try:
            services = Services(self._store, home, settings, own_tokens, around, installed(home, catalogs))
        except BaseException:
            self._store.close()
            raise
        self._pool = ThreadPoolExecutor(RPC_THREADS, thread_name_prefix="rpc")
        self._server = Server(
            "127.0.0.1",
            0,
            admin_handler(services.operations(self._pool)),
            None,
            changes=(services.work, services.changes),
        )

    @property
    def address(self) -> str:
        """The address on which it serves."""
        return self._server.address

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        """Stop serving; calls that wait for a silent catalog are not awaited."""
        self._server.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._store.close()


@contextmanager
def reading(home: Path, settings: Settings, catalogs: Sequence[CatalogConfig] = ()) -> Iterator[Reader]:
    """A reader of the state directory, which need not exist, during the block. Raises StoreFailed."""
    reader = Reader(home, settings, catalogs)
    try:
        reader.start()
        yield reader
    finally:
        reader.stop()


def _nothing(*_: str) -> None:
    """A callback that does nothing: a reader starts no work."""
