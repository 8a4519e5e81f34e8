"""What the audit notes of a request: its object, and its parameters without secrets."""

from typing import Any

from google.protobuf.message import Message

from amoro_core.model.audit import Audited
from amoro_core.model.principals import Principal
from amoro_core.model.secrets import MASK, is_secret, without_secrets
from amoro_core.model.texts import briefly, printable

_OBJECTS = ("table", "process_id", "blocker_id", "lease_id", "optimizer_id", "name", "id", "path", "user")
_MOST = 40  # parameters
_ITEMS = 20  # of a list
_LONGEST = 300  # characters of a value
#: Contents of files, of which only the size is told.
_CONTENTS = frozenset({"site_files"})


def noted(principal: Principal, method: str, request: Message, is_dry_run: bool) -> Audited:
    """The call as the audit keeps it."""
    told = parameters(request)
    named = (str(getattr(request, name, "")) for name in _OBJECTS)
    return Audited(principal, method, _shown(without_secrets(next(filter(None, named), ""))), told, is_dry_run)


def parameters(request: Message) -> dict[str, str]:
    """The fields that are set, as texts; those of messages within it and entries of maps by their dotted names."""
    found = dict(_fields(request, ""))
    if len(found) <= _MOST:
        return found
    left = len(found) - _MOST
    return {**dict(list(found.items())[:_MOST]), "…": f"{left} more"}


def _fields(message: Message, prefix: str) -> "list[tuple[str, str]]":
    found: list[tuple[str, str]] = []
    for field, value in message.ListFields():
        name, kind = f"{prefix}{field.name}", field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            found += [_entry(field.name, name, key, value[key]) for key in sorted(value)]
        elif field.is_repeated:
            items = [str(len(one.ListFields())) + " fields" if kind else str(one) for one in value[:_ITEMS]]
            more = [f"and {len(value) - _ITEMS} more"] if len(value) > _ITEMS else []
            found.append((name, _safe(field.name, ", ".join([*items, *more]))))
        elif kind is not None:
            found += _fields(value, f"{name}.")
        else:
            found.append((name, _safe(field.name, str(value).lower() if isinstance(value, bool) else str(value))))
    return found


def _entry(field: str, name: str, key: Any, value: Any) -> tuple[str, str]:
    shown = f"{len(str(value).encode())} bytes" if field in _CONTENTS else _safe(str(key), str(value))
    return f"{name}.{_shown(str(key))}", shown


def _safe(key: str, value: str) -> str:
    return MASK if is_secret(key) else _shown(without_secrets(value))


def _shown(text: str) -> str:
    return briefly(printable(text), _LONGEST)
