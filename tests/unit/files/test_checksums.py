"""Checksums are those of zlib, however they are computed."""

from __future__ import annotations

import importlib
import random
import sys
import threading
import zlib
from types import ModuleType

import pytest

from amoro_core.files import checksums


@pytest.mark.parametrize("seed", range(4))
def test_checksums_are_those_of_zlib(seed: int) -> None:
    chance = random.Random(seed)
    content = chance.randbytes(1 << 20)
    view = memoryview(content)
    for length in (*range(300), *(chance.randrange(1 << 20) for _ in range(200))):
        begin = chance.randrange(len(content) - length + 1)
        part = view[begin : begin + length]
        assert checksums.crc32(part) == zlib.crc32(part)
    assert checksums.crc32(b"\0" * 1000) == zlib.crc32(b"\0" * 1000)


def test_zlib_computes_them_where_there_is_nothing_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: dict[str, ModuleType | None] = {"zlib_ng": None, "zlib_ng.zlib_ng": None}
    for name, module in missing.items():
        monkeypatch.setitem(sys.modules, name, module)
    try:
        assert importlib.reload(checksums).crc32 is zlib.crc32
    finally:
        monkeypatch.undo()
        assert importlib.reload(checksums).crc32 is not zlib.crc32


def test_other_threads_run_while_a_checksum_is_computed() -> None:
    content, told, ran = b"x" * (20 << 20), threading.Lock(), list[bool]()
    told.acquire()

    def run() -> None:
        with told:
            ran.append(True)

    other = threading.Thread(target=run)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody is interrupted: others run where the interpreter is given up
    try:
        told.release()
        assert any(checksums.crc32(content) and ran for _ in range(500))
    finally:
        sys.setswitchinterval(interval)
        other.join()
