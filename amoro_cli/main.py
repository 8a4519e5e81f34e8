"""The command line: all commands, and how errors become exit statuses."""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from amoro_cli.commands import (
    audit,
    blockers,
    catalogs,
    clustering,
    config,
    events,
    groups,
    leases,
    maintaining,
    mcp,
    monitoring,
    optimizers,
    optimizing,
    processes,
    running,
    series,
    snapshots,
    state,
    status,
    tables,
    tasks,
    tokens,
    trash,
    undoing,
    upgrading,
    users,
    verifying,
)
from amoro_cli.helping import CONTEXT_SETTINGS, HelpfulGroup
from amoro_cli.launcher import Launcher
from amoro_cli.mistakes import as_ours, refuse_empty, refuse_undecodable
from amoro_cli.session import (
    AddressOption,
    CaFileOption,
    CertificateFileOption,
    ConfigOption,
    DebugOption,
    Globals,
    HomeOption,
    KeyFileOption,
    Session,
    TokenFileOption,
    with_example,
)
from amoro_cli.streams import Streams, tell
from amoro_core.errors import AmoroError, InvalidArgument, OutputUnwritable
from amoro_core.model.secrets import without_secrets
from amoro_core.model.texts import LONGEST_MESSAGE, cut, printable

#: What typer raises for wrong arguments; it exports only this subclass.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_INTERRUPTED = 130


def _register_table(app: typer.Typer) -> None:
    tables.register(app)
    blockers.register(app)
    upgrading.register(app)
    maintaining.register(app)
    snapshots.register(app)


_GROUPS = (
    ("table", _register_table, "Tables: their health, and whether they are optimized."),
    ("process", processes.register, "Optimizing processes: what runs and what ran."),
    ("cluster", clustering.register, "Clustering: the order of rows in files."),
    ("task", tasks.register, "Tasks of processes: one set of files each, rewritten together."),
    ("event", events.register, "Events: what happened to tables, processes, optimizers and groups."),
    ("series", series.register, "Series: values over time, of the system, of groups and of tables."),
    ("trash", trash.register, "Files that maintenance has condemned and not deleted yet."),
    ("lease", leases.register, "Leases: snapshots that are kept for a while."),
    ("optimizer", optimizers.register, "Optimizers: the processes that rewrite files."),
    ("group", groups.register, "Optimizer groups: which optimizers work for which tables."),
    ("catalog", catalogs.register, "Catalogs: where tables come from."),
    ("config", config.register, "Settings of the coordinator."),
    ("token", tokens.register, "Tokens that let people and optimizers in."),
    ("user", users.register, "Users, who log in to the pages."),
    ("audit", audit.register, "The audit: who has changed what."),
    ("monitoring", monitoring.register, "Monitoring: files for Prometheus and Grafana."),
    ("state", state.register, "The state database: copies and checks."),
)
#: The example in the help of groups that have no plain `list`.
_FIRST = {
    "series": "show threads-busy --since 1d",
    "task": "list 01997a",
    "config": "show --origin",
    "state": "check",
    "monitoring": "export DIR",
}


def build(launcher: Launcher) -> typer.Typer:
    """The command line on top of the launcher."""
    session = Session(launcher)  # used by completion before any option is known
    app = _typer(
        "amoro",
        "Keep Iceberg tables healthy: find small files and deletes, rewrite them, account for every row.",
        "amoro demo",
        session,
    )

    @app.callback()
    def globals_(
        ctx: typer.Context,
        home: HomeOption = None,
        config: ConfigOption = None,
        address: AddressOption = None,
        token_file: TokenFileOption = None,
        ca_file: CaFileOption = None,
        certificate_file: CertificateFileOption = None,
        key_file: KeyFileOption = None,
        debug: DebugOption = False,
        version_: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        ctx.obj = Session(
            launcher, Globals(home, config, address, token_file, ca_file, certificate_file, key_file, debug)
        )

    running.register(app)
    status.register(app)
    mcp.register(app)
    optimizing.register(app)
    verifying.register(app)
    undoing.register(app)
    users.register_login(app)
    for name, register, text in _GROUPS:
        example = f"amoro {name} {_FIRST.get(name, 'list')}"
        group = _typer(name, text, example, session)
        register(group)
        app.add_typer(group)
    return app


def run(launcher: Launcher, argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; errors are printed on stderr."""
    streams = Streams()
    try:
        status = _ended(launcher, list(sys.argv[1:] if argv is None else argv))
    except (OutputUnwritable, BrokenPipeError):
        status = OutputUnwritable.exit_status  # printed when the streams are settled
    return streams.settle(status)


def _ended(launcher: Launcher, arguments: list[str]) -> int:
    """The exit status of the command, whose error has been printed. Raises what writing to stdout raises."""
    try:
        refuse_undecodable(arguments)
        refuse_empty(arguments)
        status = build(launcher)(args=arguments, prog_name="amoro", standalone_mode=False)
        if status == _INTERRUPTED:  # how typer reports Ctrl-C
            raise KeyboardInterrupt
        return status if isinstance(status, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except (KeyboardInterrupt, typer.Abort):
        tell("Interrupted.")
        return _INTERRUPTED
    except _UsageError as error:
        return _refuse_usage(error, arguments)
    except (OutputUnwritable, BrokenPipeError):
        raise
    except Exception as error:
        if "--debug" in arguments:
            tell(without_secrets("".join(traceback.format_exception(error)).rstrip("\n")))
        known = error if isinstance(error, AmoroError) else as_ours(error)
        _explain(known)
        return known.exit_status


def _typer(name: str, text: str, example: str, session: Session) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=with_example(text, example),
        rich_markup_mode=None,  # plain text: it is the same everywhere, and rich would double the time to --help
        pretty_exceptions_enable=False,
        cls=HelpfulGroup,
        no_args_is_help=True,
        context_settings={"obj": session, **CONTEXT_SETTINGS},
    )


def _refuse_usage(error: Any, arguments: Sequence[str]) -> int:
    """Print what is wrong with the command's arguments; a group without a command shows its help."""
    message = error.format_message().replace(": Value error, ", ": ")
    if error.ctx is not None and message == error.ctx.get_help():
        sys.stdout.write(f"{message}\n")
        return 0
    value = _value_of(getattr(getattr(error, "param", None), "opts", ()), arguments)
    if value and value not in message:
        message = message.replace("': ", f"': {value!r}: ", 1)
    if error.ctx is not None:
        tell(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n")
    _explain(InvalidArgument(message))
    return InvalidArgument.exit_status


def _value_of(options: Sequence[str], arguments: Sequence[str]) -> str:
    """The value given for an option; "" without one."""
    for at, option in enumerate(arguments):
        name, equals, value = option.partition("=")
        if name.startswith("-") and name in options:
            return value if equals else next(iter(arguments[at + 1 :]), "")
    return ""


def _explain(error: AmoroError) -> None:
    message, hint = cut(error.message, LONGEST_MESSAGE), cut(error.hint or error.remedy, LONGEST_MESSAGE)
    lines = [f"Error: {message} [{error.code}]", f"Hint: {hint}"]
    tell("\n".join(map(printable, lines)))


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # slow to load, and only needed here

        typer.echo(f"amoro {version('amoro')}")
        raise typer.Exit
