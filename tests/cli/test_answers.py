"""What commands ask the coordinator for, and what they show of its answer: one row for each."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from amoro_core.protocol import accounts_pb2 as accounts
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2 as audit
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import snapshots_pb2 as snapshots
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON, table

TABLE = "sales.db.orders"
ID = "01a1ffb2-9673-72ae-a0e1-9d22fdba0bc2"
AT, AT_ISO = "2026-09-21 14:13:20Z", "2026-09-21T14:13:20.123Z"


@dataclass(frozen=True, slots=True)
class Row:
    """A command, its method's answer, the request that it sends, the whole output, and parts of it as JSON."""

    words: str
    method: str
    answer: Any
    request: Any = None
    shows: str | None = None
    holds: Mapping[str, Any] = field(default_factory=dict)  # by dotted keys
    name: str | None = None  # what -o name prints


GROUP = pb.Group(
    name="nightly", scheduling_policy="quota", properties={"owner": "data"}, container="external", optimizers=2,
    threads=8, tables=1200, running_tasks=5,
    uses=[
        pb.GroupUse(table=TABLE, quota=0.5, limit=4, running_tasks=5, occupation=1.25, table_id=7),
        pb.GroupUse(table="sales.db.lines", quota=0, limit=0, occupation=-1),
    ],
)  # fmt: skip
GROUP_TEXT = """\
group           nightly
policy          quota
container       external
optimizers      2
threads         8, 5 busy
tables          1,200
property owner  data

  TABLE            QUOTA  LIMIT  BUSY      USED
  sales.db.orders    0.5      4     5      125%
  sales.db.lines       0      0     0  no limit
"""
CATALOG = pb.Catalog(
    name="sales", origin="amoro", properties={"type": "rest", "uri": "http://c:8181", "token": "***"},
    allowed_locations=["s3://old/"], commits=True,
)  # fmt: skip
CATALOG_TEXT = """\
catalog           sales
from              amoro
commits           yes
property token    ***
property type     rest
property uri      http://c:8181
allowed location  s3://old/
Its tables are only observed until they are enabled: amoro table enable TABLE, or 'sales.*' for all of them
"""
OPTIMIZER = pb.Optimizer(
    optimizer_id="o-1", group="default", threads=4, memory_bytes=2**31, registered_ms=NOON, touched_ms=NOON + 1000,
    running_tasks=3, labels={"version": "0.1.0", "host": "w1"},
)  # fmt: skip
DRAINING = pb.Optimizer()
DRAINING.CopyFrom(OPTIMIZER)
DRAINING.draining = True
JOB = pb.Job(
    resource_id="r-1", container="spark", state="ended", started_ms=NOON, ended_ms=NOON + 1000, handle="12",
    cause="it had no task for 300 s",
)  # fmt: skip
INSTANCE = pb.InstanceStatus(
    resource_id="r-1", group="nightly", container="local", state="stopping", started_ms=NOON, since_ms=NOON,
    optimizer_id="o-1", handle="12", liveness="ended", detail="its process has ended with status 1",
)  # fmt: skip
INSTANCE_TEXT = f"""\
instance            r-1
group               nightly
container           local
state               stopping since {AT}
started             {AT}
optimizer           o-1
handle              12
its container says  ended: its process has ended with status 1
"""
ANN = accounts.User(name="ann", role="operator", pattern="shop.**", created_ms=NOON)
CALL = audit.AuditEvent(
    event_id=7, happened_ms=NOON, actor="airflow", actor_kind="token", said="ann", role="operator", pattern="shop.**",
    address="10.0.0.7", way="grpc", operation="OptimizeTable", object="shop.db.t", parameters={"table": "shop.db.t"},
    outcome="refused", code="AMORO-4001",
)  # fmt: skip
BLOCKER = pb.Blocker(
    blocker_id=ID, table=TABLE, operations=["batch-write", "optimize"], reason="nightly", created_ms=NOON,
    expires_ms=NOON + 60_000,
)  # fmt: skip
BLOCKER_TEXT = f"""\
blocker  {ID}
table    {TABLE}
blocks   batch-write, optimize
expires  2026-09-21 14:14:20Z
reason   nightly
It expires by itself. To keep it, renew it in time: amoro table renew {ID}
"""
LEASE = pb.Lease(lease_id=ID, table=TABLE, snapshot_id=7, holder="audit", expires_ms=NOON, tag=f"lease-{ID}")
SETTINGS = pb.GetSettingsResponse(
    settings=[
        pb.Setting(key="port", value="7000", origin="file /h/amoro.yaml", default="1261"),
        pb.Setting(key="host", value="127.0.0.1", origin="default", default="127.0.0.1"),
    ]
)
PROPERTIES = pb.GetTablePropertiesResponse(
    table=TABLE, enabled=True, enabled_origin="amoro table enable",
    properties=[
        pb.Setting(key="self-optimizing.quota", value="0.9", origin="table", default="0.5"),
        pb.Setting(key="self-optimizing.enabld", value="true", origin="unknown"),
        pb.Setting(key="self-optimizing.x", value="", origin="unknown"),
        pb.Setting(key="self-optimizing.enabled", value="false", origin="default"),
    ],
)  # fmt: skip
FACTS = pb.StateFacts(
    path="/h/amoro.db", bytes=4096, log_bytes=1024, free_bytes=2**30, epoch=3, leader_pid=17, python="3.11.7",
    sqlite="3.46.1", backup_ms=NOON, backup_path="/b/copy.db",
    migrations=[
        pb.AppliedMigration(number=1, name="create_tables"),
        pb.AppliedMigration(number=2, name="keep_audit", applied_ms=NOON),
    ],
)  # fmt: skip


