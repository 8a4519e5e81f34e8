import json
from pathlib import Path

import pytest

from amoro_cli.launcher import PackageOptions
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin, FakeLauncher
from tests.cli.messages import NOON

CATALOG = pb.Catalog(
    name="sales",
    origin="amoro",
    properties={"type": "rest", "uri": "http://c:8181", "token": "***"},
    allowed_locations=["s3://old/"],
    commits=True,
)
CATALOG_JSON = {
    "name": "sales",
    "origin": "amoro",
    "properties": {"token": "***", "type": "rest", "uri": "http://c:8181"},
    "allowed_locations": ["s3://old/"],
    "commits": True,
    "refusal": "",
    "site_files": [],
}


def test_a_catalog_is_added_from_arguments_and_options(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("AddCatalog", CATALOG)
    result = cli(
        "catalog", "add", "sales", "type=rest", "uri=http://c:8181?a=b", "--property", "token=abc",
        "--allow-location", "s3://old/",
    )  # fmt: skip
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "catalog           sales\n"
        "from              amoro\n"
        "commits           yes\n"
        "property token    ***\n"
        "property type     rest\n"
        "property uri      http://c:8181\n"
        "allowed location  s3://old/\n"
        "Its tables are only observed until they are enabled: amoro table enable TABLE\n"
    )
    assert admin.asked("AddCatalog") == [
        pb.AddCatalogRequest(
            name="sales",
            properties={"type": "rest", "uri": "http://c:8181?a=b", "token": "abc"},
            allowed_locations=["s3://old/"],
        )
    ]
    assert json.loads(cli("catalog", "add", "sales", "-o", "json").out) == {
        "schema": "amoro.catalog/v1",
        **CATALOG_JSON,
    }


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["uri"], "'uri' is not a property"),
        (["=secret"], "A property has no key"),
        (["a=1", "a=2"], "The property 'a' is given twice"),
    ],
)
def test_a_property_that_is_none_is_wrong_usage(cli: Cli, admin: FakeAdmin, pairs: list[str], message: str) -> None:
    result = cli("catalog", "add", "sales", *pairs)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"Error: {message} [AMORO-2001]\nHint: ")
    assert admin.requests == []


def test_catalogs_are_listed_with_why_nothing_is_committed(cli: Cli, admin: FakeAdmin) -> None:
    observed = pb.Catalog(name="h", origin="pyiceberg", refusal="no atomic commits")
    admin.script("ListCatalogs", pb.ListCatalogsResponse(catalogs=[CATALOG, observed]))
    result = cli("catalog", "list")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "CATALOG  FROM       COMMITS                TYPE  URI            WAREHOUSE\n"
        "sales    amoro      yes                    rest  http://c:8181  -\n"
        "h        pyiceberg  no: no atomic commits  -     -              -\n"
    )
    assert json.loads(cli("catalog", "list", "-o", "json").out)["catalogs"][0] == CATALOG_JSON
    assert cli("catalog", "list", "-o", "name").out == "sales\nh\n"


