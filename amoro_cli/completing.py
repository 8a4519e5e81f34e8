"""Shell completion of names."""

import os
from collections.abc import Callable
from pathlib import Path

import typer

from amoro_cli.launcher import Kind
from amoro_core.model.texts import printable

Complete = Callable[[typer.Context, str], list[str]]

_MOST = 500


def names_of(kind: Kind) -> Complete:
    """A completion of names of that kind from the state directory.

    The shell waits for it at each Tab: no coordinator is called, and nothing heavy is imported.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        root = ctx.find_root()
        given = ctx.params.get("home") or root.params.get("home") or os.environ.get("AMORO_HOME") or "~/.amoro"
        known = root.obj.launcher.names(kind, Path(given).expanduser())
        return [name for name in known if name.startswith(incomplete) and name == printable(name)][:_MOST]

    return complete
