import json
from pathlib import Path

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON, PROCESS

SETTINGS = pb.GetSettingsResponse(
    settings=[
        pb.Setting(key="port", value="7000", origin="file /h/amoro.yaml", default="1261"),
        pb.Setting(key="host", value="127.0.0.1", origin="default", default="127.0.0.1"),
    ]
)


def test_settings_are_shown_with_their_origins_where_somebody_asks(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetSettings", SETTINGS)
    assert cli("config", "show").out == "KEY   VALUE\nport  7000\nhost  127.0.0.1\n"
    assert cli("config", "show", "--origin").out == (
        "KEY   VALUE      ORIGIN\nport  7000       file /h/amoro.yaml\nhost  127.0.0.1  default\n"
    )
    assert json.loads(cli("config", "show", "-o", "json").out) == {
        "schema": "amoro.settings/v1",
        "settings": [
            {"key": "port", "value": "7000", "origin": "file /h/amoro.yaml", "default": "1261"},
            {"key": "host", "value": "127.0.0.1", "origin": "default", "default": "127.0.0.1"},
        ],
    }
    assert cli("config", "show", "-o", "name").out == "port\nhost\n"


def test_the_properties_of_a_table_are_shown_with_who_said_them(cli: Cli, admin: FakeAdmin) -> None:
    answer = pb.GetTablePropertiesResponse(
        table="sales.db.orders",
        properties=[
            pb.Setting(key="self-optimizing.quota", value="0.9", origin="table", default="0.5"),
            pb.Setting(key="self-optimizing.filter", value="", origin="default"),
        ],
        enabled=True,
        enabled_origin="amoro table enable",
    )
    admin.script("GetTableProperties", answer)
    assert cli("table", "properties", "sales.db.orders").out == (
        "KEY                     VALUE  ORIGIN\n"
        "self-optimizing.quota   0.9    table\n"
        "self-optimizing.filter  -      default\n"
        "optimized: yes, amoro table enable\n"
    )
    body = json.loads(cli("table", "properties", "sales.db.orders", "-o", "json").out)
    assert (body["schema"], body["table"], body["enabled"]) == ("amoro.properties/v1", "sales.db.orders", True)
    assert body["properties"] == [
        {"key": "self-optimizing.quota", "value": "0.9", "origin": "table", "default": "0.5"},
        {"key": "self-optimizing.filter", "value": "", "origin": "default", "default": ""},
    ]


def test_the_health_of_a_table_is_shown_by_its_parts(cli: Cli, admin: FakeAdmin) -> None:
    answer = pb.TableHealth(
        table="sales.db.orders", health_score=61, small_files=21, equality_deletes=30, position_deletes=10,
        files=pb.FileSummary(
            data_files=1054, fragment_files=48, undersized_files=6, equality_delete_files=9, position_delete_files=3,
            coarse_files=2, coarse_bytes=220 * 2**20,
        ),
        reason="minor: 12 small files", fragmentation=48 / 1054, weight=1, fragment_bytes=16 * 2**20,
        target_bytes=96 * 2**20, full_weight_files=12,
    )  # fmt: skip
    admin.script("GetTableHealth", answer)
    assert cli("table", "health", "sales.db.orders").out == (
        "table             sales.db.orders\n"
        "health            61/100, as Amoro scores it\n"
        "fragmentation     5% by count: 48 of 1,054 data files are fragments, 16 MB or less\n"
        "small files       21/40: 48 fragments, 6 undersized of 1,054 files\n"
        "coarse            2 files of target size, 220 MB: small row groups that minor copied, until major or full\n"
        "equality deletes  30/40: 9 files\n"
        "position deletes  10/20: 3 files\n"
        "weight            100%: share of its faults charged to a partition; in full from 12 files and 96 MB on\n"
        "evaluation        minor: 12 small files\n"
    )
    body = json.loads(cli("table", "health", "sales.db.orders", "-o", "json").out)
    assert (body["schema"], body["health_score"], body["files"]["data_files"]) == ("amoro.health/v1", 61, 1054)
    assert (body["files"]["coarse_files"], body["files"]["coarse_bytes"]) == (2, 220 * 2**20)
    assert (body["fragmentation"], body["weight"], body["full_weight_files"]) == (48 / 1054, 1.0, 12)


def test_a_table_of_one_small_file_is_told_as_that(cli: Cli, admin: FakeAdmin) -> None:
    answer = pb.TableHealth(
        table="sales.db.orders", health_score=100, small_files=40, equality_deletes=40, position_deletes=20,
        files=pb.FileSummary(data_files=1, fragment_files=1, equality_delete_files=1), reason="nothing to do",
        fragmentation=1, fragment_bytes=16 * 2**20, target_bytes=96 * 2**20, full_weight_files=12,
    )  # fmt: skip
    admin.script("GetTableHealth", answer)
    lines = cli("table", "health", "sales.db.orders").out.splitlines()
    assert lines[2:6] == [
        "fragmentation     100% by count: 1 of 1 data file is a fragment, 16 MB or less",
        "small files       40/40: 1 fragment, 0 undersized of 1 file",
        "coarse            none of target size",
        "equality deletes  40/40: 1 file",
    ]
    assert lines[-1] == "evaluation        nothing to do"


def test_a_high_score_of_a_table_of_fragments_is_explained(cli: Cli, admin: FakeAdmin) -> None:
    answer = pb.TableHealth(
        table="sales.db.orders", health_score=100, small_files=40, equality_deletes=40, position_deletes=20,
        files=pb.FileSummary(data_files=42, fragment_files=42, data_bytes=42_000), reason="minor: 42 fragments",
        fragmentation=1, weight=42_000 / (96 * 2**20), fragment_bytes=16 * 2**20, target_bytes=96 * 2**20,
        full_weight_files=12,
    )  # fmt: skip
    admin.script("GetTableHealth", answer)
    lines = cli("table", "health", "sales.db.orders").out.splitlines()
    assert lines[2] == "fragmentation     100% by count: 42 of 42 data files are fragments, 16 MB or less"
    assert lines[7].startswith("weight            below 1%: ")
    assert lines[-1] == (
        "Most files are fragments, but they hold so little data that reading them costs almost nothing: that is "
        "why the score is high."
    )


def test_the_files_of_a_table_are_listed_and_the_rest_is_counted(cli: Cli, admin: FakeAdmin) -> None:
    files = [
        pb.TableFile(
            path="s3://w/a.parquet", content="data", partition="dt=1", records=1000, bytes=2048, sequence_number=4,
            deletes=1,
        ),
        pb.TableFile(path="s3://w/d.parquet", content="equality-deletes", records=2, bytes=512, dangling=True),
    ]  # fmt: skip
    admin.script("ListTableFiles", pb.ListTableFilesResponse(files=files, total=1500, snapshot_id=7))
    result = cli("table", "files", "sales.db.orders", "--limit", "2")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "PARTITION  CONTENT                     RECORDS    SIZE  SEQUENCE  DELETES  PATH\n"
        "dt=1       data                          1,000  2.0 kB         4        1  s3://w/a.parquet\n"
        "-          equality-deletes, dangling        2   512 B         0        -  s3://w/d.parquet\n"
        "and 1,498 more: see --limit\n"
    )
    assert admin.asked("ListTableFiles") == [pb.ListTableFilesRequest(table="sales.db.orders", limit=2)]
    body = json.loads(cli("table", "files", "sales.db.orders", "-o", "json").out)
    assert (body["schema"], body["table"], body["total"], body["snapshot_id"]) == (
        "amoro.files/v1",
        "sales.db.orders",
        1500,
        7,
    )