def totals(*figures: int) -> snapshots.SnapshotTotals:
    names = ("data_files", "delete_files", "records", "position_deletes", "equality_deletes", "bytes")
    return snapshots.SnapshotTotals(**dict(zip(names, figures, strict=True)))


COMPARISON = snapshots.SnapshotComparison(
    table=TABLE, is_ancestor=True, commits=3, own_commits=1,
    before=snapshots.ComparedSnapshot(
        snapshot_id=7, committed_ms=NOON, operation="append", totals=totals(1200, 0, 10, -1, -1, 4096)
    ),
    after=snapshots.ComparedSnapshot(
        snapshot_id=8, committed_ms=NOON, operation="replace", totals=totals(12, 3, 10, 4, -1, 2048)
    ),
)  # fmt: skip
PAUSED = pb.TableAction(
    action="expire-snapshots", is_on=True, by="table-expire.enabled is true by default", failures=3, paused_ms=NOON,
    reason="planning failed: m1.avro is gone", paused_for="3 failures in a row, the last: planning failed",
)  # fmt: skip
PAUSED_OF = pb.TableAction(table=TABLE)
PAUSED_OF.MergeFrom(PAUSED)
TRASH = pb.Trash(process_id=ID, table=TABLE, action="clean-orphan-files", files=3, bytes=30)
CONDEMNED = pb.CondemnedFile(path="b", kind="data", size_bytes=10, reason="an orphan", status="waiting")