def test_a_catalog_is_shown(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetCatalog", CATALOG)
    assert cli("catalog", "show", "sales").out.startswith("catalog           sales\nfrom              amoro\n")
    assert admin.asked("GetCatalog") == [pb.GetCatalogRequest(name="sales")]
    assert json.loads(cli("catalog", "show", "sales", "-o", "json").out) == {
        "schema": "amoro.catalog/v1",
        **CATALOG_JSON,
    }


def test_a_catalog_is_updated_by_what_is_named(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("UpdateCatalog", CATALOG)
    result = cli(
        "catalog", "update", "sales", "uri=http://c:8181", "--property", "type=rest", "--unset", "token",
        "--allow-location", "s3://old/", "--forbid-location", "s3://older/",
    )  # fmt: skip
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("catalog           sales\n")
    assert admin.asked("UpdateCatalog") == [
        pb.UpdateCatalogRequest(
            name="sales",
            properties={"type": "rest", "uri": "http://c:8181"},
            removed_properties=["token"],
            allowed_locations=["s3://old/"],
            removed_locations=["s3://older/"],
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Nothing to change"),
        (["a=1", "--unset", "a"], "The property 'a' is both given and unset"),
    ],
)
def test_an_update_that_says_nothing_or_two_things_is_wrong_usage(
    cli: Cli, admin: FakeAdmin, arguments: list[str], message: str
) -> None:
    result = cli("catalog", "update", "sales", *arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"Error: {message} [AMORO-2001]\nHint: ")
    assert admin.requests == []


def test_a_catalog_is_removed_and_what_is_forgotten_is_said(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("RemoveCatalog", pb.RemoveCatalogResponse(name="sales", tables=2))
    result = cli("catalog", "remove", "sales")
    assert (result.status, result.out, result.err) == (
        0,
        "Catalog sales is removed; 2 tables forgotten, none touched.\n",
        "",
    )
    assert json.loads(cli("catalog", "remove", "sales", "-o", "json").out) == {
        "schema": "amoro.removed/v1",
        "name": "sales",
        "tables": 2,
    }


def test_no_catalogs_are_said_with_the_way_to_one(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListCatalogs", pb.ListCatalogsResponse())
    assert cli("catalog", "list").out == (
        "No catalogs. Add one with: amoro catalog add NAME key=value …, or in ~/.pyiceberg.yaml\n"
    )


def test_optimizers_are_listed(cli: Cli, admin: FakeAdmin) -> None:
    optimizer = pb.Optimizer(
        optimizer_id="o-1",
        group="default",
        threads=4,
        memory_bytes=2**31,
        registered_ms=NOON,
        touched_ms=NOON + 1000,
        running_tasks=3,
        labels={"version": "0.1.0", "host": "w1"},
    )
    admin.script("ListOptimizers", pb.ListOptimizersResponse(optimizers=[optimizer]))
    result = cli("optimizer", "list")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "OPTIMIZER  GROUP    STATE   THREADS  BUSY  MEMORY  REGISTERED            LAST SEEN             LABELS\n"
        "o-1        default  active        4     3  2.0 GB  2026-09-21 14:13:20Z  2026-09-21 14:13:21Z  "
        "host=w1, version=0.1.0\n"
    )
    assert json.loads(cli("optimizer", "list", "-o", "json").out) == {
        "schema": "amoro.optimizers/v1",
        "optimizers": [
            {
                "optimizer_id": "o-1",
                "group": "default",
                "threads": 4,
                "memory_bytes": 2147483648,
                "registered_at": "2026-09-21T14:13:20.123Z",
                "touched_at": "2026-09-21T14:13:21.123Z",
                "running_tasks": 3,
                "labels": {"host": "w1", "version": "0.1.0"},
                "draining": False,
            }
        ],
        "total": 0,
        "next": None,
    }


def test_no_optimizers_are_said_with_the_way_to_one_and_yaml_has_an_empty_list(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListOptimizers", pb.ListOptimizersResponse())
    assert cli("optimizer", "list").out == "No optimizers are registered. Start one with: amoro optimizer run\n"
    assert cli("optimizer", "list", "--group", "night").out == (
        "No optimizers are registered in the group. Start one with: amoro optimizer run --group night\n"
    )
    assert (
        cli("optimizer", "list", "-o", "yaml").out
        == "schema: amoro.optimizers/v1\noptimizers: []\ntotal: 0\nnext: null\n"
    )


def test_an_optimizer_is_released_and_its_tasks_are_counted(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ReleaseOptimizer", pb.ReleaseOptimizerResponse(optimizer_id="o-1", tasks=1))
    result = cli("optimizer", "release", "o-1")
    assert (result.status, result.err) == (0, "")
    assert result.out == "Optimizer o-1 is released; 1 task planned again.\n"
    assert admin.asked("ReleaseOptimizer") == [pb.ReleaseOptimizerRequest(optimizer_id="o-1")]
    body = json.loads(cli("optimizer", "release", "o-1", "-o", "json").out)
    assert body == {"schema": "amoro.released/v1", "optimizer_id": "o-1", "tasks": 1}


def test_an_optimizer_is_drained_and_shown(cli: Cli, admin: FakeAdmin) -> None:
    draining = pb.Optimizer(
        optimizer_id="o-1", group="default", threads=4, running_tasks=3, memory_bytes=2**31, registered_ms=NOON,
        touched_ms=NOON + 1000, labels={"host": "w1"}, draining=True,
    )  # fmt: skip
    admin.script("DrainOptimizer", draining)
    result = cli("optimizer", "drain", "o-1")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "optimizer   o-1\n"
        "group       default\n"
        "state       draining\n"
        "threads     4, 3 busy\n"
        "memory      2.0 GB\n"
        "registered  2026-09-21 14:13:20Z\n"
        "last seen   2026-09-21 14:13:21Z\n"
        "label host  w1\n"
    )
    assert admin.asked("DrainOptimizer") == [pb.DrainOptimizerRequest(optimizer_id="o-1")]
    body = json.loads(cli("optimizer", "drain", "o-1", "-o", "json").out)
    assert (body["schema"], body["draining"]) == ("amoro.optimizer/v1", True)


def test_configuration_files_are_uploaded_replaced_and_removed(cli: Cli, admin: FakeAdmin, tmp_path: Path) -> None:
    site = tmp_path / "hive-site.xml"
    site.write_text("<configuration/>")
    shown = pb.Catalog(
        name="sales",
        commits=True,
        site_files=[pb.SiteFile(name="hive-site.xml", bytes=2048, properties={"uri": "thrift://a", "s3.region": "eu"})],
    )
    admin.script("AddCatalog", shown)
    admin.script("UpdateCatalog", shown)
    result = cli("catalog", "add", "sales", "--site", str(site))
    assert (result.status, result.err) == (0, "")
    assert "file hive-site.xml  2.0 kB, gives s3.region, uri\n" in result.out
    assert admin.asked("AddCatalog")[0].site_files == {"hive-site.xml": "<configuration/>"}
    assert cli("catalog", "update", "sales", "--site", str(site), "--remove-site", "core-site.xml").status == 0
    assert admin.asked("UpdateCatalog") == [
        pb.UpdateCatalogRequest(
            name="sales", site_files={"hive-site.xml": "<configuration/>"}, removed_site_files=["core-site.xml"]
        )
    ]


def test_a_file_that_cannot_be_read_or_stands_twice_is_wrong_usage(cli: Cli, tmp_path: Path) -> None:
    result = cli("catalog", "add", "sales", "--site", str(tmp_path / "none.xml"))
    said = f"Error: {tmp_path / 'none.xml'} can't be read: No such file or directory [AMORO-2001]\n"
    assert (result.status, result.err.partition("Hint")[0]) == (2, said)
    (tmp_path / "latin.xml").write_bytes(b"\xe9")
    result = cli("catalog", "add", "sales", "--site", str(tmp_path / "latin.xml"))
    assert (result.status, "latin.xml is not UTF-8" in result.err) == (2, True)
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "x.xml").write_text("<configuration/>")
    result = cli("catalog", "add", "sales", "--site", str(tmp_path / "a/x.xml"), "--site", str(tmp_path / "b/x.xml"))
    assert (result.status, "Two files are named x.xml" in result.err) == (2, True)


def test_an_archive_for_executors_is_made_and_its_use_is_told(bare_cli: Cli, launcher: FakeLauncher) -> None:
    result = bare_cli("optimizer", "package", "--file", "a.tar.gz", "--include", "s3fs", "--without-interpreter")
    assert (result.status, result.err) == (0, "")
    assert launcher.calls == [PackageOptions(Path("a.tar.gz"), ("s3fs",), False)]
    assert result.out == (
        "archive         made.tar.gz\n"
        "size            1.5 MB\n"
        "python          3.11\n"
        "executors need  nothing\n"
        "distributions   2\n"
        "Use it with: amoro optimizer run --backend spark --master MASTER --spark-conf spark.archives=made.tar.gz#amoro"
        " --spark-conf spark.pyspark.python=./amoro/bin/python\n"
    )
    assert json.loads(bare_cli("optimizer", "package", "-o", "json").out) == {
        "schema": "amoro.package/v1",
        "path": "made.tar.gz",
        "size_bytes": 1572864,
        "python": "3.11",
        "has_interpreter": True,
        "distributions": [{"name": "amoro", "version": "0.1.0"}, {"name": "pyarrow", "version": "26.0"}],
    }
    assert launcher.calls[-1] == PackageOptions(None, (), True)