def test_a_table_without_files_says_so(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTableFiles", pb.ListTableFilesResponse())
    assert cli("table", "files", "sales.db.orders").out == "No files.\n"


def test_the_snapshots_of_a_table_are_listed_with_their_processes(cli: Cli, admin: FakeAdmin) -> None:
    ours = pb.Snapshot(
        snapshot_id=12, parent_snapshot_id=11, sequence_number=3, committed_ms=NOON, operation="replace",
        summary={"amoro.process-id": PROCESS}, refs=["main"],
    )  # fmt: skip
    first = pb.Snapshot(snapshot_id=11, sequence_number=2, committed_ms=NOON - 1000, operation="append")
    admin.script("ListSnapshots", pb.ListSnapshotsResponse(snapshots=[ours, first], total=3))
    assert cli("table", "snapshots", "sales.db.orders").out == (
        "SNAPSHOT  PARENT  SEQUENCE  COMMITTED             OPERATION  REFS  PROCESS\n"
        f"      12      11         3  2026-09-21 14:13:20Z  replace    main  {PROCESS}\n"
        "      11       -         2  2026-09-21 14:13:19Z  append     -     -\n"
        "and 1 more: see --limit\n"
    )
    assert admin.asked("ListSnapshots") == [pb.ListSnapshotsRequest(table="sales.db.orders", limit=20)]
    body = json.loads(cli("table", "snapshots", "sales.db.orders", "-o", "json").out)
    assert body["snapshots"][1] == {
        "snapshot_id": 11,
        "parent_snapshot_id": None,
        "sequence_number": 2,
        "committed_at": "2026-09-21T14:13:19.123Z",
        "operation": "append",
        "summary": {},
        "refs": [],
    }
    admin.script("ListSnapshots", pb.ListSnapshotsResponse())
    assert cli("table", "snapshots", "sales.db.orders").out == "No snapshots.\n"


def test_a_backup_goes_to_an_absolute_path(cli: Cli, admin: FakeAdmin, tmp_path: Path) -> None:
    admin.script("BackupState", pb.BackupStateResponse(path="/b/copy.db", bytes=4096))
    result = cli("state", "backup", str(tmp_path / "copy.db"))
    assert (result.status, result.out, result.err) == (0, "/b/copy.db  4.0 kB\n", "")
    assert json.loads(cli("state", "backup", "copy.db", "-o", "json").out) == {
        "schema": "amoro.backup/v1",
        "path": "/b/copy.db",
        "bytes": 4096,
    }
    assert admin.asked("BackupState") == [
        pb.BackupStateRequest(path=str(tmp_path / "copy.db")),
        pb.BackupStateRequest(path=str(Path.cwd() / "copy.db")),
    ]


def test_the_state_database_is_shown_with_its_schema_and_last_backup(cli: Cli, admin: FakeAdmin) -> None:
    facts = pb.StateFacts(
        path="/h/amoro.db", bytes=4096, log_bytes=1024, free_bytes=2**30, epoch=3, leader_pid=17, python="3.11.7",
        sqlite="3.46.1", backup_ms=NOON, backup_path="/b/copy.db",
        migrations=[pb.AppliedMigration(number=1, name="create_tables"),
                    pb.AppliedMigration(number=2, name="keep_audit", applied_ms=NOON)],
    )  # fmt: skip
    admin.script("GetState", facts)
    assert cli("state", "show").out == (
        "file         /h/amoro.db\n"
        "size         4.0 kB, and 1.0 kB of write-ahead log\n"
        "free         1.0 GB on its disk\n"
        "schema       2, keep audit, since 2026-09-21 14:13:20Z\n"
        "coordinator  pid 17 holds its lock; it was opened 3 times\n"
        "last backup  /b/copy.db, 2026-09-21 14:13:20Z\n"
        "versions     Python 3.11.7, SQLite 3.46.1\n"
    )
    body = json.loads(cli("state", "show", "-o", "json").out)
    assert (body["schema"], body["migrations"][0]["applied_at"]) == ("amoro.state/v1", None)
    admin.script("GetState", pb.StateFacts(path="/h/amoro.db"))
    none = cli("state", "show").out
    assert "schema       none yet\n" in none
    assert "last backup  none that the audit knows\n" in none


def test_a_check_ends_with_1_when_something_is_wrong(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CheckState", pb.CheckStateResponse())
    sound = cli("state", "check")
    assert (sound.status, sound.out, sound.err) == (0, "The state database is sound.\n", "")
    admin.script("CheckState", pb.CheckStateResponse(problems=["row 1 is lost"]))
    damaged = cli("state", "check", "-o", "json")
    assert (damaged.status, json.loads(damaged.out)) == (
        1,
        {"schema": "amoro.check/v1", "ok": False, "problems": ["row 1 is lost"]},
    )
    assert damaged.err.startswith("Error: the state database is damaged [AMORO-1007]\nHint: ")
