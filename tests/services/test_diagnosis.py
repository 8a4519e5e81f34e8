"""What doctor finds, and a coordinator with a catalog that never answers."""

import os
import resource
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema

from amoro_cli.connection import Finding
from amoro_core.bootstrap import doctor
from amoro_core.bootstrap.coordinator_app import Coordinator, running
from amoro_core.bootstrap.doctor import diagnose
from amoro_core.bootstrap.settings import Settings
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.iceberg.catalog.timeouts import limits as limits_of_requests
from amoro_core.loops.coordinator import COMMIT_THREADS
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from tests.acceptance.processes import wait_until
from tests.engine import writer
from tests.faults.proxy import Applied, Cut, Fault
from tests.faults.rest import RestServer
from tests.iceberg.scenarios import limited_requests
from tests.services.rigs import Limits, raising
from tests.services.world import make_small_files


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    made = tmp_path / "state"
    made.mkdir()
    with limited_requests(limits_of_requests().whole_s):  # put back: doctor takes those of the settings
        yield made


def configured(tmp_path: Path, **catalogs: Mapping[str, str]) -> None:
    """The configuration of pyiceberg has these catalogs."""
    (tmp_path / ".pyiceberg.yaml").write_text(
        yaml.safe_dump({"catalog": {name: dict(one) for name, one in catalogs.items()}})
    )


def finding(home: Path, name: str) -> Finding:
    return next(item for item in diagnose(home, None) if item.name == name)


def test_settings_are_said_as_they_are_written_with_who_said_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding(home, "settings") == Finding("settings", True, "all defaults")
    (home / "amoro.yaml").write_text("history-keep: 90m\n")
    monkeypatch.setenv("AMORO_PORT", "7001")
    said = f"port 7001 (environment AMORO_PORT), history-keep 90m (file {home / 'amoro.yaml'})"
    assert finding(home, "settings") == Finding("settings", True, said)
    (home / "amoro.yaml").write_text("prot: 1\n")
    assert not finding(home, "settings").ok
    monkeypatch.setattr(os, "fsync", raising(OSError(28, "No space left on device")))
    found = finding(home, "state directory")
    assert (found.ok, found.detail) == (False, "No space left on device"), "it names no file"


@pytest.mark.parametrize(
    ("module", "extra", "properties"),
    [
        ("hive_metastore", "hive", {"type": "hive", "uri": "thrift://127.0.0.1:9"}),
        ("boto3", "glue", {"type": "glue"}),
        ("psycopg2", "sql-postgres", {"type": "sql", "uri": "postgresql+psycopg2://u@127.0.0.1:9/lake"}),
    ],
)
def test_a_missing_extra_is_named_with_how_to_install_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str, properties: dict[str, str]
) -> None:
    configured(home.parent, lake=properties)
    adapters = (f"pyiceberg.catalog.{properties['type']}", f"amoro_core.iceberg.catalog.{properties['type']}")
    for name in [name for name in sys.modules if name.split(".")[0] == module or name in adapters]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    found = finding(home, "catalog lake")
    assert (found.ok, found.fix) == (False, f"pip install 'pyiceberg[{extra}]'")


