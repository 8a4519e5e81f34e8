"""Receipts as they are stored; those of before figures have none of their own."""

import json
from dataclasses import asdict

from amoro_core.model.encoded_files import EncodedFiles
from amoro_core.model.processes import Equation, Figure, Receipt
from amoro_core.store.rows import to_json


def receipt_to_json(receipt: Receipt) -> str:
    """Every field, by its name."""
    return to_json(asdict(receipt))


def receipt_from_json(text: str) -> Receipt:
    """The receipt that was stored."""
    said = json.loads(text)
    more = tuple(Figure(**figure) for figure in said.pop("more", ()))
    equal = tuple(Equation(**equation) for equation in said.pop("equal", ()))
    encoded = tuple(EncodedFiles(**files) for files in said.pop("encoded", ()))
    return Receipt(**said, encoded=encoded, more=more, equal=equal)
