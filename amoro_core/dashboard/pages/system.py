"""The coordinator itself: its settings, and its state."""

import shlex
from collections.abc import Sequence

from starlette.routing import Route

from amoro_core.dashboard.asking import principal_of
from amoro_core.dashboard.pages.confirming import Confirmation, Field
from amoro_core.dashboard.pages.site import Site, may
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.documents.quantities import format_bytes
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import monitoring_pb2 as monitoring


def routes(site: Site) -> list[Route]:
    """The pages of settings and system, and their forms."""
    return [
        site.page("/settings", show_settings),
        site.page("/system", show_system),
        site.action("/system/check", check),
        site.page("/system/backup", ask_to_back_up),
        site.action("/system/backup", back_up),
    ]


async def show_settings(visit: Visit) -> Shown:
    """Every setting whose key contains the text, with its value and where that comes from."""
    asked = visit.query(text=())
    found = await visit.ask("GetSettings", pb.GetSettingsRequest(), pb.GetSettingsResponse)
    shown = [one for one in found.settings if asked["text"].lower() in one.key.lower()]
    return Shown("settings.html", "Settings", {"settings": shown, "text": asked["text"]})


async def show_system(visit: Visit) -> Shown:
    """The coordinator, what is wrong now, and for administrators its state database."""
    visit.query()
    return await _shown(visit, None)


async def check(visit: Visit) -> Shown:
    """What is wrong with the state database; it is read whole."""
    await visit.form()
    found = await visit.ask("CheckState", pb.CheckStateRequest(), pb.CheckStateResponse)
    return await _shown(visit, list(found.problems))


async def _shown(visit: Visit, problems: Sequence[str] | None) -> Shown:
    status = await visit.ask("GetStatus", pb.GetStatusRequest(), pb.GetStatusResponse)
    asked = monitoring.ListConditionsRequest()
    conditions = await visit.ask("ListConditions", asked, monitoring.ListConditionsResponse)
    state = None
    if may(await principal_of(visit.request), "GetState"):
        state = await visit.ask("GetState", pb.GetStateRequest(), pb.StateFacts)
    values = {"status": status, "problems": problems, "conditions": conditions.conditions, "state": state}
    return Shown("system.html", "System", values)


async def ask_to_back_up(visit: Visit) -> Shown:
    """What a backup will do."""
    visit.query()
    effects = (
        "The state database of this moment is copied to a new file on the coordinator's machine. Work goes on.",
        "The copy holds the catalogs' secrets, and only its owner can read it. A file that exists is never replaced.",
    )
    path = Field("path", "Absolute path of the new file", is_needed=True)
    command = "amoro state backup PATH"
    return Confirmation("Back up the state", effects, "/system/backup", "Back up", "/system", command, (path,)).shown()


async def back_up(visit: Visit) -> Gone:
    """Copy the state database to a new file."""
    typed = await visit.form("path")
    made = await visit.ask("BackupState", pb.BackupStateRequest(path=typed["path"]), pb.BackupStateResponse)
    return Gone("/system", f"The state is in {shlex.quote(made.path)}, {format_bytes(made.bytes)}.")
