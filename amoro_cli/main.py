"""The command line: all commands, and how errors become exit statuses."""

import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

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


#: The modules of commands outside of groups, with their names.
_COMMANDS = (
    ("running", ("up", "demo", "doctor")),
    ("status", ("status",)),
    ("mcp", ("mcp",)),
    ("optimizing", ("plan", "optimize")),
    ("verifying", ("verify",)),
    ("undoing", ("undo",)),
    ("login", ("login",)),
)
#: The groups, with the modules of their commands.
_GROUPS = (
    (
        "table",
        ("tables", "blockers", "upgrading", "maintaining", "snapshots"),
        "Tables: their health, and whether they are optimized.",
    ),
    ("process", ("processes",), "Optimizing processes: what runs and what ran."),
    ("cluster", ("clustering",), "Clustering: the order of rows in files."),
    ("task", ("tasks",), "Tasks of processes: one set of files each, rewritten together."),
    ("event", ("events",), "Events: what happened to tables, processes, optimizers and groups."),
    ("series", ("series",), "Series: values over time, of the system, of groups and of tables."),
    ("trash", ("trash",), "Files that maintenance has condemned and not deleted yet."),
    ("lease", ("leases",), "Leases: snapshots that are kept for a while."),
    ("optimizer", ("optimizers",), "Optimizers: the processes that rewrite files."),
    ("group", ("groups",), "Optimizer groups: which optimizers work for which tables."),
    ("catalog", ("catalogs",), "Catalogs: where tables come from."),
    ("config", ("config",), "Settings of the coordinator."),
    ("token", ("tokens",), "Tokens that let people and optimizers in."),
    ("user", ("users",), "Users, who log in to the pages."),
    ("audit", ("audit",), "The audit: who has changed what."),
    ("monitoring", ("monitoring",), "Monitoring: files for Prometheus and Grafana."),
    ("state", ("state",), "The state database: copies and checks."),
)
#: Arguments that ask for the help of the program, which names the groups and none of their commands.
_HELP = {(option,) for option in CONTEXT_SETTINGS["help_option_names"]}
#: The example in the help of groups that have no plain `list`.
_FIRST = {
    "series": "show threads-busy --since 1d",
    "task": "list 01997a",
    "config": "show --origin",
    "state": "check",
    "monitoring": "export DIR",
}


def build(launcher: Launcher, arguments: Sequence[str] = ()) -> typer.Typer:
    """The command line on top of the launcher; where the arguments begin with a command, with this command alone.

    Typer makes parameters of the signatures of all commands that it is given: half of the time of a short command.
    """
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

    word = next(iter(arguments), "")
    commands = [one for one in _COMMANDS if word in one[1]]
    groups = [one for one in _GROUPS if word == one[0]]
    named = bool(commands or groups)
    for module, _ in commands if named else _COMMANDS:
        _register(app, module)
    for name, modules, text in groups if named else _GROUPS:
        group = _typer(name, text, f"amoro {name} {_FIRST.get(name, 'list')}", session)
        for module in () if tuple(arguments) in _HELP else modules:
            _register(group, module)
        _leave_out_others(group, arguments[1:])
        app.add_typer(group)
    _leave_out_others(app, arguments)
    return app


def _register(app: typer.Typer, module: str) -> None:
    import_module(f"amoro_cli.commands.{module}").register(app)


def _leave_out_others(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Leave the command that the first argument names; all of them where it names none, so for help and mistakes."""
    named = [one for one in app.registered_commands if [one.name] == list(arguments[:1])]
    app.registered_commands = named or app.registered_commands


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
        status = build(launcher, arguments)(args=arguments, prog_name="amoro", standalone_mode=False)
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