ROWS = (
    # Groups, optimizers and their instances
    Row(
        "group create nightly --policy balanced --property owner=data", "CreateGroup", GROUP, shows=GROUP_TEXT,
        request=pb.CreateGroupRequest(
            name="nightly", scheduling_policy="balanced", properties={"owner": "data"}, container="external"
        ),
    ),
    Row(
        "group show nightly", "GetGroup", GROUP, pb.GetGroupRequest(name="nightly"), GROUP_TEXT,
        {"schema": "amoro.group/v1", "uses.0.occupation": 1.25, "uses.1.occupation": None},
    ),
    Row(
        "group update nightly --property a=b --unset c --memory 512MB --container local", "UpdateGroup", GROUP,
        pb.UpdateGroupRequest(
            name="nightly", properties={"a": "b", "memory": "512MB"}, removed_properties=["c"], container="local"
        ),
        GROUP_TEXT,
    ),
    Row(
        "group jobs nightly --limit 2", "ListJobs", pb.ListJobsResponse(jobs=[JOB]),
        pb.ListJobsRequest(name="nightly", limit=2),
        f"JOB  CONTAINER  STATE  STARTED               ENDED                 CAUSE\n"
        f"r-1  spark      ended  {AT}  2026-09-21 14:13:21Z  it had no task for 300 s\n",
        {"schema": "amoro.jobs/v1", "jobs.0.handle": "12", "jobs.0.started_at": AT_ISO},
    ),
    Row(
        "optimizer release o-1", "ReleaseOptimizer", pb.ReleaseOptimizerResponse(optimizer_id="o-1", tasks=1),
        pb.ReleaseOptimizerRequest(optimizer_id="o-1"), "Optimizer o-1 is released; 1 task planned again.\n",
        {"schema": "amoro.released/v1", "tasks": 1},
    ),
    Row(
        "optimizer drain o-1", "DrainOptimizer", DRAINING, pb.DrainOptimizerRequest(optimizer_id="o-1"),
        f"optimizer      o-1\ngroup          default\nstate          draining\nthreads        4, 3 busy\n"
        f"memory         2.0 GB\nregistered     {AT}\nlast seen      2026-09-21 14:13:21Z\nlabel host     w1\n"
        f"label version  0.1.0\n",
        {"schema": "amoro.optimizer/v1", "draining": True},
    ),
    *(
        Row(f"optimizer {verb} r-1234", method, INSTANCE, kind(id="r-1234"), INSTANCE_TEXT,
            {"schema": "amoro.instance/v1", "liveness": "ended"})
        for verb, method, kind in (
            ("status", "GetInstance", pb.GetInstanceRequest), ("kill", "KillInstance", pb.KillInstanceRequest)
        )
    ),
    Row(
        "optimizer logs r-1234", "GetInstanceLogs", pb.InstanceLogs(resource_id="r-1", lines=["one", "two \x1b[2J"]),
        pb.GetInstanceLogsRequest(id="r-1234", lines=100), "one\ntwo \\x1b[2J\n", {"lines": ["one", "two \x1b[2J"]},
    ),
    # Catalogs
    Row(
        "catalog show sales", "GetCatalog", CATALOG, pb.GetCatalogRequest(name="sales"), CATALOG_TEXT,
        {"schema": "amoro.catalog/v1", "allowed_locations": ["s3://old/"], "commits": True},
    ),
    Row(
        "catalog update sales uri=http://c:8181 --property type=rest --unset token --allow-location s3://old/ "
        "--forbid-location s3://older/", "UpdateCatalog", CATALOG,
        pb.UpdateCatalogRequest(
            name="sales", properties={"type": "rest", "uri": "http://c:8181"}, removed_properties=["token"],
            allowed_locations=["s3://old/"], removed_locations=["s3://older/"],
        ),
        CATALOG_TEXT,
    ),
    Row(
        "table create lake.db.t 'id long' --partition id --location s3://l/t --property a=b", "CreateTable",
        snapshots.TableEntry(table="lake.db.t", metadata_location="s3://l/t/0.json", is_done=True),
        snapshots.CreateTableRequest(
            table="lake.db.t", columns=["id long"], partition=["id"], location="s3://l/t", properties={"a": "b"}
        ),
        shows="Table lake.db.t is created.\n", name="lake.db.t\n",
    ),
    Row(
        "table list --namespace db --text Ord --not-optimized --refusal format --health-below 40 --group g "
        "--state FAILING", "ListTables", pb.ListTablesResponse(total_is_exact=True),
        pb.ListTablesRequest(
            namespace="db", text="Ord", enabled=False, refusal="format", health_below=40, group="g", state="failing",
            sort="saving", order="desc",
        ),
        "None of the known tables matches.\n",
    ),
    Row(
        "table drop lake.db.t --dry-run", "DropTable",
        snapshots.TableEntry(table="lake.db.t", metadata_location="s3://l/t/0.json"),
        snapshots.DropTableRequest(table="lake.db.t", dry_run=True),
        shows="Table lake.db.t would be dropped. Its files stay; its last metadata file: s3://l/t/0.json\n",
    ),
    # Who may do what
    Row(
        "token create a --role operator --on shop.** --expires 90d", "CreateToken",
        pb.Token(name="a", kind="operator", token="amo_y", pattern="shop.**", expires_ms=NOON),
        pb.CreateTokenRequest(name="a", kind="operator", pattern="shop.**", lasts_ms=90 * 86_400_000),
        f"name     a\nrole     operator\non       shop.**\nexpires  {AT}\ntoken    amo_y\n"
        "Save it now: it is not shown again.\n",
    ),
    Row(
        "user add ann --role operator --on shop.** --password-file {file}", "AddUser", ANN,
        accounts.AddUserRequest(name="ann", role="operator", pattern="shop.**", password="correct horse battery"),
        "name  ann\nrole  operator\non    shop.**\n",
    ),
    Row("user update ann --on shop.**", "UpdateUser", ANN, accounts.UpdateUserRequest(name="ann", pattern="shop.**")),
    Row(
        "user password ann --password-file {file}", "SetPassword", ANN,
        accounts.SetPasswordRequest(name="ann", password="correct horse battery"),
    ),
    Row(
        "audit list --actor airflow --outcome refused --object shop.db.t", "ListAudit",
        audit.ListAuditResponse(events=[CALL], total=1, total_is_exact=True),
        audit.ListAuditRequest(actor="airflow", outcome="refused", object="shop.db.t", limit=20),
        holds={
            "audit.0.happened_at": AT_ISO, "audit.0.said": "ann", "audit.0.parameters": {"table": "shop.db.t"},
            "audit.0.code": "AMORO-4001",
        },
    ),
    Row(
        "group remove nightly", "RemoveGroup", pb.RemoveGroupResponse(name="nightly"),
        shows="Group nightly is removed.\n", holds={"schema": "amoro.removed/v1", "name": "nightly"},
    ),
    Row(
        "catalog remove sales", "RemoveCatalog", pb.RemoveCatalogResponse(name="sales", tables=2),
        shows="Catalog sales is removed; 2 tables forgotten, none touched.\n", holds={"name": "sales", "tables": 2},
    ),
    Row(
        "user list", "ListUsers", accounts.ListUsersResponse(users=[ANN], total=1),
        shows=f"USER  ROLE      ON       CREATED\nann   operator  shop.**  {AT}\n",
    ),
    Row("user remove ann", "RemoveUser", accounts.RemoveUserResponse(name="ann"), shows="User ann is removed.\n"),
    Row(
        f"table compare {TABLE} 7 8", "CompareSnapshots", COMPARISON,
        snapshots.CompareSnapshotsRequest(table=TABLE, before=7, after=8),
    ),
    # A table in detail
    Row(
        f"table block {TABLE} --for 90s --reason nightly --operation optimize --operation batch-write", "BlockTable",
        BLOCKER,
        pb.BlockTableRequest(
            table=TABLE, operations=["optimize", "batch-write"], hold_ms=90_000, reason="nightly"
        ),
        BLOCKER_TEXT,
    ),
    Row(
        f'table block {TABLE} --where "part=\'a\'" --yield', "BlockTable",
        pb.Blocker(blocker_id=ID, table=TABLE, operations=["optimize"], condition="part='a'", expires_ms=NOON),
        pb.BlockTableRequest(table=TABLE, condition="part='a'", yields=True),
        f"blocker  {ID}\ntable    {TABLE}\nblocks   optimize\nwhere    part='a'\nexpires  2026-09-21 14:13:20Z\n"
        f"It expires by itself. To keep it, renew it in time: amoro table renew {ID}\n",
        holds={"condition": "part='a'"},
    ),
    Row(
        "policy apply -f {file} --dry-run", "ApplyPolicies",
        snapshots.AppliedPolicies(
            version=2,
            tables=[
                snapshots.PolicyEffect(
                    table=TABLE, becomes="due", changes=[snapshots.ChangedProperty(key="a.b", before="1", after="2")]
                )
            ],
        ),
        snapshots.ApplyPoliciesRequest(text="correct horse battery\nsecond line\n", dry_run=True),
        f"{'TABLE':<15}  KEY  BEFORE  AFTER  BECOMES\n{TABLE}  a.b  1       2      due\n"
        "1 table would change. Version 2 of the policies holds.\n",
        holds={"tables.0.becomes": "due", "tables.0.changes.0.after": "2"},
    ),
    Row(
        "policy show --version 2", "GetPolicies",
        snapshots.Policies(version=2, applied_ms=NOON, applied_by="ann", text="- name: a\n"),
        snapshots.GetPoliciesRequest(version=2),
        f"# version 2, applied {AT} by ann\n- name: a\n",
        holds={"text": "- name: a\n", "applied_at": AT_ISO},
    ),
    Row(
        "table unblock 01a1ff", "ReleaseBlocker", BLOCKER, pb.ReleaseBlockerRequest(blocker_id="01a1ff"),
        f"Blocker {ID} is released; {TABLE} is free.\n",
    ),
    Row(
        f"lease take {TABLE} --snapshot 7 --as-tag --for 1h", "TakeLease", LEASE,
        pb.TakeLeaseRequest(table=TABLE, snapshot_id=7, hold_ms=3_600_000, as_tag=True), holds={"tag": f"lease-{ID}"},
    ),
    Row(
        f"lease take {TABLE} --since 7", "TakeLease", pb.Lease(lease_id=ID, table=TABLE, snapshot_id=7),
        pb.TakeLeaseRequest(table=TABLE, snapshot_id=7, since=True),
    ),
    Row(
        "config show --origin", "GetSettings", SETTINGS,
        shows="KEY   VALUE      ORIGIN\nport  7000       file /h/amoro.yaml\nhost  127.0.0.1  default\n",
    ),
    Row(
        f"table properties {TABLE}", "GetTableProperties", PROPERTIES,
        shows="KEY                      VALUE  ORIGIN\n"
        "self-optimizing.quota    0.9    table\n"
        "self-optimizing.enabld   true   unknown\n"
        "self-optimizing.x        -      unknown\n"
        "self-optimizing.enabled  false  default\n"
        "self-optimizing.enabld is not known here: did you mean self-optimizing.enabled?\n"
        "self-optimizing.x is not known here.\n"
        "optimized: yes, amoro table enable\n",
        holds={"schema": "amoro.properties/v1", "enabled": True, "properties.0.default": "0.5"},
    ),
    Row(
        f"table set {TABLE} self-optimizing.quota=0.2 owner- a=b=c --dry-run", "SetTableProperties",
        snapshots.ChangedProperties(
            table=TABLE,
            changes=[
                snapshots.ChangedProperty(key="owner", before="ann"),
                snapshots.ChangedProperty(key="self-optimizing.quota", before="", after="0.2"),
            ],
        ),
        snapshots.SetTablePropertiesRequest(
            table=TABLE, properties={"self-optimizing.quota": "0.2", "a": "b=c"}, removed_properties=["owner"],
            dry_run=True,
        ),
        "KEY                    BEFORE  AFTER\n"
        "owner                  ann     -\n"
        "self-optimizing.quota          0.2\n"
        "These properties would change.\n",
        {
            "schema": "amoro.changed-properties/v1", "is_done": False, "changes.0.after": None,
            "changes.1.before": "",
        },
        "owner\nself-optimizing.quota\n",
    ),
    Row(
        f"table retention {TABLE}", "GetRetention",
        snapshots.Retention(
            table=TABLE, going=1, staying="1 stays (1 branch)",
            snapshots=[
                snapshots.SnapshotFate(snapshot_id=8, ground="branch", reason="branch main"),
                snapshots.SnapshotFate(snapshot_id=7, goes=True, reason="past its retention"),
            ],
        ),
        holds={"schema": "amoro.retention/v1", "going": 1}, name="7\n",
    ),
    Row(
        f"table sizes {TABLE} --partitions 1", "GetTableDigest",
        journal.TableDigest(
            table=TABLE, read_ms=NOON, sizes=[journal.SizeBin(from_bytes=1024, data_files=1200)],
            partitions=[journal.PartitionDigest(path="day=1"), journal.PartitionDigest(path="day=2")],
        ),
        journal.GetTableDigestRequest(table=TABLE), holds={"sizes.0.data_files": 1200}, name="day=1\nday=2\n",
    ),
    Row(
        f"table actions {TABLE}", "ListActions", pb.ListActionsResponse(table=TABLE, actions=[PAUSED]),
        holds={"actions.0.paused_at": AT_ISO, "actions.0.paused_for": PAUSED.paused_for},
    ),
    Row(
        "table actions", "ListActions",
        pb.ListActionsResponse(
            actions=[PAUSED_OF, pb.TableAction(action="drop", table="a.b.c", last_ms=NOON)], total=9,
        ),
        pb.ListActionsRequest(),
        "TABLE            ACTION            LAST                  NEXT   STATE                              REASON\n"
        f"sales.db.orders  expire-snapshots  never                 never  paused since {AT}  "
        "3 failures in a row, the last: planning failed\n"
        f"a.b.c            drop              {AT}  -      -                                  -\n"
        "and 7 more: name a table or a pattern\n",
        {"table": "", "total": 9}, "sales.db.orders expire-snapshots\na.b.c drop\n",
    ),
    Row(
        f"trash show {ID} --limit 1 --after cursor-1", "ShowTrash",
        pb.ShowTrashResponse(trash=TRASH, files=[CONDEMNED], next="cursor-2", total=3),
        pb.ShowTrashRequest(process_id=ID, limit=1, after="cursor-1"),
        holds={"files.0.path": "b", "next": "cursor-2", "total": 3},
    ),
    # The state database
    Row(
        "state show", "GetState", FACTS,
        shows="file         /h/amoro.db\n"
        "size         4.0 kB, and 1.0 kB of write-ahead log\n"
        "free         1.0 GB on its disk\n"
        f"schema       2, keep audit, since {AT}\n"
        "coordinator  pid 17 holds its lock; it was opened 3 times\n"
        f"last backup  /b/copy.db, {AT}\n"
        "versions     Python 3.11.7, SQLite 3.46.1\n",
        holds={"schema": "amoro.state/v1", "migrations.0.applied_at": None},
    ),
)  # fmt: skip


