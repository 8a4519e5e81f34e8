"""Amoro's own paths: names and types of every field, paging, filters, who may ask, and what is refused."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amoro_core.bootstrap.coordinator_app import optimizer_beside
from amoro_core.model.audit import AuditFilter
from amoro_core.model.paging import Window
from amoro_core.model.principals import Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import OptimizingStatus
from amoro_core.store import catalogs, tables
from tests.acceptance.tables import messy_table, partitioned_table
from tests.dashboard.served import Answer, Served, serving
from tests.dashboard.states import table as runtime
from tests.engine import writer

PREFIX = "/api/ams/v1"
PASSWORD = "correct horse battery"
NOTHING = type(None)
#: Number, text, flag, real, nothing, and a map of texts; with "?" or nothing.
KINDS = {"n": int, "t": str, "f": bool, "r": float, "-": NOTHING, "m": {}, "t?": (str, NOTHING), "n?": (int, NOTHING)}


def shape(text: str, **nested: Any) -> dict[str, Any]:
    """Fields of one of Amoro's beans by name, with the types that Jackson writes; a list stands for many."""
    pairs = (word.partition(":") for word in text.split())
    return {**{name: KINDS[kind] for name, _, kind in pairs}, **nested}


FILES = shape("fileCnt:n totalSize:n averageSize:n")
NAME = shape("catalog:t database:t tableName:t")
COLUMN = shape("field:t type:t required:f comment:t?")
CATALOG = shape("catalogName:t catalogType:t storageConfigs:m authConfigs:m catalogProperties:m")
DETAILS = shape(
    "tableType:t properties:m changeMetrics:- baseLocation:t filter:- createTime:n creator:- tableWatermark:- "
    "baseWatermark:- comment:t?",
    tableIdentifier=NAME,
    schema=[COLUMN],
    pkList=[COLUMN],
    partitionColumnList=[shape("field:t sourceField:t? transform:t fieldId:n sourceFieldId:n")],
    baseMetrics=shape("lastCommitTime:n? totalSize:t fileCount:n averageFileSize:t baseWatermark:-"),
    tableSummary=shape(
        "file:n size:t averageFile:t tableFormat:t records:n optimizingStatus:t healthScore:n smallFileScore:n "
        "equalityDeleteScore:n positionalDeleteScore:n"
    ),
)
SNAPSHOT = shape(
    "snapshotId:t fileCount:n fileSize:t originalFileSize:n records:n commitTime:n operation:t producer:t summary:m",
    recordsSummaryForChart={"total-records": str, "eq-delete-records": KINDS["t?"], "pos-delete-records": KINDS["t?"]},
    filesSummaryForChart={"data-files": KINDS["t?"], "delete-files": KINDS["t?"], "total-files": str},
)
PROCESS = shape(
    "tableId:n catalogName:t dbName:t tableName:t processId:t startTime:n optimizingType:t status:t failReason:t? "
    "duration:n successTasks:n totalTasks:n runningTasks:n finishTime:n summary:m",
    inputFiles=FILES,
    outputFiles=FILES,
)
TASK = shape(
    "tableId:n processId:t taskId:n partitionData:t status:t retryNum:n optimizerToken:t? threadId:n startTime:n "
    "endTime:n costTime:n failReason:t? outputFiles:- summary:m properties:m",
    inputFiles=FILES,
)
GROUP = shape("occupationCore:n occupationMemory:n", resourceGroup=shape("name:t container:t properties:m"))
OPTIMIZER = shape("token:t startTime:n touchTime:n jobId:t groupName:t coreNumber:n memory:n jobStatus:t container:t")
OF_GROUP = shape(
    "tableName:t optimizeStatus:t duration:n fileCount:n fileSize:n quota:r quotaOccupation:r groupName:t",
    tableIdentifier=shape("id:n catalog:t database:t tableName:t format:t", identifier=NAME),
)


def require_shape(found: Any, wanted: Any, place: str = "result") -> None:
    """Fail unless the value has exactly the fields of the shape, each of its type."""
    if isinstance(wanted, list):
        assert isinstance(found, list), place
        for item in found:
            require_shape(item, wanted[0], f"{place}[]")
    elif isinstance(wanted, dict) and wanted:
        assert set(found) == set(wanted), place
        for name, kind in wanted.items():
            require_shape(found[name], kind, f"{place}.{name}")
    elif wanted == {}:
        assert isinstance(found, dict), place
        assert all(isinstance(value, str) for value in found.values()), place
    else:
        kinds = wanted if isinstance(wanted, tuple) else (wanted,)
        assert type(found) in kinds, f"{place} is {found!r}"


