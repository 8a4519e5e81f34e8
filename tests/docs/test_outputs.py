"""Every output that the documentation shows is what the command says now."""

import re

import pytest

from tests.docs.session import DOCS, OUTPUTS, WITH_SERVICE, WITHOUT_SERVICE, Output, normalised, session

NAMES = ["orders", *(name for name, _ in WITHOUT_SERVICE), "up", *(name for name, _ in WITH_SERVICE)]
#: How the commands end that do not succeed.
STATUSES = {"not-found": 3, "usage": 2, "refused": 6}
#: What the coordinator looks at in this very moment may be on its way already when the command answers.
ON_ITS_WAY = {"returns-enable": re.compile(r"status (planning|minor|committing) since <time>.*")}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Output]:
    """What each command says now."""
    return {output.name: output for output in session(tmp_path_factory.mktemp("session"))}


@pytest.mark.parametrize("name", NAMES)
def test_an_output_is_what_the_command_says_now(said: dict[str, Output], name: str) -> None:
    kept = (OUTPUTS / f"{name}.txt").read_text(encoding="utf-8")
    shown, expected = normalised(said[name].text), normalised(kept)
    if later := ON_ITS_WAY.get(name):
        shown = [status if later.fullmatch(line) else line for line, status in zip(shown, expected, strict=True)]
    assert shown == expected, "run: make outputs"
    assert said[name].status == STATUSES.get(name, 0)


def test_every_output_that_is_kept_is_recorded_and_shown() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    shown = set(re.findall(r'"outputs/([\w-]+)\.txt"', pages))
    assert {path.stem for path in OUTPUTS.iterdir()} == set(NAMES) == shown


def test_only_what_differs_from_run_to_run_is_left_out_of_the_comparison() -> None:
    text = (
        "01a1ffe9-2d29-77e4-b317-56c05c4afcce  committed snapshot 6982903149762220921 in 0.2 s\n"
        "  bytes    9.1 kB → 887 B   at 2026-11-21 21:00:33Z\n  rows     1,510 = 1,510 ✓\n"
    )
    assert normalised(text) == [
        "<uuid> committed snapshot <snapshot or checksum> in <duration>",
        "bytes <size> → <size> at <time>",
        "rows 1,510 = 1,510 ✓",
    ]
    ids = ("698290314976222", "6982903149762220", "6982903149762220921", "00ff3149762220ff", "0011314976222099")
    assert {tuple(normalised(one)) for one in ids} == {("<snapshot or checksum>",)}
