"""The pages that are looked at: each path, and in which states it has what it shows."""

from collections.abc import Sequence
from itertools import product

from tests.dashboard.states import CONDEMNED

WIDTHS = (360, 768, 1280, 1920)
SCHEMES = ("light", "dark")
VIEWS = tuple(product(WIDTHS, SCHEMES))
STATES = ("typical", "empty", "10,000 tables", "failing", "refused", "commit unknown")
#: A table of every state but the empty one.
TABLE = "/tables/lake.sales.orders"
#: Processes by the state in which they are.
PROCESSES = {
    "typical": "0199aaaa-0001-7000-8000-000000000000",
    "10,000 tables": "0199bbbb-0007-7000-8000-000000000000",
    "failing": "0199cccc-0001-7000-8000-000000000000",
    "commit unknown": "0199dddd-0001-7000-8000-000000000000",
}
EVERYWHERE = (
    *("/", "/catalogs", "/tables", "/processes", "/groups", "/groups/default", "/optimizers"),
    *("/optimizers?group=default&range=7d", "/queue", "/events", "/report", "/audit", "/maintenance", "/trash"),
    *("/sql", "/users", "/settings", "/system", "/rest", "/login"),
)
OF_A_TABLE = ("", "/files", "/snapshots", "/schema", "/processes", "/maintenance", "/properties", "/plan")
FORMS_OF_A_TABLE = ("/enable", "/disable", "/block", "/optimize")

#: Forms that are the same whatever the state, and what there is in the state "typical" alone.
FORMS = (
    *("/login/link?code=x", "/users/add", "/users/ann/update", "/users/ann/password", "/users/ann/remove"),
    *("/catalogs/add", "/create-group", "/groups/default/scale", "/instances/any/kill"),
    *("/tokens/create", "/tokens/any/revoke", "/system/backup"),
    *("/optimizers/optimizer-1/drain", "/optimizers/optimizer-1/release", "/trash/hurry"),
    *(f"/trash/{CONDEMNED}", f"/trash/{CONDEMNED}/restore", f"{TABLE}/verify", f"{TABLE}/unblock/1"),
    *(f"/processes/{PROCESSES['typical']}/{form}" for form in ("cancel", "confirm", "start", "undo")),
)
#: What has no page in a state that was only written into a database: it goes to a provider, reads a table or a log.
ELSEWHERE = {
    *("/login/oidc", "/login/oidc/callback"),
    *("/tables/{table}/files/list", "/instances/{instance}/logs"),
    "/sql/{kept}/rows.csv",
    "/find",  # choices of the search, within other pages
}


#: The pages that are no forms, in the state "typical", with which looks begin.
ONCE = len(EVERYWHERE) + 1 + len(OF_A_TABLE)


def paths_in(state: str) -> Sequence[str]:
    """The pages that there are in the state; forms follow the others."""
    made = list(EVERYWHERE)
    if state in PROCESSES:
        made.append(f"/processes/{PROCESSES[state]}")
    if state != "empty":
        made += [TABLE + below for below in (*OF_A_TABLE, *FORMS_OF_A_TABLE)]
    if state == "typical":
        made += FORMS
    return made


def looks(every: bool = False) -> Sequence[tuple[str, str, int, str]]:
    """State, path, width and scheme of each look: all of them, or each page in the typical and every third state.

    So each page is seen in several states, and each page and each state in several widths and both schemes, in turn.
    """
    made = []
    for number, state in enumerate(STATES):
        for place, path in enumerate(paths_in(state)):
            if not every and number and (place + number) % 3:
                continue
            chosen = VIEWS if every else (VIEWS[(place + 3 * number) % len(VIEWS)],)
            made += [(state, path, width, scheme) for width, scheme in chosen]
    return made