def _found(document: Any, key: str) -> Any:
    for name in key.split("."):
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document


@pytest.mark.parametrize("row", ROWS, ids=[row.words[:50] for row in ROWS])
def test_a_command_asks_what_it_says_and_shows_the_answer(cli: Cli, admin: FakeAdmin, tmp_path: Path, row: Row) -> None:
    (tmp_path / "password").write_text("correct horse battery\nsecond line\n")
    words = shlex.split(row.words.format(file=tmp_path / "password", here=tmp_path))
    admin.script(row.method, row.answer)
    result = cli(*words)
    assert (result.status, result.err) == (0, "")
    if row.request is not None:
        assert admin.asked(row.method) == [row.request]
    if row.shows is not None:
        assert result.out == row.shows
    document = json.loads(cli(*words, "-o", "json").out)
    assert {key: _found(document, key) for key in row.holds} == row.holds
    if row.name is not None:
        assert cli(*words, "-o", "name").out == row.name


def test_nothing_is_said_in_words(cli: Cli, admin: FakeAdmin) -> None:
    nobody = "No optimizers are registered in the group. Start one with: amoro optimizer run --group night\n"
    for words, method, answer, says in (
        ("table list", "ListTables", pb.ListTablesResponse(), "No tables are known. `amoro up` finds those of all"),
        ("plan", "SelectTables", pb.SelectTablesResponse(), "No catalog has any tables.\n"),
        ("catalog list", "ListCatalogs", pb.ListCatalogsResponse(), "No catalogs. Add one with: amoro catalog add"),
        ("optimizer list --group night", "ListOptimizers", pb.ListOptimizersResponse(), nobody),
        ("event list --since 1d", "ListEvents", journal.ListEventsResponse(), "No events.\n"),
    ):
        admin.script(method, answer)
        result = cli(*words.split())
        assert (result.status, result.out.startswith(says)) == (0, True), result.out
        assert cli(*words.split(), "-o", "name").out == ""


