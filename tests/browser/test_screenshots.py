"""The pictures of the how-to are of pages as they are, and the how-to shows each."""

import re
import struct
from pathlib import Path

from playwright.sync_api import Browser

from tests.browser.conftest import Stated
from tests.browser.screenshots import IMAGES, PICTURES, SIZE, take

HOWTO = IMAGES.parent / "howto" / "dashboard.md"


def size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG file."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height


def test_the_pictures_of_the_how_to_are_taken_of_the_pages(browser: Browser, stated: Stated, tmp_path: Path) -> None:
    served = stated("typical")
    take(browser, f"http://127.0.0.1:{served.port}", served.admin, tmp_path)
    assert {path.name: size(path) for path in tmp_path.glob("*.png")} == dict.fromkeys(PICTURES, SIZE)
    assert {path.name: size(path) for path in IMAGES.glob("*.png")} == dict.fromkeys(PICTURES, SIZE)


def test_the_how_to_shows_each_picture_with_a_description() -> None:
    shown = re.findall(r"!\[([^\]]+)\]\(\.\./images/([^)]+)\)", HOWTO.read_text(encoding="utf-8"))
    assert [name for _, name in shown] == list(PICTURES)
    assert all(len(description) > 20 for description, _ in shown)
