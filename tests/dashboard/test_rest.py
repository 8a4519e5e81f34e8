"""REST over a real coordinator: answers, pages, tags, keys, what lasts; its description, and a client made of it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.bootstrap.coordinator_app import embedded_optimizer
from amoro_core.errors import NotAllowed, TableNotFound
from amoro_core.model import metrics
from amoro_core.model.principals import Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.protocol.operations import ROUTES, Route
from amoro_core.services.catalogs import CatalogChange
from amoro_core.services.groups import GroupChange
from amoro_core.store import catalogs, table_stats
from amoro_core.web.rest.openapi import description
from amoro_core.web.rest.requests import PREFIX
from tests.acceptance.processes import wait_until
from tests.acceptance.tables import config_of
from tests.dashboard.conftest import client_over
from tests.dashboard.fuzzing import furnish, fuzzed_once
from tests.dashboard.served import Answer, Served, serving
from tests.engine import writer
from tests.engine.builders import SCHEMA, row


@pytest.fixture(scope="module")
def table(served: Served, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with a few small files, in the catalog lake."""
    return furnish(served, tmp_path_factory.mktemp("lake"))


def told(answer: Answer) -> tuple[int, object, object]:
    """Status, code and value of a problem."""
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.document["status"] == answer.status
    assert answer.document["hint"]
    return answer.status, answer.document["code"], answer.document.get("value")


def test_the_description_is_openapi_and_served_to_everybody(served: Served) -> None:
    assert served.ask(f"{PREFIX}/openapi.json", token="").document == description()
    from openapi_spec_validator import validate

    validate(description())


def test_a_path_method_or_body_that_is_not_there_is_told_what_is(served: Served) -> None:
    other = served.ask(f"{PREFIX}/groups", "POST", body=b"name=x", headers={"Content-Type": "text/plain"})
    assert told(other) == (415, "AMORO-2005", "text/plain")
    assert served.ask(f"{PREFIX}/groups", "POST", body=b" " * (8 * 1024 * 1024 + 1)).status == 413
    assert served.ask(f"{PREFIX}/groups", body={"name": "x"}).status == 400
    assert told(served.ask(f"{PREFIX}/tabels")) == (404, "AMORO-3000", None)
    answer = served.ask(f"{PREFIX}/tables", "PUT", body={})
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")


@pytest.mark.usefixtures("table")
def test_a_name_may_hold_a_slash_and_any_letter(served: Served) -> None:
    answer = served.ask(f"{PREFIX}/tables/{quote('lake.d/b.ä', safe='')}")
    assert (answer.status, answer.document["code"]) == (404, "AMORO-3002")
    assert "lake.d/b.ä" in answer.document["detail"]
    assert served.ask(f"{PREFIX}/tables/%FF").status == 400
    assert told(served.ask(f"{PREFIX}/groups/a%0Ab")) == (404, "AMORO-3005", None)


REMOVED = {"eventName": "s3:ObjectRemoved:Delete", "s3": {"bucket": {"name": "b"}, "object": {"key": "a"}}}


def events(table: str, catalog: SqlCatalog, *names: str) -> dict[str, Any]:
    """Bodies of each shape; those of object stores are about the tables of these names, in the order of the shapes."""
    paths = [catalog.load_table(name).metadata_location.removeprefix("file://") for name in names]
    cloud = {"specversion": "1.0", "id": "1", "source": "flink/orders", "type": "amoro.table.changed"}
    other = {"eventName": "s3:ObjectCreated:Put", "s3": {"bucket": {"name": ""}, "object": {"key": "a/data/b.parquet"}}}
    first, second = ({"bucket": {"name": ""}, "object": {"key": path}} for path in (quote(paths[0], safe=""), paths[1]))
    return {
        "application/cloudevents+json": {**cloud, "subject": table},
        "application/cloudevents-batch+json": [{**cloud, "subject": "elsewhere", "data": {"table": table}}] * 3,
        "application/json": {"Records": [{**other, "s3": first}, {**REMOVED, "s3": first}, other]},
        "application/json; charset=utf-8": {"detail-type": "Object Created", "source": "aws.s3", "detail": second},
    }