def lines_of(cli: Cli, words: str) -> list[str]:
    return cli(*words.split()).out.splitlines()


def test_a_group_with_instances_says_how_starting_them_went(cli: Cli, admin: FakeAdmin) -> None:
    made = pb.Group(name="x", scheduling_policy="quota", container="local", wanted_instances=2)
    admin.script("ScaleGroup", made)
    assert {"container   local", "instances   0 of 2"} <= {*lines_of(cli, "group scale x 2")}
    assert admin.asked("ScaleGroup") == [pb.ScaleGroupRequest(name="x", instances=2)]
    made.instances.add(resource_id="r1", container="local", state="running", optimizer_id="o1", handle="12")
    made.failed_starts, made.start_failure, made.gave_up_starting = 5, "no memory", True
    admin.script("GetGroup", made)
    shown = lines_of(cli, "group show x")
    assert "failed starts  5 in a row, given up; scale it to try again: no memory" in shown
    assert shown[-2].split() == ["INSTANCE", "CONTAINER", "STATE", "STARTED", "OPTIMIZER"]
    assert shown[-1].split() == ["r1", "local", "running", "never", "o1"]


def test_configuration_files_are_uploaded_replaced_and_removed(cli: Cli, admin: FakeAdmin, tmp_path: Path) -> None:
    site = tmp_path / "hive-site.xml"
    site.write_text("<configuration/>")
    kept = pb.SiteFile(name="hive-site.xml", bytes=2048, properties={"uri": "thrift://a", "s3.region": "eu"})
    shown = pb.Catalog(name="sales", commits=True, site_files=[kept])
    admin.script("AddCatalog", shown)
    admin.script("CheckCatalog", pb.CatalogCheck(ok=True))
    admin.script("UpdateCatalog", shown)
    result = cli("catalog", "add", "sales", "--site", str(site))
    assert (result.status, result.err) == (0, "")
    assert "file hive-site.xml  2.0 kB, gives s3.region, uri\n" in result.out
    assert admin.asked("AddCatalog")[0].site_files == {"hive-site.xml": "<configuration/>"}
    assert cli("catalog", "update", "sales", "--site", str(site), "--remove-site", "core-site.xml").status == 0
    (asked,) = admin.asked("UpdateCatalog")
    assert (asked.site_files, asked.removed_site_files) == ({"hive-site.xml": "<configuration/>"}, ["core-site.xml"])


