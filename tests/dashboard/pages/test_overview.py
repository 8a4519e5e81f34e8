"""The overview and the catalogs."""

import re

from amoro_core.dashboard.pages.over_time import Asked, drawn
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.store import catalogs
from amoro_core.store.connection import Connection
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_table import OWN, words
from tests.store import builders


def test_the_overview_counts_with_links_to_the_rows(site: Site) -> None:
    client = site("typical")
    page = client.get("/").text
    tiles = dict(re.findall(r'<a class="tile" href="([^"]*)"><span class="figure">([^<]*)</span>', page))
    assert tiles["/tables"] == "30"
    assert tiles["/processes?status=running"] == "1"
    for url, figure in tiles.items():
        if url.startswith("/tables"):
            total = re.search(r"of (\S+) tables", client.get(url.replace("&amp;", "&")).text)
            assert (total[1] if total else "0") == figure, url
    assert "0199aaaa-0001-7000" in page


def test_levels_of_groups_are_added_step_by_step() -> None:
    def point(minutes: int, *values: int) -> journal.SeriesPoint:
        return journal.SeriesPoint(from_ms=minutes * 60_000, n=len(values), sum=sum(values))

    found = journal.GetSeriesResponse(
        step_s=600,
        series=[
            journal.Series(name="threads-busy", label="a", points=[point(0, 2, 4), point(10, 1)]),
            journal.Series(name="threads-busy", label="b", points=[point(10, 3, 4), point(20, 9)]),
        ],
    )
    asked = Asked(("threads-busy",), until_ms=1_800_000, length_ms=1_800_000)
    added = drawn(found, asked, "threads-busy", "Running tasks", added=True)
    assert [row[-1] for row in added.figures.rows] == ["9", "4.5", "3"]  # the newest first
    assert len(drawn(found, asked, "threads-busy", "Running tasks").figures.headers) == len(added.figures.headers) + 1
    nothing = journal.GetSeriesResponse(step_s=600)
    assert drawn(nothing, asked, "threads-busy", "Running tasks", added=True).figures.rows == ()


def test_an_empty_overview_reads(site: Site) -> None:
    page = words(site("empty").get("/").text)
    assert "No process runs." in page
    assert "Nothing has happened yet." in page


def test_conditions_are_told_first_with_what_to_do(site: Site) -> None:
    page = site("commit unknown").get("/").text
    assert "commit-unknown" in page
    assert page.index("commit-unknown") < page.index('class="tile"')


def test_catalogs_tell_what_can_be_done_there(site: Site) -> None:
    def fill(db: Connection) -> None:
        states.fill(db, 3)
        catalogs.add(db, builders.catalog("files", properties=(("type", "hadoop"), ("s3.secret-access-key", "x9"))))

    page = site(fill).get("/catalogs").text
    assert '<a href="/tables?catalog=lake">3</a>' in page
    assert "Nothing can be committed there" in page
    assert "x9" not in page


def test_a_catalog_that_does_not_answer_is_told_by_its_check(site: Site) -> None:
    client = site(lambda db: states.fill(db, 1))
    assert "last look not asked since the start" in words(client.get("/catalogs").text)
    done = client.post("/catalogs/lake/check", headers=OWN)
    assert "last look no answer" in words(client.get("/catalogs").text)
    assert done.status_code == 303
    page = client.get(done.headers["location"]).text
    assert '<p class="notice bad" role="status">lake: [AMORO-' in page
    assert client.post("/catalogs/nothing/check", headers=OWN).status_code == 404
