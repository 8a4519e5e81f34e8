"""Every link leads somewhere: pages are followed from the overview on."""

import html
import re

from tests.dashboard.pages.conftest import Site

#: Links of which one stands for all that differ in the numbers and names within.
_ALIKE = re.compile(r"(?<=/tables/)[^/?#]+|(?<=/processes/)[^/?#]+|(?<=[?&])(?:after|table|process)=[^&]*")


def test_every_link_leads_to_a_page(site: Site) -> None:
    client, waiting, seen, broken = site("typical"), ["/"], set[str](), []
    while waiting:
        path = waiting.pop()
        shape = _ALIKE.sub("*", path)
        # The list of files reads the table, whose catalog is not there.
        if shape in seen or path.endswith("/files/list") or not path.startswith("/"):
            continue
        seen.add(shape)
        answer = client.get(path)
        if answer.status_code != 200:
            broken.append((path, answer.status_code))
            continue
        waiting += [
            html.unescape(link).partition("#")[0] or "/" for link in re.findall(r' href="([^"]*)"', answer.text)
        ]
    assert broken == []
    assert {"/tables", "/tables/*", "/tables/*/plan", "/processes/*", "/groups/default", "/queue"} <= seen
