"""Values as the pages write them: filters of the templates."""

import time
from datetime import UTC, datetime

from markupsafe import Markup, escape

from amoro_core.documents.formatting import format_bytes, format_count, format_duration, format_time
from amoro_core.model.text_sanitizing import printable

#: Badge classes of statuses: done, at work, waiting, needs attention.
_LOOKS = {
    "good": ("idle", "success", "yes", "commits", "alive", "running_instance"),
    "busy": (
        *("planning", "minor_optimizing", "major_optimizing", "full_optimizing", "committing"),
        *("running", "clearing", "acked", "scheduled", "starting"),
    ),
    "wait": ("pending", "planned", "held", "draining", "partial", "stopping"),
    "bad": ("refused", "failed", "commit_unknown", "ended", "lost"),
}
_LOOK_OF = {word: badge_class for badge_class, words in _LOOKS.items() for word in words}


def badge_class(status: str) -> str:
    """The badge class of a status; "" for a neutral one."""
    return _LOOK_OF.get(status, "")


def spoken(status: str) -> str:
    """A status as words: "commit unknown" of "commit_unknown"."""
    return status.replace("_", " ")


def size(count: int) -> str:
    """Bytes in the unit that suits them."""
    return format_bytes(int(count))


def number(count: int) -> str:
    """A number with commas between thousands."""
    return format_count(int(count))


def lasting(milliseconds: int) -> str:
    """A duration in its two largest units."""
    return format_duration(int(milliseconds))


def moment(milliseconds: int, never: str = "never") -> Markup:
    """A time in UTC, marked up so that the script adds the visitor's own; `never` for 0."""
    if not milliseconds:
        return escape(never)
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"), f"{at:%Y-%m-%d %H:%M:%S}Z"
    )


def ago(milliseconds: int, never: str = "never") -> Markup:
    """How long ago or ahead a time is, with the time itself as its title; `never` for 0."""
    if not milliseconds:
        return escape(never)
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    away = time.time() * 1000 - milliseconds
    text = f"{_roughly(away)} ago" if away >= 0 else f"in {_roughly(-away)}"
    form = Markup('<time datetime="{}" title="{}">{}</time>')
    return form.format(at.isoformat(timespec="milliseconds"), format_time(milliseconds), text)


def whole(text: str) -> Markup:
    """A text of several lines, each as it is, with characters that can't be seen escaped."""
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())


def _roughly(milliseconds: float) -> str:
    seconds = int(milliseconds / 1000)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