def test_a_file_that_cannot_be_read_or_stands_twice_is_wrong_usage(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "latin.xml").write_bytes(b"\xe9")
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "x.xml").write_text("<configuration/>")
    for names, said in (
        (["none.xml"], f"{tmp_path / 'none.xml'} can't be read: No such file or directory [AMORO-2001]\n"),
        (["latin.xml"], "latin.xml is not UTF-8"),
        (["a/x.xml", "b/x.xml"], "Two files are named x.xml"),
    ):
        sites = [word for name in names for word in ("--site", str(tmp_path / name))]
        result = cli("catalog", "add", "sales", *sites)
        assert (result.status, said in result.err) == (2, True)
    told = cli("user", "password", "ann", "--password-file", str(tmp_path / "none"))
    assert (told.status, "can't be read: No such file" in told.err) == (2, True)


def test_a_login_link_is_printed(cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.script("MakeLoginLink", accounts.LoginLink(url="http://127.0.0.1:1630/login/link?code=x", expires_ms=NOON))
    link = "http://127.0.0.1:1630/login/link?code=x\n"
    assert cli("login").out == f"{link}It can be used once, until {AT}.\n"
    assert cli("login", "-o", "name").out == link
    opened, works = list[str](), [True, False]
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or works.pop(0))
    assert cli("login", "--browser").status == 0
    alone = cli("login", "--browser")
    assert (alone.status, alone.out.splitlines()[0]) == (0, link.strip())
    assert alone.err == "No browser was found on this machine: open the link yourself.\n"
    assert opened == [link.strip()] * 2