def test_events_of_each_shape_lead_to_plans_and_refused_ones_to_no_look(tmp_path: Path) -> None:
    catalog = writer.make_catalog(tmp_path, "told")
    on, names = {"self-optimizing.enabled": "true"}, ("db.a", "db.b", "db.c+1", "no.d")
    made = {name: writer.make_table(catalog, name, SCHEMA, properties=on) for name in names}
    with serving(tmp_path / "home", watch=True) as served:
        services = served.coordinator.services
        served.coordinator.catalogs.add(config_of(catalog))
        known = {name: services.tables.ensure(parse_table(f"told.{name}")) for name in made}
        wait_until(lambda: not services.discovery.is_due("told"), "the catalog is compared, and not again soon")
        for one in known.values():
            assert services.tables.refresh(one.table_id)
        for number in range(48):
            writer.append([*made.values()][number % 4], [row(number)])
        token = services.tokens.create("teller", Role.OPERATOR, "told.db.*")[1]

        def tell(body: object, kind: str = "application/json") -> Answer:
            headers = {"Content-Type": kind}
            return served.ask(f"{PREFIX}/events", "POST", token=token, body=body, headers=headers)

        cloud = {"specversion": "1.0", "source": "s", "type": "t", "subject": "told.no.d"}
        answer = tell([{**cloud, "id": str(number)} for number in range(1000)])
        assert (answer.status, answer.document["accepted"], answer.document["refused"]) == (202, 0, 1000)
        (problem,) = answer.document["problems"]
        assert (problem["code"], problem["value"]) == (NotAllowed.code, "told.no.d")
        assert "acts on told.db.* alone" in problem["message"]
        answers = [tell(body, kind).document for kind, body in events("told.db.a", catalog, "db.b", "db.c+1").items()]
        assert [(one["accepted"], one["ignored"]) for one in answers] == [(1, 0), (3, 0), (1, 2), (1, 0)]
        unknown = tell({**cloud, "id": "0", "subject": "told.db.none"}).document
        assert [(one["result"], one["code"]) for one in unknown["problems"]] == [("unknown", TableNotFound.code)]
        bucket = {"bucket": {"name": "b"}, "object": {"key": made["db.a"].metadata_location.removeprefix("file://")}}
        (problem,) = tell({"detail-type": "Object Created", "detail": bucket}).document["problems"]
        assert (problem["result"], problem["value"][:6]) == ("unknown", "s3://b")
        for name in ("db.a", "db.b", "db.c+1"):
            wait_until(partial(services.optimizing.list_processes, known[name].table_id), f"{name} is planned", 10)
        assert services.tables.find_stored(parse_table("told.no.d")).snapshot_id is None
        counted = {(one.name, *one.labels): one.value for one in services.meters.samples()}
        assert counted["amoro_changes_seen_total", "event"] == 36
        assert counted["amoro_changes_seen_total", "look"] == 0
        by = {result: counted["amoro_events_total", result] for result in metrics.EVENT_RESULTS}
        assert by == {"accepted": 6, "ignored": 2, "unknown": 2, "refused": 1000, "limited": 0}
        keep = {"name": "kept", "match": "told.db.*", "exclude": ["told.db.a"], "set": {"snapshot.keep.duration": "1h"}}
        services.policies.apply(json.dumps([keep, {**keep, "name": "none", "match": "x.y.z"}]), "ann", dry_run=False)
        counted = {one.labels: one.value for one in services.meters.samples() if one.name == "amoro_policy_tables"}
        assert counted == {("kept",): 2.0, ("none",): 0.0}


def test_a_body_of_events_that_can_t_be_read_is_refused_as_a_whole(served: Served) -> None:
    def tell(body: object, **more: Any) -> Answer:
        return served.ask(f"{PREFIX}/events", "POST", body=body, **more)

    cloud = {"specversion": "1.0", "id": "7", "source": "s", "type": "t", "subject": "lake.db.none"}
    assert told(tell(b"{"))[:2] == (400, "AMORO-2005")
    assert told(tell([cloud, {**cloud, "subject": 1}])) == (400, "AMORO-2005", "7")
    assert told(tell([cloud, {**cloud, "specversion": "0.3"}]))[:2] == (400, "AMORO-2005")
    assert told(tell(b" " * (1 << 21)))[:2] == (413, "AMORO-2005")
    assert told(tell([cloud] * 1001))[:2] == (413, "AMORO-2005")
    assert told(tell({"Records": [REMOVED] * 1001}))[:2] == (413, "AMORO-2005")
    assert told(tell(cloud, headers={"Content-Type": "text/plain"}))[:2] == (415, "AMORO-2005")
    assert told(tell(cloud, token="amo_forged"))[:2] == (401, "AMORO-4002")
    viewer = served.coordinator.tokens.create("looks-only", Role.VIEWER)[1]
    assert told(tell(cloud, token=viewer))[:2] == (403, NotAllowed.code)


