"""Names, properties, reasons and failures come from strangers: on every page they are text and nothing else."""

from html.parser import HTMLParser

import pytest

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, TableIdentifier
from amoro_core.store import catalogs, processes, tables, tasks
from amoro_core.store.connection import Connection
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_table import OWN
from tests.dashboard.payloads import PAYLOADS
from tests.store import builders

#: The pages that show a table, its process, its catalog.
PATHS = (
    *("/", "/catalogs", "/tables", "/tables/1", "/tables/1/files", "/tables/1/snapshots", "/tables/1/processes"),
    *("/tables/1/properties", "/tables/1/plan", "/tables/1/enable", "/tables/1/disable", "/tables/1/block"),
    *("/tables/1/optimize", "/processes", "/processes/0199cccc-0001-7000-8000-000000000000", "/groups", "/maintenance"),
    *("/events", "/queue"),
)


class Marks(HTMLParser):
    """The elements of a page that foreign text must not make, and attributes that run or lead elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.scripts += tag == "script"
        if tag == "script" and not (given.get("src") or "").startswith("/static/"):
            self.wrong.append(f"script {given}")
        if tag in ("img", "iframe", "object", "embed", "base"):
            self.wrong.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.wrong.append(f"{tag} {name}")
            if name in ("href", "src", "action") and not (value or "").startswith(("/", "#", "?")):
                self.wrong.append(f"{tag} {name}={value}")
            if name in ("href", "src", "action") and (value or "").startswith("//"):
                self.wrong.append(f"{tag} {name}={value}")


def wrong_with(page: str) -> list[str]:
    marks = Marks()
    marks.feed(page)
    marks.close()
    return marks.wrong


def _poisoned(payload: str) -> "object":
    def fill(db: Connection) -> None:
        catalogs.add(db, builders.catalog("lake", properties=(("type", payload), (payload, payload))))
        files, health = states.summary(6)
        one = tables.add(
            db,
            states.table(
                0,
                identifier=TableIdentifier("lake", (payload,), payload),
                location=payload,
                group=payload,
                status=OptimizingStatus.PENDING,
                status_reason=payload,
                enabled_origin=payload,
                properties={"self-optimizing.quota": payload, f"self-optimizing.{payload}": payload},
                summary=files,
                health=health,
            ),
        )
        made = builders.process(
            one,
            "0199cccc-0001-7000-8000-000000000000",
            status=ProcessStatus.FAILED,
            reason=payload,
            failure_code="AMORO-1002",
            failure=f"{payload}\n{payload}",
            where=payload,
            created_at=states.now(),
            finished_at=states.now(),
        )
        processes.add(db, made)
        tasks.add_many(db, [(states.done(made)._replace(partition=payload, failure=payload), b"")])

    return fill


@pytest.mark.parametrize("payload", PAYLOADS[:: len(PAYLOADS) // 15], ids=range(15))
def test_foreign_texts_are_text_on_every_page(site: Site, payload: str) -> None:
    client = site(_poisoned(payload))
    for path in PATHS:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert wrong_with(answer.text) == [], path


def test_what_a_visitor_sends_is_text(site: Site) -> None:
    client = site("typical")
    for payload in PAYLOADS:
        for answer in (
            client.get("/tables", params={"text": payload, "namespace": "a"}),
            client.get("/tables", params={"status": payload}),
            client.get("/tables", params={payload: payload}),
            client.get(f"/tables/{payload.replace('/', '')}"),
            client.get("/tables/1/plan", params={"kept": payload}),
            client.post("/tables/1/block", data={"minutes": payload, "reason": payload}, headers=OWN),
        ):
            assert answer.status_code < 500, answer.text
            assert wrong_with(answer.text) == []


def test_a_notice_about_what_a_visitor_sent_is_text(site: Site) -> None:
    client = site("typical")
    done = client.post("/tables/1/block", data={"minutes": "5", "reason": PAYLOADS[0]}, headers=OWN)
    page = client.get(done.headers["location"]).text
    assert wrong_with(page) == []
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_there_are_sixty_and_an_unescaped_one_is_noticed() -> None:
    assert len(set(PAYLOADS)) == 60
    quoted = [f'<input value="{payload}">' if '"' in payload else f"<p title='{payload}'>" for payload in PAYLOADS]
    unnoticed = [
        payload
        for payload, page in zip(PAYLOADS, quoted, strict=True)
        if not wrong_with(payload) and not wrong_with(page) and not wrong_with(f'<a href="{payload}">')
    ]
    assert [payload for payload in unnoticed if not payload.startswith("{{")] == []
