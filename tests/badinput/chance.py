"""The chance that an input is made by: the same for the same seed, kind and number."""

from __future__ import annotations

import os
import random

SEED = int(os.environ.get("BADINPUT_SEED", "1"))
TIMES = int(os.environ.get("BADINPUT_TIMES", "1"))


def chance(kind: str, number: int) -> random.Random:
    """What decides about the input of that kind and number."""
    return random.Random(f"{SEED} {kind} {number}")


#: How many inputs there are of each kind.
COUNTS = {
    "arguments": 168,
    "settings": 30,
    "environment": 10,
    "connection": 12,
    "catalogs": 25,
    "site": 15,
    "properties": 35,
    "metadata": 40,
    "manifests": 30,
    "files": 35,
    "copied files": 30,
}


def numbers(kind: str) -> range:
    """The numbers of a kind's inputs."""
    return range(COUNTS[kind] * TIMES)