def see(served: Served, path: str, **options: Any) -> Any:
    """The result of a path that is answered."""
    answer = served.ask(f"{PREFIX}/{path}", **options)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    body = answer.document
    assert (list(body), body["message"], body["code"]) == (["message", "code", "result"], "success", 200), body
    return body["result"]


def refused(served: Served, path: str, method: str = "GET", **options: Any) -> tuple[int, str]:
    """Code and message of a path that is not answered."""
    answer: Answer = served.ask(f"{PREFIX}/{path}", method, **options)
    assert answer.status == 200
    body = answer.document
    assert list(body) == ["message", "code", "requestId"]
    return body["code"], body["message"]


def basic(name: str, password: str) -> Mapping[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str, str]]:
    """A coordinator that has optimized one table of two; the path of that, and the id of the process."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("ams")
        patch.setenv("PYICEBERG_HOME", str(home))
        with serving(home / "home") as served:
            yield from _filled(served, tmp_path_factory.mktemp("lake"))


def _filled(served: Served, directory: Path) -> Iterator[tuple[Served, str, str]]:
    catalog = writer.make_catalog(directory, "lake")
    namespace, name = partitioned_table(catalog).name()[-2:]
    messy_table(catalog)
    served.coordinator.catalogs.add(CatalogConfig("lake", tuple({**catalog.properties, "type": "sql"}.items())))
    with optimizer_beside(served.coordinator, threads=2, memory_bytes=1 << 30):
        path = f"/api/v1/tables/lake.{namespace}.{name}/optimize?wait=2m"
        done = served.ask(path, "POST", body={}).document
        assert done["process"]["status"] == "success"
        yield served, f"tables/catalogs/lake/dbs/{namespace}/tables/{name}", done["process_id"]


def test_everybody_hears_which_version_is_followed_and_that_it_is_up(lake: tuple[Served, str, str]) -> None:
    served, _, _ = lake
    version = see(served, "versionInfo", token="")
    require_shape(version, shape("version:t commitTime:t"))
    assert version["version"].startswith("0.9.0(amoro-python ")
    assert see(served, "health/status", token="") == {"ams_ha_state": "LEADER"}


def test_answers_have_the_fields_of_amoro(lake: tuple[Served, str, str]) -> None:
    served, table, process_id = lake
    database, name = table.split("/")[4], table.split("/")[6]
    found = see(served, "catalogs")
    require_shape(found, [CATALOG])
    assert [(one["catalogName"], one["catalogType"]) for one in found] == [("lake", "custom")]
    assert see(served, "catalogs/lake/databases") == [database]
    assert see(served, "catalogs/lake/databases?keywords=nothing") == []
    listed = see(served, f"catalogs/lake/databases/{database}/tables")
    require_shape(listed, [shape("name:t type:t")])
    assert (len(listed), {"name": name, "type": "ICEBERG"} in listed) == (2, True)
    named = see(served, f"catalogs/lake/databases/{database}/tables?keywords={name}")
    assert named == [{"name": name, "type": "ICEBERG"}]

    detail = see(served, f"{table}/details")
    require_shape(detail, DETAILS)
    assert detail["partitionColumnList"][0]["transform"] == "identity"
    assert detail["tableSummary"]["tableFormat"] == "Iceberg(V2)"
    assert detail["schema"][0] == {"field": "id", "type": "long", "required": False, "comment": None}

    snapshots = see(served, f"{table}/snapshots")
    require_shape(snapshots, {"list": [SNAPSHOT], "total": int})
    assert snapshots["list"][0]["producer"] == "OPTIMIZE"
    assert {one["producer"] for one in snapshots["list"][1:]} == {"INGESTION"}

    processes = see(served, f"{table}/optimizing-processes")
    require_shape(processes, {"list": [PROCESS], "total": int})
    (process,) = processes["list"]
    assert (process["processId"], process["status"], process["optimizingType"]) == (process_id, "SUCCESS", "MINOR")
    assert process["totalTasks"] == process["successTasks"] == 3
    assert process["inputFiles"]["fileCnt"] > process["outputFiles"]["fileCnt"] == 3

    tasks = see(served, f"{table}/optimizing-processes/{process_id}/tasks")
    require_shape(tasks, {"list": [TASK], "total": int})
    assert [(one["taskId"], one["status"]) for one in tasks["list"]] == [(1, "SUCCESS"), (2, "SUCCESS"), (3, "SUCCESS")]

    groups = see(served, "optimize/resourceGroups")
    require_shape(groups, [GROUP])
    assert [(one["resourceGroup"]["name"], one["occupationCore"]) for one in groups] == [("default", 2)]
    optimizers = see(served, "optimize/optimizerGroups/all/optimizers")
    require_shape(optimizers, {"list": [OPTIMIZER], "total": int})
    assert [(one["coreNumber"], one["jobStatus"]) for one in optimizers["list"]] == [(2, "RUNNING")]
    of_group = see(served, "optimize/optimizerGroups/default/tables")
    require_shape(of_group, {"list": [OF_GROUP], "total": int})
    assert name in [one["tableIdentifier"]["tableName"] for one in of_group["list"]]
    assert {one["quota"] for one in of_group["list"]} == {1.0}


def test_pages_are_by_number(lake: tuple[Served, str, str]) -> None:
    served, table, process_id = lake
    every = see(served, f"{table}/snapshots?pageSize=100")
    pages = [see(served, f"{table}/snapshots?page={page}&pageSize=2") for page in (1, 2, 3, 99)]
    assert {page["total"] for page in pages} == {every["total"]}
    assert [one for page in pages[:3] for one in page["list"]] == every["list"][:6]
    assert pages[3]["list"] == []
    second = see(served, f"{table}/optimizing-processes/{process_id}/tasks?page=2&pageSize=2")
    assert ([one["taskId"] for one in second["list"]], second["total"]) == ([3], 3)


def test_filters_are_those_of_amoro(lake: tuple[Served, str, str]) -> None:
    served, table, _ = lake
    for query, total in (
        ("processCategory=optimizing", 1),
        ("processCategory=CLEANUP", 0),
        ("processCategory=PROFILING", 0),
        ("processCategory=other", 0),
        ("type=MINOR", 1),
        ("type=FULL", 0),
        ("status=SUCCESS", 1),
        ("status=RUNNING", 0),
        ("status=KILLED", 0),
    ):
        assert see(served, f"{table}/optimizing-processes?{query}")["total"] == total, query
    every = see(served, f"{table}/snapshots?pageSize=100")["list"]
    for operation in ("optimizing", "non-optimizing"):
        found = see(served, f"{table}/snapshots?pageSize=100&operation={operation}")["list"]
        assert found == [one for one in every if (one["producer"] == "OPTIMIZE") == (operation == "optimizing")]
        assert found
    assert see(served, f"{table}/snapshots?ref=nothing")["list"] == []


def test_tables_of_a_group_are_found_by_database_name_and_status(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with serving(tmp_path / "home") as served:
        store = served.coordinator._store
        store.write(lambda db: catalogs.add(db, CatalogConfig("lake", (("type", "in-memory"),))))
        for number in range(8):
            status = OptimizingStatus.PENDING if number < 2 else OptimizingStatus.IDLE
            store.write(partial(tables.add, runtime=replace(runtime(number), status=status)))
        place = "optimize/optimizerGroups/default/tables"
        every = see(served, f"{place}?pageSize=100")
        assert every["total"] == 8
        pending = see(served, f"{place}?actions[]=pending")
        assert (pending["total"], {one["optimizeStatus"] for one in pending["list"]}) == (2, {"pending"})
        assert all(one["fileCount"] > 0 for one in pending["list"])
        assert see(served, f"{place}?actions[]=pending&actions[]=idle")["total"] == 8
        web = see(served, f"{place}?dbSearchInput=we&pageSize=1&page=2")
        assert (web["total"], [one["tableIdentifier"]["database"] for one in web["list"]]) == (2, ["web"])
        named = see(served, f"{place}?tableSearchInput=cust")
        assert {one["tableIdentifier"]["tableName"] for one in named["list"]} == {"customers"}
        assert see(served, f"{place}?dbSearchInput=nothing") == {"list": [], "total": 0}


def test_a_page_that_is_none_and_one_too_far_are_refused(lake: tuple[Served, str, str]) -> None:
    served, table, _ = lake
    for query in ("page=0", "page=x", "pageSize=-1", "page=", "pageSize=10001", "page=1001&pageSize=10"):
        code, message = refused(served, f"{table}/snapshots?{query}")
        assert code == 400, query
        assert "page" in message
    assert refused(served, f"{table}/snapshots?operation=mine")[0] == 400
    assert refused(served, f"{table}/optimizing-processes?status=done")[0] == 400


def test_what_is_not_there_is_named(lake: tuple[Served, str, str]) -> None:
    served, table, process_id = lake
    for path in (
        "catalogs/nowhere/databases",
        "tables/catalogs/nowhere/dbs/db/tables/t/details",
        "tables/catalogs/lake/dbs/db/tables/nothing/details",
        "optimize/optimizerGroups/nobody/tables",
        "optimize/optimizerGroups/nobody/optimizers",
        f"{table.rsplit('/', 1)[0]}/other/optimizing-processes/{process_id}/tasks",
        f"{table}/optimizing-processes/0000000000/tasks",
        f"{table}/partitions",
        "overview/summary",
        "%00",
    ):
        assert refused(served, path)[0] == 404, path
    assert refused(served, "catalogs/%FF")[0] == 400


def test_a_caller_is_a_token_or_a_user(lake: tuple[Served, str, str]) -> None:
    served, _, _ = lake
    _, viewer = served.coordinator.tokens.create("looks", Role.VIEWER)
    assert see(served, "catalogs", token=viewer)
    assert see(served, "catalogs", token="", headers=basic("whoever", viewer))
    served.coordinator.services.users.add("ann", Role.VIEWER, "", PASSWORD)
    # More often than a password may be tried: one that was right is known.
    for _ in range(8):
        assert see(served, "catalogs", token="", headers=basic("ann", PASSWORD))
    served.coordinator.services.users.set_password("ann", f"{PASSWORD} staple")
    assert refused(served, "catalogs", token="", headers=basic("ann", PASSWORD))[0] == 401
    assert see(served, "catalogs", token="", headers=basic("ann", f"{PASSWORD} staple"))
    served.coordinator.services.users.remove("ann")
    assert refused(served, "catalogs", token="", headers=basic("ann", f"{PASSWORD} staple"))[0] == 401
    page, _ = served.coordinator.services.auditing.list_events(AuditFilter(operation="LogIn"), Window(9))
    assert [(one.call.principal.name, one.call.principal.way.value) for one in page.items] == [
        ("", "rest"),
        ("ann", "rest"),
    ]


def test_nobody_else_hears_anything(lake: tuple[Served, str, str]) -> None:
    served, _, _ = lake
    for headers in ({}, {"Authorization": "Basic !"}, {"Authorization": "Basic YQ=="}, {"Cookie": "amoro-1=2"}):
        assert refused(served, "catalogs", token="", headers=headers)[0] == 401, headers
    assert refused(served, "catalogs", token="amo_wrong")[0] == 401
    enrolment = served.coordinator.enrolment_token.reveal()
    assert refused(served, "catalogs", token=enrolment)[0] == 403
    code, message = refused(served, "catalogs?apiKey=k&signature=s", token="")
    assert code == 403
    assert "MD5" in message
    assert "Bearer TOKEN" in message


def test_wrong_passwords_are_limited(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with serving(tmp_path / "home") as served:
        codes = [refused(served, "catalogs", token="", headers=basic("eve", "x"))[0] for _ in range(6)]
        assert codes == [401, 401, 401, 401, 401, 429]


@pytest.mark.parametrize(
    ("method", "path", "ours"),
    [
        ("POST", "catalogs", "POST /api/v1/catalogs"),
        ("PUT", "catalogs/lake", "PATCH /api/v1/catalogs/NAME"),
        ("DELETE", "catalogs/lake", "DELETE /api/v1/catalogs/NAME"),
        ("POST", "optimize/resourceGroups", "POST /api/v1/groups"),
        ("PUT", "optimize/resourceGroups", "PATCH /api/v1/groups/NAME"),
        ("DELETE", "optimize/resourceGroups/g", "DELETE /api/v1/groups/NAME"),
        ("POST", "optimize/optimizerGroups/g/optimizers", "POST /api/v1/groups/NAME/scale"),
        ("POST", "optimize/optimizers", "POST /api/v1/groups/NAME/scale"),
        ("DELETE", "optimize/optimizers/j", "POST /api/v1/optimizers/ID/release"),
        (
            "POST",
            "tables/catalogs/lake/dbs/d/tables/t/optimizing-processes/p/cancel",
            "POST /api/v1/processes/ID/cancel",
        ),
        ("POST", "login", "/api/v1/openapi.json"),
        ("PUT", "terminal/1/stop", "/api/v1/openapi.json"),
    ],
)
def test_nothing_is_changed_and_it_is_said_where_it_can_be(
    lake: tuple[Served, str, str], method: str, path: str, ours: str
) -> None:
    code, message = refused(lake[0], path, method, body={})
    assert code == 403
    assert ours in message
