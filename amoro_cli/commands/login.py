"""amoro login."""

import webbrowser
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, command
from amoro_cli.views.users import login_link
from amoro_core.errors import InvalidArgument


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "login", "amoro login --browser")(login)


def login(
    session: Session,
    browser: Annotated[bool, typer.Option("--browser", help="Open the link in this machine's browser, too.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print a link that logs a browser in to the pages, once, with the rights of the admin token."""
    with session.connect() as connection:
        link = connection.client.make_login_link()
        write(login_link(link), output)
        if browser and not webbrowser.open(link.url):
            raise InvalidArgument("no browser was found on this machine", hint="Open the link yourself.")
