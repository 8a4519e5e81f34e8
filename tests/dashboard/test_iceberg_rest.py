"""Iceberg's REST protocol over a catalog of our own: clients, rights, bad requests, and how soon a commit is seen."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchTableError
from pyiceberg.types import IntegerType

from amoro_core.model.principals import Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.web.rest.iceberg import _ENDPOINTS
from tests.acceptance.processes import wait_until
from tests.dashboard.served import Answer, Served, serving

LAKE = "/iceberg/v1/lake"
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"]})
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory: Path = tmp_path_factory.mktemp("lake")
    with serving(directory / "home") as made:
        for name in ("lake", "other"):
            properties = (("type", "internal"), ("warehouse", f"file://{directory}/{name}"))
            made.coordinator.catalogs.add(CatalogConfig(name, properties))
        yield made


def client(served: Served, prefix: str = "/iceberg") -> RestCatalog:
    return RestCatalog("lake", uri=f"http://127.0.0.1:{served.port}{prefix}", warehouse="lake", token=served.admin)


def error(answer: Answer) -> tuple[int, str, str]:
    told = answer.document["error"]
    assert told["code"] == answer.status
    return answer.status, told["type"], told["message"]


def test_pyiceberg_works_on_it_and_a_commit_is_seen_within_seconds(lake: Served) -> None:
    catalog = client(lake)
    catalog.create_namespace("shop", {"owner": "ann"})
    catalog.update_namespace_properties("shop", {"owner"}, {"a": "b"})
    assert catalog.load_namespace_properties("shop") == {"a": "b"}
    table = catalog.create_table("shop.orders", ROWS.schema, properties={"format-version": "2"})
    for _ in range(3):
        table.append(ROWS)
    with table.update_schema() as update:
        update.add_column("n", IntegerType())
    assert client(lake, "/api/iceberg/rest").load_table("shop.orders").scan().to_arrow().num_rows == 6
    with catalog.create_table_transaction("shop.staged", ROWS.schema) as transaction:
        transaction.append(ROWS)
    assert catalog.load_table("shop.staged").scan().to_arrow().num_rows == 2

    newest = catalog.load_table("shop.orders").metadata_location

    def is_seen() -> bool:
        known = lake.coordinator.tables.list_tables()
        return any(one.evaluated_at and one.metadata_location == newest for one in known)

    wait_until(is_seen, "a look", 20)
    stale = catalog.load_table("shop.orders")
    table.append(ROWS)
    stale.append(ROWS)  # pyiceberg refreshes after 409, and tries again
    assert catalog.load_table("shop.orders").scan().to_arrow().num_rows == 10

    catalog.rename_table("shop.staged", "shop.done")
    place = Path(catalog.load_table("shop.done").metadata_location.removeprefix("file://"))
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("shop")
    catalog.purge_table("shop.done")
    assert place.exists()  # purging is accepted, and deletes nothing
    with pytest.raises(NoSuchTableError):
        catalog.load_table("shop.done")
    catalog.register_table("shop.back", f"file://{place}")
    assert catalog.load_table("shop.back").scan().to_arrow().num_rows == 2


def test_what_is_offered_is_advertised_and_unchanged_tables_are_not_sent_again(lake: Served) -> None:
    config = lake.ask("/iceberg/v1/config?warehouse=lake").document
    assert config["overrides"] == {"prefix": "lake"}
    assert {one.replace(" /v1/{prefix}", " ") for one in config["endpoints"]} == {
        *(" ".join(one) for one in _ENDPOINTS), "POST /namespaces/{namespace}/tables/{table}/metrics",
    }  # fmt: skip
    assert error(lake.ask("/iceberg/v1/config"))[0] == 400
    assert "lake, other" in error(lake.ask("/iceberg/v1/config?warehouse=x"))[2]
    lake.ask(f"{LAKE}/namespaces", "POST", body={"namespace": ["a.b", "c/d"]})
    space = f"{LAKE}/namespaces/a.b%1Fc%2Fd"
    for number in range(3):
        made = lake.ask(f"{space}/tables", "POST", body={"name": f"t{number}", "schema": SCHEMA})
        assert made.status == 200, made.body
    assert lake.ask(space, "HEAD").status == lake.ask(f"{space}/tables/t1", "HEAD").status == 204
    assert lake.ask(f"{space}/tables/none", "HEAD").status == 404
    first = lake.ask(f"{space}/tables?pageToken=&pageSize=2").document
    rest = lake.ask(f"{space}/tables?pageSize=2&pageToken={first['next-page-token']}").document
    names = [one["name"] for page in (first, rest) for one in page["identifiers"]]
    assert (names, rest["next-page-token"]) == (["t0", "t1", "t2"], None)
    foreign = lake.ask(f"{LAKE}/namespaces?pageToken={first['next-page-token']}")
    assert error(foreign)[:2] == (400, "BadRequestException")
    assert lake.ask(f"{LAKE}/namespaces?parent=a.b").document["namespaces"] == [["a.b", "c/d"]]

    loaded = lake.ask(f"{space}/tables/t0")
    tag = {"If-None-Match": loaded.headers["etag"]}
    assert lake.ask(f"{space}/tables/t0", headers=tag).status == 304
    assert lake.ask(f"{space}/tables/t0?snapshots=refs", headers=tag).status == 200
    snapshots = [{"snapshot-id": at, "sequence-number": at, "timestamp-ms": at, "manifest-list": "x"} for at in (1, 2)]
    updates = [{"action": "add-snapshot", "snapshot": one} for one in snapshots]
    updates.append({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 2})
    done = lake.ask(f"{space}/tables/t0", "POST", body={"requirements": [], "updates": updates})
    assert lake.ask(f"{space}/tables/t0", headers=tag).headers["etag"] == done.headers["etag"] != tag["If-None-Match"]
    assert lake.ask(f"{space}/tables/t0?snapshots=refs").document["metadata"]["snapshots"] == snapshots[1:]
    path = "/api/iceberg/rest/v1/lake/namespaces/x/tables/t/metrics"
    assert lake.ask(path, "POST", body={"report-type": "commit-report"}).status == 204


def test_a_transaction_changes_all_tables_or_none(lake: Served) -> None:
    lake.ask(f"{LAKE}/namespaces", "POST", body={"namespace": ["pair"]})
    for name in "ab":
        lake.ask(f"{LAKE}/namespaces/pair/tables", "POST", body={"name": name, "schema": SCHEMA})

    def change(name: str, **more: object) -> dict[str, Any]:
        updates = [{"action": "set-properties", "updates": {"k": "v"}}]
        return {"identifier": {"namespace": ["pair"], "name": name}, "requirements": [], "updates": updates, **more}

    def kept() -> list[str | None]:
        shown = (lake.ask(f"{LAKE}/namespaces/pair/tables/{name}").document for name in "ab")
        return [one["metadata"]["properties"].get("k") for one in shown]

    path = f"{LAKE}/transactions/commit"
    wrong = change("b", requirements=[{"type": "assert-current-schema-id", "current-schema-id": 9}])
    told = error(lake.ask(path, "POST", body={"table-changes": [change("a"), wrong]}))
    assert told == (409, "CommitFailedException", "Requirement failed: current schema changed: expected id 9 != 0")
    assert error(lake.ask(path, "POST", body={"table-changes": [change("a"), change("a")]}))[0] == 400
    assert kept() == [None, None]
    assert lake.ask(path, "POST", body={"table-changes": [change("a"), change("b")]}).status == 204
    assert kept() == ["v", "v"]


NEW, ELSEWHERE = {"name": "u", "schema": SCHEMA}, {"name": "u", "schema": SCHEMA, "location": "file:///etc"}
BAD = (
    ("POST", "/namespaces", {"namespace": ["a\0b"]}, 400, "BadRequestException"),
    ("POST", "/namespaces", {"namespace": []}, 400, "BadRequestException"),
    ("GET", "/namespaces/a%1F%1Fb", None, 400, "BadRequestException"),
    ("GET", "/namespaces/none/tables/t", None, 404, "NoSuchTableException"),
    ("POST", "/namespaces/none/tables", {"name": "t", "schema": SCHEMA}, 404, "NoSuchNamespaceException"),
    ("POST", "/namespaces/bad/tables", {"name": "t", "schema": SCHEMA}, 409, "AlreadyExistsException"),
    ("POST", "/namespaces/bad/tables", {"name": "u"}, 400, "BadRequestException"),
    ("POST", "/namespaces/bad/tables", ELSEWHERE, 400, "BadRequestException"),
    ("POST", "/namespaces/bad/tables/t", {"updates": [{"action": "fly"}]}, 400, "BadRequestException"),
    ("POST", "/namespaces/bad/tables/t", b"{", 400, "BadRequestException"),
    ("POST", "/namespaces/bad/tables/t", b" " * (17 * 1024 * 1024), 400, "BadRequestException"),
    ("POST", "/namespaces/bad/tables/t", {"requirements": [{"type": "assert-create"}]}, 409, "CommitFailedException"),
    ("POST", "/namespaces/bad/register", {**NEW, "metadata-location": "file:///no"}, 400, "BadRequestException"),
    ("POST", "/tables/rename", {"source": {}, "destination": {}}, 400, "BadRequestException"),
    ("DELETE", "/namespaces/bad", None, 409, "NamespaceNotEmptyException"),
    ("DELETE", "/namespaces/bad/tables/u?purgeRequested=true", None, 404, "NoSuchTableException"),
    ("PUT", "/namespaces/bad/tables/t", {}, 405, "BadRequestException"),
)


def test_a_bad_request_changes_nothing(lake: Served) -> None:
    lake.ask(f"{LAKE}/namespaces", "POST", body={"namespace": ["bad"]})
    lake.ask(f"{LAKE}/namespaces/bad/tables", "POST", body={"name": "t", "schema": SCHEMA})
    shown = lake.ask(f"{LAKE}/namespaces/bad/tables/t").body
    for method, path, body, status, kind in BAD:
        told = error(lake.ask(f"{LAKE}{path}", method, body=body))
        assert told[:2] == (status, kind), (method, path, body, told)
    assert error(lake.ask("/iceberg/v1/none/namespaces"))[0] == 404
    assert lake.ask(f"{LAKE}/namespaces/bad/tables/t").body == shown
    assert lake.ask(f"{LAKE}/namespaces/bad/tables").document["identifiers"] == [{"namespace": ["bad"], "name": "t"}]


def test_who_may_do_what_and_the_audit_has_it(lake: Served) -> None:
    tokens = {"nobody": "", "garbage": "x", "admin": lake.admin}
    for who, pattern in (("viewer", ""), ("elsewhere", "other.**"), ("operator", "lake.mine.*")):
        role = Role.OPERATOR if pattern else Role.VIEWER
        _, tokens[who] = lake.coordinator.tokens.create(f"{who}-of-lake", role, pattern)
    lake.ask(f"{LAKE}/namespaces", "POST", body={"namespace": ["mine"]})
    space, body = f"{LAKE}/namespaces/mine", {"name": "t", "schema": SCHEMA}
    names = {"source": {"namespace": ["mine"], "name": "t"}, "destination": {"namespace": ["mine"], "name": "t"}}
    change = {"table-changes": [{"identifier": names["source"], "updates": []}]}
    lake.ask(f"{space}/tables", "POST", body=body)
    sent = {"tables": body, "register": {"name": "t"}, "rename": names, "commit": change}
    sent["namespaces"] = {"namespace": ["mine"]}
    for (method, path), (_, operation, _) in _ENDPOINTS.items():
        target = LAKE + path.format(namespace="mine", table="none" if method == "DELETE" else "t")
        asked = sent.get(path.rpartition("/")[2], {}) if method == "POST" else None
        refused = {"nobody": 401, "garbage": 401, **({"viewer": 403, "elsewhere": 403} if operation else {})}
        for who, token in tokens.items():
            status = lake.ask(target, method, token=token, body=asked).status
            assert (status if status in (401, 403) else None) == refused.get(who), (who, method, path, status)
    away = {**names, "destination": {"namespace": ["pair"], "name": "t"}}
    assert error(lake.ask(f"{LAKE}/tables/rename", "POST", token=tokens["operator"], body=away))[0] == 403
    other = f"{LAKE}/namespaces/pair/tables"  # names in the body do not widen a pattern
    both = {**body, **names, "table-changes": [], "namespace": ["mine"]}
    assert error(lake.ask(other, "POST", token=tokens["operator"], body=both))[0] == 403
    events = lake.ask("/api/v1/audit?operation=CommitTable&limit=500").document["items"]
    assert {(one["object"], one["outcome"]) for one in events} >= {("lake.mine.t", "done"), ("lake.mine.t", "refused")}
    assert json.dumps(events).count(lake.admin) == 0
