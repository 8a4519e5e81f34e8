"""Pages that answer a form: the plan that is kept and what has changed in it, what verifying found, dry runs."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from amoro_core.admin import maintaining
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.protocol import admin_pb2 as pb
from tests.acceptance.tables import messy_table
from tests.browser.chromium import Seat
from tests.browser.conftest import Stated
from tests.browser.pages import PROCESSES
from tests.dashboard.served import serving
from tests.engine import writer
from tests.engine.builders import row

VIEWS = [(360, "dark"), (1280, "light")]


@pytest.fixture(params=VIEWS, ids=str)
def view(request: pytest.FixtureRequest) -> tuple[int, str]:
    """A width and a scheme."""
    width, scheme = request.param
    return width, scheme


def press(seat: Seat, name: str) -> None:
    """Press the button, and wait for the page that comes."""
    with seat.page.expect_navigation(wait_until="load"):
        seat.page.get_by_role("button", name=name, exact=True).click()


def examined(seat: Seat) -> str:
    """The text of the page that is shown, on which nothing is wrong."""
    width, inner = seat.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner
    seat.examine()
    assert seat.wrong == []
    return re.sub(r"\s+", " ", seat.page.locator("main").inner_text())


def test_a_table_is_planned_optimized_and_verified_by_forms(
    browser: Browser, view: tuple[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    catalog = writer.make_catalog(tmp_path, "lake")
    made = messy_table(catalog)
    with serving(tmp_path / "state") as served:
        config = CatalogConfig("lake", tuple({**catalog.properties, "type": "sql"}.items()))
        served.coordinator.services.catalogs.add(config)
        known, name = served.coordinator.services.tables, f"lake.{'.'.join(made.name()[-2:])}"
        known.refresh(known.ensure(parse_table(name)).table_id)
        at = f"/tables/{name}"
        seat = Seat.of(browser, f"http://127.0.0.1:{served.port}", served.admin, width=view[0], scheme=view[1])
        seat.look(f"{at}/plan")
        seat.page.get_by_label("Type", exact=True).select_option("full")
        press(seat, "Plan")
        assert "Full optimizing, 1 task" in examined(seat)
        writer.append(made.refresh(), [row(99)])
        press(seat, "Optimize this")
        assert re.search(r"full of \d data files, it was full of \d\.", examined(seat))
        press(seat, "Optimize this")
        assert "has begun: full" in examined(seat)
        seat.look(f"{at}/verify")
        press(seat, "Verify")
        assert "exist with their sizes" in examined(seat)
        seat.look(f"/maintenance?table={name}")
        press(seat, "Show its actions")
        press(seat, "Dry run of expire-snapshots")
        assert "Nothing was changed." in examined(seat)
        seat.close()
    catalog.close()


def test_the_dry_run_of_an_undo_reads(
    browser: Browser, view: tuple[int, str], stated: Stated, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, ended = stated("typical"), PROCESSES["typical"]
    answer = pb.MaintainTableResponse(
        table="lake.sales.orders", action="undo", is_due=True, reason="it can be undone", tasks=2, held="it is large"
    )
    answer.document = json.dumps({"snapshots": [5, 7], "rows": 12})
    monkeypatch.setattr(maintaining, "_answer", lambda *_: answer)
    monkeypatch.setattr(served.coordinator.services.maintaining, "preview_undo", lambda process_id: None)
    seat = Seat.of(browser, f"http://127.0.0.1:{served.port}", served.admin, width=view[0], scheme=view[1])
    seat.look(f"/processes/{ended}/undo")
    press(seat, "Show what it would do")
    assert "It would do this now: it can be undone." in examined(seat)
    seat.close()