def test_pages_of_a_list_hold_each_item_once_and_link_to_the_next(served: Served) -> None:
    names = sorted(f"paged{number}" for number in range(5))
    for name in names:
        assert served.ask(f"{PREFIX}/groups", "POST", body={"name": name}).status == 201
    found, path, pages = [], f"{PREFIX}/groups?limit=2", 0
    while path:
        page = served.ask(path)
        assert page.document["total_is_exact"] is True
        found += [item["name"] for item in page.document["items"]]
        link = page.headers.get("link", "")
        assert bool(link) == (page.document["next"] is not None)
        path = link.partition(">")[0].removeprefix("<")
        pages += 1
    assert sorted(found) == sorted({*found}) == sorted([*names, "default"])
    assert pages == 3 == -(-page.document["total"] // 2)


def test_a_cursor_of_another_list_is_refused(served: Served) -> None:
    for name in ("cursor1", "cursor2"):
        served.ask(f"{PREFIX}/groups", "POST", body={"name": name})
    cursor = served.ask(f"{PREFIX}/groups?limit=1").document["next"]
    assert served.ask(f"{PREFIX}/groups?limit=2&after={cursor}").status == 200
    for path in (f"/tables?after={cursor}", f"/catalogs?after={cursor}", f"/groups?after={cursor[:-2]}AA"):
        assert told(served.ask(PREFIX + path)) == (400, "AMORO-2005", path.partition("after=")[2])


def test_what_did_not_change_is_not_sent_again(served: Served) -> None:
    first = served.ask(f"{PREFIX}/groups/default")
    again = served.ask(f"{PREFIX}/groups/default", headers={"If-None-Match": f'"x", W/{first.headers["etag"]}'})
    assert (again.status, again.body, again.headers["etag"]) == (304, "", first.headers["etag"])
    other = served.ask(f"{PREFIX}/groups/default", headers={"If-None-Match": '"x"'})
    assert (other.status, other.document) == (200, first.document)


def test_a_change_needs_the_tag_of_what_it_changes(served: Served) -> None:
    served.ask(f"{PREFIX}/groups", "POST", body={"name": "tagged"})
    path = f"{PREFIX}/groups/tagged"
    tag = served.ask(path).headers["etag"]
    change = {"properties": {"a": "1"}}
    assert told(served.ask(path, "PATCH", body=change))[0] == 428
    changed = served.ask(path, "PATCH", body=change, headers={"If-Match": tag})
    assert (changed.status, changed.document["properties"]) == (200, {"a": "1"})
    assert told(served.ask(path, "PATCH", body={"properties": {"a": "2"}}, headers={"If-Match": tag}))[0] == 412
    assert served.ask(path).document["properties"] == {"a": "1"}
    assert told(served.ask(path, "PATCH", body=change, headers={"If-Match": "tag"})) == (400, "AMORO-2005", "tag")
    assert served.ask(f"{PREFIX}/groups/none", "PATCH", body=change, headers={"If-Match": "*"}).status == 404


@pytest.mark.parametrize("kind", ["groups", "catalogs", "tables"])
def test_what_is_changed_by_another_way_after_the_tag_was_given_is_told(served: Served, table: str, kind: str) -> None:
    """Each update is overtaken at the last moment by one without a tag, as over gRPC."""
    services, path = served.coordinator.services, f"{PREFIX}/{kind}/raced"
    key, body = "properties", {"properties": {"mine": "1"}}
    if kind == "groups":
        served.ask(f"{PREFIX}/groups", "POST", body={"name": "raced"})
        first = partial(services.groups.update, "raced", GroupChange(properties={"theirs": "1"}))
    elif kind == "catalogs":
        config = CatalogConfig("raced", (("type", "in-memory"),))
        served.coordinator._store.write(lambda db: catalogs.add(db, config))
        first = partial(services.catalogs.update, "raced", CatalogChange({"theirs": "1"}))
    else:
        path, key, body = f"{PREFIX}/tables/{table}", "enabled", {"enabled": False}
        served.ask(path, "PATCH", body=body, headers={"If-Match": "*"})
        first = partial(services.tables.set_enabled, parse_table(table), True)
    tag, overtaken = served.ask(path).headers["etag"], [first]

    def late(method: str) -> None:
        if overtaken and method.startswith(("Update", "Set")):
            overtaken.pop()()

    with ThreadPoolExecutor(2) as pool:
        client, asked = client_over(services, pool, served.admin)
        asked.before = late
        answer = client.patch(path, json=body, headers={"If-Match": tag})
    assert (overtaken, answer.status_code) == ([], 412)
    kept = served.ask(path).document[key]
    assert kept is True if kind == "tables" else ("mine" not in kept and kept["theirs"] == "1")
    again = served.ask(path, "PATCH", body=body, headers={"If-Match": served.ask(path).headers["etag"]})
    assert again.status == 200
    if kind == "catalogs":
        served.coordinator._store.write(lambda db: catalogs.remove(db, "raced"))
    elif kind == "tables":
        first()


def path_of(route: Route, table: str, **names: str) -> str:
    """The path of the route to these things, and else to the table, the catalog lake or the group default."""
    names |= {"table": table, "name": "lake" if route.segments[0] == "catalogs" else "default"}
    return "/".join(names[part[1:-1]] if part.startswith("{") else part for part in route.segments)


@pytest.mark.parametrize("route", [one for one in ROUTES if one.method in ("PATCH", "PUT")], ids=lambda one: one.path)
def test_every_change_under_a_tag_compares_it(served: Served, table: str, route: Route) -> None:
    """An operation that did not ask for the condition would pass over the tag."""
    body = {"enabled": False} if "enabled" in route.required else {"properties": {}}
    tag = {"If-Match": '"other.tag"'}
    assert told(served.ask(f"{PREFIX}/{path_of(route, table)}", route.method, body=body, headers=tag))[0] == 412


def test_a_key_is_its_senders_own_and_lets_a_request_be_done_once_unless_it_was_refused(served: Served) -> None:
    key = {"Idempotency-Key": "one"}
    first = served.ask(f"{PREFIX}/groups", "POST", body={"name": "keyed"}, headers=key)
    again = served.ask(f"{PREFIX}/groups", "POST", body={"name": "keyed"}, headers=key)
    assert (first.status, again.status, again.body) == (201, 201, first.body)
    assert served.ask(f"{PREFIX}/groups", "POST", body={"name": "keyed"}).status == 409
    other = served.ask(f"{PREFIX}/groups", "POST", body={"name": "keyed2"}, headers=key)
    assert told(other) == (422, "AMORO-2005", None)
    assert served.ask(f"{PREFIX}/groups/keyed2").status == 404
    _, other = served.coordinator.tokens.create("another-admin", Role.ADMIN)
    key = {"Idempotency-Key": "shared"}
    assert served.ask(f"{PREFIX}/groups", "POST", body={"name": "own1"}, headers=key).status == 201
    assert served.ask(f"{PREFIX}/groups", "POST", token=other, body={"name": "own2"}, headers=key).status == 201
    key = {"Idempotency-Key": "refused"}
    assert served.ask(f"{PREFIX}/groups", "POST", body={"name": "a b"}, headers=key).status == 400
    assert served.ask(f"{PREFIX}/groups", "POST", body={"name": "mended"}, headers=key).status == 201


def test_an_answer_with_a_secret_is_kept_nowhere(served: Served) -> None:
    key = {"Idempotency-Key": "secret"}
    made = served.ask(f"{PREFIX}/tokens", "POST", body={"name": "kept", "kind": "viewer"}, headers=key)
    assert made.status == 201
    again = served.ask(f"{PREFIX}/tokens", "POST", body={"name": "kept", "kind": "viewer"}, headers=key)
    assert (again.status, made.document["token"] in again.body) == (409, False)
    home = served.coordinator.home
    assert all(made.document["token"].encode() not in path.read_bytes() for path in home.glob("amoro.db*"))


def test_optimizing_is_answered_with_where_it_is_and_waited_for_on_request(served: Served, table: str) -> None:
    plan = served.ask(f"{PREFIX}/tables/{table}/plan", "POST", body={}).document
    assert (plan["schema"], plan["type"]) == ("amoro.plan/v1", "minor")
    begun = served.ask(f"{PREFIX}/tables/{table}/optimize?wait=100ms", "POST", body={})
    assert (begun.status, begun.document["outcome"]) == (202, "planned")
    location = begun.headers["location"]
    assert location == f"{PREFIX}/processes/{begun.document['process_id']}"
    process = served.ask(location).document
    assert (process["schema"], process["status"], process["table"]) == ("amoro.process/v1", "running", table)
    assert [item["status"] for item in served.ask(f"{location}/tasks").document["items"]] == ["planned"]
    with embedded_optimizer(served.coordinator, 1, 512 * 1024 * 1024):
        ended = served.ask(f"{location}?wait=20s").document
    assert (ended["status"], ended["receipt"]["rows_before"]) == ("success", ended["receipt"]["rows_after"])
    shown = served.ask(f"{PREFIX}/tables/{table}/processes").document["items"]
    assert [item["process_id"] for item in shown] == [ended["process_id"]]


@pytest.mark.parametrize("route", [route for route in ROUTES if route.method == "GET"], ids=lambda route: route.path)
def test_what_is_answered_fits_its_description(served: Served, table: str, route: Route) -> None:
    if not (processes := served.ask(f"{PREFIX}/processes").document["items"]):
        processes = [served.ask(f"{PREFIX}/tables/{table}/optimize", "POST", body={}).document]
    names = {"process_id": processes[0]["process_id"], "catalog": "lake", "id": "nobody", "optimizer_id": "nobody"}
    if "plan_id" in route.from_path:
        kept = served.ask(f"{PREFIX}/tables/{table}/plan", "POST", body={"keep": True})
        names["plan_id"] = kept.document["plan_id"]
    path = path_of(route, table, **names)
    if route.required:
        shown = served.ask(f"{PREFIX}/tables/{table}/snapshots").document["items"]
        after, before = (one["snapshot_id"] for one in shown[:2])
        assert told(served.ask(f"{PREFIX}/{path}?after={after}")) == (400, "AMORO-2005", "before")
        path += f"?before={before}&after={after}"
    answer = served.ask(f"{PREFIX}/{path}")
    described = description()
    responses = described["paths"][f"{PREFIX}{route.path}"]["get"]["responses"]
    (content,) = responses[str(answer.status)]["content"].values()
    schema = {**content["schema"], "components": described["components"]}
    Draft202012Validator(schema).validate(answer.document)
    refused = dict.fromkeys(("GetOptimizer", "GetInstance", "GetInstanceLogs", "ShowTrash", "ListNamespaces"), 404)
    refused["ShowClustering"] = 422
    assert answer.status == refused.get(route.operation, 200), answer.body


EQ = {"type": "eq", "term": "id", "value": "(hash-1)"}
RANGE = {"type": "gt-eq", "term": "value", "value": "(hash-2)"}
PATH = "/iceberg/v1/cat/namespaces/db/tables/t/metrics"


def report(expression: Any) -> dict[str, Any]:
    return {"report-type": "scan-report", "table-name": "db.t", "snapshot-id": 1, "filter": expression, "metrics": {}}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory: Path = tmp_path_factory.mktemp("lake")
    catalog = writer.make_catalog(directory)
    writer.make_table(catalog, "db.t", SCHEMA)
    with serving(directory / "home") as made:
        made.coordinator.catalogs.add(config_of(catalog))
        yield made


def test_what_every_row_has_to_fulfil_is_learned_from_a_report(lake: Served) -> None:
    for expression in (
        EQ,
        {"type": "and", "left": EQ, "right": RANGE},
        {"type": "in", "term": "id", "values": [1]},
        {"type": "starts-with", "term": "value", "value": "a"},
        True,
        {"type": "or", "left": EQ, "right": RANGE},
        {"type": "not", "child": EQ},
        {**EQ, "term": {"type": "transform", "transform": "bucket[4]", "term": "id"}},
    ):
        assert lake.ask(PATH, "POST", body=report(expression)).status == 204
    assert lake.ask(PATH, "POST", body={"report-type": "commit-report"}).status == 204
    store = lake.coordinator._store
    (table,) = lake.coordinator.tables.list_tables()
    kept = store.read(lambda db: table_stats.list_scans(db, table.table_id))
    learned = {" and ".join(f"{one.column} {one.operator.value}" for one in scan.filters): scan.scans for scan in kept}
    assert learned == {"": 4, "id eq": 1, "id eq and value range": 1, "id in": 1, "value prefix": 1}
    assert len(kept) == 5


def test_reports_are_for_operators_and_wrong_ones_are_told(lake: Served) -> None:
    _, viewer = lake.coordinator.tokens.create("reader", Role.VIEWER)
    assert lake.ask(PATH, "POST", token=viewer, body=report(EQ)).status == 403
    assert lake.ask(PATH, "POST", token="amo_wrong", body=report(EQ)).status == 401
    assert lake.ask(PATH, "POST", body=b"{").status == 400
    deep: Any = EQ
    for _ in range(150):
        deep = {"type": "and", "left": EQ, "right": deep}
    for wrong in ("x", 7, {"left": EQ}, {"type": "and", "left": EQ}, deep):
        answer = lake.ask(PATH, "POST", body=report(wrong))
        assert (answer.status, "the report is malformed" in answer.body) == (400, True)
    assert lake.ask(PATH, "POST", body=[]).status == 400
    assert lake.ask(PATH.replace("tables/t", "tables/u"), "POST", body=report(EQ)).status == 404


#: In an environment of its own, which the Makefile makes.
GENERATOR = Path(__file__).parents[2] / "build" / "client-generator" / "bin" / "openapi-python-client"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a package amoro_client."""
    if not GENERATOR.exists() and os.environ.get("CI") != "true":
        pytest.skip("openapi-python-client is not there: make build/client-generator/.installed")
    directory: Path = tmp_path_factory.mktemp("generated")
    (directory / "openapi.json").write_text(json.dumps(description()))
    tools = Path(sys.executable).parent
    command = [str(GENERATOR), "generate", "--path", "openapi.json", "--meta", "none"]
    ended = subprocess.run(
        [*command, "--output-path", "amoro_client"],
        cwd=directory,
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    assert "WARNING" not in ended.stdout + ended.stderr, "a route that the generator can't read is left out"
    return directory


def test_a_generated_client_does_the_main_job(generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(generated))

    def ask(group: str, route: str, *arguments: str, **more: Any) -> Any:
        module = importlib.import_module(f"amoro_client.api.{group}.{route}")
        return module.sync(*arguments, client=client, **more)

    models = importlib.import_module("amoro_client.models")
    made = importlib.import_module("amoro_client")
    with (
        serving(tmp_path / "home") as served,
        made.AuthenticatedClient(base_url=f"http://127.0.0.1:{served.port}", token=served.admin) as client,
    ):
        furnish(served, tmp_path / "lake")
        (table,) = ask("selection", "select_tables", names=["lake.*"]).tables
        plan = ask("tables", "plan_table", table, body=models.PlanTableBody())
        assert (plan.type_, plan.tasks) == ("minor", 1)
        with embedded_optimizer(served.coordinator, 1, 512 * 1024 * 1024):
            done = ask("tables", "optimize_table", table, body=models.OptimizeTableBody(), wait="60s")
        assert done.outcome == "success"
        shown = ask("processes", "get_process", done.process_id)
        assert shown.receipt.rows_before == shown.receipt.rows_after == 59
        assert ask("tables", "verify_table", table, body=models.VerifyTableBody()).sound is True
        refused = ask("tables", "get_table", "lake.db.none")
        assert (refused.status, refused.code) == (404, "AMORO-3002")
        assert [item.table for item in ask("tables", "list_tables").items] == [table]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
def test_nothing_that_the_description_does_not_tell(role: Role, tmp_path: Path) -> None:
    ended = fuzzed_once(tmp_path, role, seconds=10)
    assert ended.returncode == 0, ended.stdout + ended.stderr