def test_an_added_catalog_is_told_with_what_was_found_in_it(cli: Cli, admin: FakeAdmin) -> None:
    words = shlex.split("catalog add sales type=rest uri=http://c?a=b --property token=abc --allow-location s3://old/")
    admin.script("AddCatalog", CATALOG)
    admin.script("CheckCatalog", pb.CatalogCheck(ok=True, tables=3))
    *rest, hint = CATALOG_TEXT.splitlines()
    added = cli(*words).out.splitlines()
    assert added == [*rest, "3 tables found.", hint]
    assert admin.asked("AddCatalog") == [
        pb.AddCatalogRequest(
            name="sales", properties={"type": "rest", "uri": "http://c?a=b", "token": "abc"},
            allowed_locations=["s3://old/"],
        )
    ]  # fmt: skip
    admin.script("CheckCatalog", pb.CatalogCheck(message="no answer"))
    assert "Its tables could not be listed: no answer" in cli(*words).out.splitlines()
    assert json.loads(cli(*words, "-o", "json").out)["name"] == "sales"


def test_the_audit_is_a_line_for_each_call(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListAudit", audit.ListAuditResponse(events=[CALL, CALL], total=2, total_is_exact=True))
    row = [cell.strip() for cell in lines_of(cli, "audit list")[1].split("  ") if cell]
    assert row[:6] == ["7", AT, "airflow (ann)", "operator", "grpc", "10.0.0.7"]
    assert row[6:] == ["OptimizeTable", "shop.db.t", "refused [AMORO-4001]"]
    first, second = lines_of(cli, "audit list -o jsonl")
    assert (first, json.loads(first)["schema"]) == (second, "amoro.audited/v1")


def test_differences_of_snapshots_have_their_sign_and_unknown_totals_none(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CompareSnapshots", COMPARISON)
    lines = lines_of(cli, f"table compare {TABLE} 7 8")
    told = {line[: line.index("  ")].strip(): line.split()[-2:] for line in lines[1:-1] if "  " in line.strip()}
    assert (told["data files"], told["delete files"]) == (["12", "-1,188"], ["3", "+3"])
    assert (told["rows"], told["position deletes"]) == (["10", "0"], ["4", "-"])
    assert lines[-1] == "3 commits between them, 1 by Amoro"
    admin.script("CompareSnapshots", snapshots.SnapshotComparison(before=COMPARISON.before, after=COMPARISON.after))
    assert lines_of(cli, f"table compare {TABLE} 7 8")[-1] == "The first snapshot is no ancestor of the second."


CHANGED = snapshots.ChangedProperties(changes=[snapshots.ChangedProperty(key="a", after="b")], is_done=True)


def test_an_answer_also_says(cli: Cli, admin: FakeAdmin) -> None:
    blocked = "blocked         batch-write, optimize until 2026-09-21 14:14:20Z: nightly\n"
    trash = pb.ShowTrashResponse(trash=TRASH, files=[CONDEMNED], next="cursor-2", total=3)
    backup = "last backup  none that the audit knows\n"
    for words, method, answer, says in (
        (f"table show {TABLE}", "GetTable", table(blockers=[BLOCKER]), blocked),
        (f"trash show {ID} --limit 1 --after cursor-1", "ShowTrash", trash, "and more: see --limit"),
        (f"table set {TABLE} a=b", "SetTableProperties", CHANGED, "The properties are changed by a commit to the"),
        ("state show", "GetState", pb.StateFacts(path="/h/amoro.db"), backup),
        (f"table show {TABLE}", "GetTable", table(format="journal"), "format          Journal, version 2\n"),
        (f"table show {TABLE}", "GetTable", table(format=""), "format          Iceberg, version 2\n"),
        (f"table show {TABLE}", "GetTable", table(status_reason="\x1b[2Jgone\r"), "due: \\x1b[2Jgone\\r; it waits"),
    ):
        admin.script(method, answer)
        assert says in cli(*words.split()).out


def test_the_state_is_checked_and_copied_where_it_is_said(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CheckState", pb.CheckStateResponse(problems=["row 1 is lost"]))
    damaged = cli("state", "check", "-o", "json")
    document = {"schema": "amoro.check/v1", "ok": False, "problems": ["row 1 is lost"]}
    assert (damaged.status, json.loads(damaged.out)) == (1, document)
    assert damaged.err.startswith("Error: the state database is damaged [AMORO-1007]\nHint: ")
    admin.script("BackupState", pb.BackupStateResponse(path="/b/copy.db", bytes=4096))
    cli("state", "backup", "copy.db")
    assert admin.asked("BackupState") == [pb.BackupStateRequest(path=str(Path.cwd() / "copy.db"))]


def test_rows_of_a_statement_are_told_as_a_table_as_json_and_as_csv(cli: Cli, admin: FakeAdmin, tmp_path: Path) -> None:
    """NULL is no text, and what a text has in it neither breaks a line of the table nor a field of the CSV."""
    rows = (("1", 'a "b", c\nd', None), ("22", "", "\u00e9\x1b[2J"))
    made = [pb.ResultRow(values=[pb.ResultValue(text=text) for text in row]) for row in rows]
    columns = [pb.ResultColumn(name=name, type="VARCHAR") for name in ("id", "x, y", "z")]
    admin.script("RunStatement", pb.StatementResult(columns=columns, rows=made, is_cut=True, duration_ms=12))
    (tmp_path / "q.sql").write_text("SELECT \u00e9;\n", encoding="utf-8")
    shown = cli("sql", "-f", str(tmp_path / "q.sql"), "--limit", "2", "--engine", "spark")
    asked = pb.RunStatementRequest(statement="SELECT \u00e9;\n", limit=2, engine="spark")
    assert (shown.status, shown.err, admin.asked("RunStatement")) == (0, "", [asked])
    assert shown.out.splitlines() == [
        "id  x, y         z",
        r'1   a "b", c\nd  NULL',
        "22               \u00e9\\x1b[2J",
        "2 rows; there are more, terminal.result-limit is the most",
    ]
    document = json.loads(cli("sql", "-e", "SELECT 1", "-o", "json").out)
    assert (document["schema"], document["is_cut"]) == ("amoro.rows/v1", True)
    assert document["rows"] == [list(row) for row in rows]
    written = cli("sql", "-e", "SELECT 1", "-o", "csv").out
    assert written == 'id,"x, y",z\r\n1,"a ""b"", c\nd",\r\n22,,\u00e9\x1b[2J\r\n'
