"""Confirmations: what an action will do, before it is done, and the command that does the same."""

from collections.abc import Sequence

from amoro_core.dashboard.pages.visits import Shown
from amoro_core.records import record


@record
class Field:
    """A field of a confirmation's form: one of `values` where there are any, else by its type as in HTML."""

    name: str
    label: str
    value: str = ""
    type: str = "text"
    values: Sequence[str] = ()
    any: str = "any"  # what stands for none of the values; "": one has to be chosen
    is_needed: bool = False


@record
class Confirmation:
    """The page that an action's link leads to: its form is sent to `target`."""

    title: str
    effects: Sequence[str]  # what will happen, in sentences
    target: str
    label: str  # of the button that does it
    back: str
    same: str  # the command that does the same
    fields: Sequence[Field] = ()
    is_grave: bool = False  # it deletes, or can't be taken back

    def shown(self) -> Shown:
        """The confirmation as a page."""
        values = {
            "effects": self.effects,
            "target": self.target,
            "label": self.label,
            "back": self.back,
            "same": self.same,
            "fields": self.fields,
            "is_grave": self.is_grave,
        }
        return Shown("confirm.html", self.title, values)


def named(typed: str, table: str) -> bool:
    """Whether what was typed is the table's full name."""
    return typed.strip() == table
