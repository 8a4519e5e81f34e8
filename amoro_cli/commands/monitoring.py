"""amoro monitoring."""

from pathlib import Path
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, command
from amoro_cli.views.status import exported_document
from amoro_core.documents.monitoring import BOARD, RULES, SCRAPE, board, rules, scrape
from amoro_core.errors import InvalidArgument


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro monitoring`."""
    command(app, "export", "amoro monitoring export /etc/prometheus/amoro", ("debug",))(export)


def export(
    session: Session,
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Where to; files of these names are replaced.", show_default=False),
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write rules and a job for Prometheus, and a board for Grafana. No coordinator is needed."""
    paths = []
    for name, text in ((RULES, rules()), (SCRAPE, scrape()), (BOARD, board())):
        path = directory / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(
                f"{path} can't be written: {error.strerror}", hint="Name a directory that you may write."
            ) from error
        paths.append(str(path))
    write(exported_document(paths), output)
