"""Whether a finished rewrite may be committed: validation against a head, and the check of the result itself."""

from amoro_core.validation.result_check import check
from amoro_core.validation.rules import validate

__all__ = ["check", "validate"]
