"""Ids by chance, but by a seeded one."""

from __future__ import annotations

import random
import secrets
import uuid

import pytest


def seed_ids(patch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Let all random ids, tokens and names of files come from `chance`.

    Files are ordered by their names: only with the same names does a schedule go the same way again.
    """
    patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4))
    patch.setattr(secrets, "randbits", chance.getrandbits)
    patch.setattr(secrets, "token_urlsafe", lambda size=32: f"{chance.getrandbits(size * 8):x}")