def test_catalogs_that_hang_are_named_and_the_others_are_looked_at_all_the_same(
    home: Path, catalog: SqlCatalog, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hangs outside of its requests, say in loading a client, no limit of requests ends."""
    over, ask = threading.Event(), doctor._catalog

    def hang(item: CatalogConfig) -> Finding:
        if item.name != "a_stuck":
            return ask(item)
        over.wait()
        return Finding("too late", True, "")

    monkeypatch.setattr(doctor, "_catalog", hang)
    limits(catalogs_of_doctor=2.2)
    (home / "amoro.yaml").write_text("catalog-timeout: 1s\n")
    sql = {"type": "sql", "uri": catalog.properties["uri"]}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        rest = {"type": "rest", "uri": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        configured(home.parent, a_silent=rest, a_stuck=sql, cat=sql)
        try:
            found = {item.name: item for item in diagnose(home, None)}
        finally:
            over.set()
    assert not found["catalog a_silent"].ok
    assert "answer within 1 s (catalog-timeout)" in found["catalog a_silent"].detail
    stuck = found["catalog a_stuck"]
    assert (stuck.ok, stuck.detail) == (False, "hangs: there was no answer within 2.2 s")
    assert found["catalog cat"] == Finding("catalog cat", True, "answers (pyiceberg)")
    close_catalogs()


def test_too_few_open_files_are_named(home: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert not [item for item in diagnose(home, None) if item.name == "open files"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        found = finding(home, "open files")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (found.ok, found.detail) == (False, "this process may open 512 files at once, 1024 are needed")
    assert "ulimit -n 4096" in found.fix


def test_a_catalog_that_can_only_be_shown_and_one_under_another_name_than_its_writers_are_told(
    home: Path, catalog: SqlCatalog
) -> None:
    sql = {"type": "sql", "uri": catalog.properties["uri"]}
    files = {"type": "hadoop", "warehouse": home.parent.as_uri()}
    configured(home.parent, mine=sql, cat=sql, files=files)
    shown = finding(home, "catalog files")
    assert (shown.ok, "can't compare and set" in shown.detail) == (False, True)
    assert finding(home, "catalog mine").detail == "answers (pyiceberg)"
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table("db.t", Schema())
    said = "it has no table, but its database has tables of cat: a table belongs to its catalog's name"
    assert finding(home, "catalog mine") == Finding("catalog mine", True, f"answers (pyiceberg); {said}")
    assert finding(home, "catalog cat") == Finding("catalog cat", True, "answers (pyiceberg)")


# A coordinator with a catalog that never answers: the others are found, planned and committed all the same


def test_a_catalog_that_never_answers_holds_up_no_other(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    silent = socket.create_server(("127.0.0.1", 0))
    # It would be given up after two minutes, which is longer than what is waited for below.
    configured(tmp_path, a_silent={"type": "rest", "uri": f"http://127.0.0.1:{silent.getsockname()[1]}"})
    make_small_files(catalog, 12, properties={"self-optimizing.enabled": "true"})
    with running(tmp_path / "home", replace(Settings(), port=0)) as coordinator, ExitStack() as ends:
        ends.callback(silent.close)
        silent.settimeout(60)
        ends.callback(silent.accept()[0].close)  # it was asked, and says nothing
        coordinator.catalogs.add(as_config(catalog))
        coordinator._loops.explore_now()
        runtime = wait_until(lambda: next(iter(coordinator.tables.list_tables("cat")), None), "the table is found")
        assert runtime.identifier == parse_table("cat.db.t")
        wait_until(lambda: coordinator.optimizing.active_process(runtime.table_id), "it is planned")


def as_config(catalog: SqlCatalog) -> CatalogConfig:
    return CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items()))


def begun(coordinator: Coordinator, name: str) -> str:
    table = coordinator.tables.ensure(parse_table(name))
    process = coordinator.planning.begin(table.table_id, trigger="request", requested=OptimizingType.MINOR).process_id
    assert process is not None
    return process


def test_commits_that_hang_in_one_catalog_hold_up_no_other(tmp_path: Path, catalog: SqlCatalog) -> None:
    beneath = writer.make_catalog(tmp_path / "slow")
    names = [f"db.t{number}" for number in range(COMMIT_THREADS)]
    for name in names:
        make_small_files(beneath, 2, name=name)
    make_small_files(catalog, 2, name="db.t")
    server = RestServer(beneath)
    server.proxy.plan(*[Fault(Applied.NEVER, Cut.HANG)] * COMMIT_THREADS)
    said = {"type": "rest", "uri": server.uri, "warehouse": beneath.properties["warehouse"]}
    configs, settings = [CatalogConfig("slow", tuple(said.items())), as_config(catalog)], replace(Settings(), port=0)
    # The server ends first, so that what hangs in it ends.
    with running(tmp_path / "home", settings, watch=False, threads=2, catalogs=configs) as coordinator, server:
        hung = [begun(coordinator, f"slow.{name}") for name in names]
        wait_until(lambda: len(server.proxy.sent) == COMMIT_THREADS, "every thread of that catalog hangs")
        process = begun(coordinator, "cat.db.t")

        def status(one: str) -> ProcessStatus:
            return coordinator.optimizing.find_process(one).process.status

        wait_until(lambda: status(process) is ProcessStatus.SUCCESS, "the other catalog's commit is done")
        assert {status(one) for one in hung} == {ProcessStatus.COMMITTING}
    beneath.close()
