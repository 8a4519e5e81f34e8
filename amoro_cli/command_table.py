"""The table of commands, how one is loaded when it is named, and the layout of help."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import Parameter, getdoc, signature
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from amoro_cli.context import CONNECTION, LOCAL, OUTPUT, REMOTE, TRUST, Session, global_parameters, with_parameters

#: -h means --help everywhere: sub-commands inherit the settings of a context.
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


#: Typer's default metavars, and ours.
_VALUES = {"<int>": "N", "<int range>": "N", "<float>": "N", "<str>": "TEXT"}
_TYPE = re.compile(r" ?<(?!\w+\|)[^>]*>")
_LISTED = re.compile(r"<list\[(.*)\]>")  # an option that may be repeated


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the arguments, the command's own options, its commands, and the options of the connection."""

    def section(title: str, kind: str, panel: str | None = None) -> None:
        named = [parameter for parameter in command.get_params(ctx) if parameter.param_type_name == kind]
        chosen = [parameter for parameter in named if getattr(parameter, "rich_help_panel", None) == panel]
        records = [record for record in (record_of(parameter, ctx) for parameter in chosen) if record]
        if records:
            with formatter.section(title):
                formatter.write_dl(records)

    section("Arguments", "argument")
    section("Options", "option")
    if isinstance(command, TyperGroup):
        command.format_commands(ctx, formatter)
    section(CONNECTION, "option", CONNECTION)


class HelpfulCommand(TyperCommand):
    """A command whose options of the panel CONNECTION stand apart, at the end."""

    format_options = _write_options

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


def record_of(parameter: Any, ctx: typer.Context) -> tuple[str, str] | None:
    """A parameter's syntax and its help; None for a hidden one. Types are shown by readable names."""
    record = parameter.get_help_record(ctx)
    if record is None:
        return None

    def readable(kind: re.Match[str]) -> str:
        name = kind[0].strip()
        return f" {_VALUES.get(name, name)}"

    syntax = _LISTED.sub(r"<\1>", record[0])

    return _TYPE.sub("" if parameter.param_type_name == "argument" else readable, syntax), record[1]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its docstring and the example are its help."""

    path: str
    function: str  # module:name, of amoro_cli.commands
    arguments: str = ""  # of the example
    options: tuple[str, ...] = REMOTE  # global options that may stand after the command, too
    has_output: bool = True  # whether it takes --output; one with formats of its own declares that itself

    @property
    def example(self) -> str:
        return f"amoro {self.path} {self.arguments}".rstrip()


COMMANDS = (
    Command("up", "service:up", "--threads 4 --memory 1GB", LOCAL, has_output=False),
    Command("demo", "service:demo", "--seconds 45", ("debug",), has_output=False),
    Command("doctor", "service:doctor", "-o json", options=LOCAL),
    Command("status", "service:status", "-o json"),
    Command("report", "processes:report", "--since 12h"),
    Command("mcp", "service:mcp", "--token-file viewer.token", has_output=False),
    Command("plan", "optimizing:plan", "sales.db.orders --explain"),
    Command("optimize", "optimizing:optimize", "sales.db.orders --type major --wait"),
    Command("verify", "optimizing:verify", "sales.db.orders"),
    Command("sql", "optimizing:sql", "-e 'SELECT day, count(*) FROM sales.db.orders GROUP BY day'"),
    Command("undo", "maintenance:undo", "01a1ff --dry-run"),
    Command("login", "access:login", "--browser"),
    Command("table list", "tables:list_tables", "--catalog sales --status pending"),
    Command("table show", "tables:show", "sales.db.orders"),
    Command("table enable", "tables:enable", "sales.db.orders"),
    Command("table disable", "tables:disable", "sales.db.orders"),
    Command("table changed", "tables:changed", "sales.db.orders"),
    Command("table properties", "tables:properties", "sales.db.orders"),
    Command(
        "table set", "tables:set_properties", "sales.db.orders self-optimizing.quota=0.2 write.wap.enabled- --dry-run"
    ),
    Command("table health", "tables:health", "sales.db.orders"),
    Command("table sizes", "tables:sizes", "sales.db.orders"),
    Command("table files", "tables:files", "sales.db.orders --limit 20"),
    Command("table snapshots", "tables:snapshots", "sales.db.orders --limit 5"),
    Command(
        "table create", "tables:create", "lake.db.orders 'id long not null' 'at timestamptz' --partition 'day(at)'"
    ),
    Command("table rename", "tables:rename", "lake.db.orders lake.db.sales"),
    Command("table drop", "tables:drop", "lake.db.orders --dry-run"),
    Command("table block", "tables:block", "sales.db.orders --for 30m --reason 'nightly overwrite'"),
    Command("table renew", "tables:renew", "01a1ffb2-9673"),
    Command("table unblock", "tables:unblock", "01a1ffb2-9673"),
    Command("table blockers", "tables:blockers", "sales.db.orders"),
    Command("table upgrade", "maintenance:upgrade", "sales.db.orders --format-version 3 --dry-run"),
    Command("table maintain", "maintenance:maintain", "sales.db.orders --action expire-snapshots --dry-run"),
    Command("table actions", "maintenance:actions", "sales.db.orders"),
    Command("table compare", "maintenance:compare", "sales.db.orders 3051729675574597004 5781947118336215154"),
    Command("table retention", "maintenance:retention", "sales.db.orders"),
    Command("process list", "processes:list_processes", "--table sales.db.orders --limit 5"),
    Command("process show", "processes:show", "01997a"),
    Command("process start", "processes:start", "01997a"),
    Command("process cancel", "processes:cancel", "01997a"),
    Command("cluster show", "optimizing:show", "sales.db.orders"),
    Command("cluster suggest", "optimizing:suggest", "sales.db.orders"),
    Command("cluster learn", "optimizing:learn", "sales.db.orders --spark-event-log /var/log/spark"),
    Command("task list", "processes:list_tasks", "01997a --status failed"),
    Command("task show", "processes:show_task", "01997a-3"),
    Command("task attempts", "processes:attempts", "01997a-3"),
    Command("event list", "processes:list_events", "--kind failed --since 1d"),
    Command("listener list", "service:list_listeners"),
    Command("listener resume", "service:resume_listener", "hooks"),
    Command("series show", "service:show_series", "threads-busy queue-tasks --label default --since 6h"),
    Command("trash list", "maintenance:list_trash"),
    Command("trash show", "maintenance:show_trash", "01a1ffb2"),
    Command("trash restore", "maintenance:restore_trash", "01a1ffb2"),
    Command("trash empty", "maintenance:empty_trash", "sales.db.orders"),
    Command("lease take", "maintenance:take_lease", "sales.db.orders --snapshot 3051729675574597004 --for 3d"),
    Command("lease renew", "maintenance:renew_lease", "01a1ffb2 --for 3d"),
    Command("lease release", "maintenance:release_lease", "01a1ffb2"),
    Command("lease list", "maintenance:list_leases", "sales.db.orders"),
    Command(
        "optimizer run",
        "optimizers:run",
        "--address coordinator:1261 --threads 4 --memory 512MB --token-file enrolment.token",
        options=(*LOCAL, *TRUST),
        has_output=False,
    ),
    Command("optimizer list", "optimizers:list_optimizers"),
    Command("optimizer drain", "optimizers:drain", "01997a4c"),
    Command("optimizer release", "optimizers:release", "01997a4c"),
    Command("optimizer status", "optimizers:status", "01997a4c"),
    Command("optimizer logs", "optimizers:logs", "01997a4c --lines 20"),
    Command("optimizer kill", "optimizers:kill", "01997a4c"),
    Command("optimizer package", "optimizers:package", "--file amoro.tar.gz", options=()),
    Command("group create", "groups:create", "nightly --container local --property threads=2"),
    Command("group list", "groups:list_groups"),
    Command("group show", "groups:show", "default"),
    Command("group queue", "groups:queue", "default"),
    Command("group jobs", "groups:jobs", "nightly --limit 20"),
    Command("group update", "groups:update", "nightly --policy quota"),
    Command("group scale", "groups:scale", "nightly 2"),
    Command("group remove", "groups:remove", "nightly"),
    Command(
        "catalog add", "catalogs:add", "sales type=sql uri=sqlite:////data/catalog.db warehouse=file:///data/warehouse"
    ),
    Command("catalog list", "catalogs:list_catalogs"),
    Command("catalog show", "catalogs:show", "sales"),
    Command("catalog update", "catalogs:update", "sales uri=http://catalog:8181 --unset token"),
    Command("catalog remove", "catalogs:remove", "sales"),
    Command("policy apply", "catalogs:apply_policies", "-f policies.yaml --dry-run"),
    Command("policy show", "catalogs:show_policies", "--version 3"),
    Command("namespace create", "catalogs:create_namespace", "lake.db --property owner=ann"),
    Command("namespace list", "catalogs:list_namespaces", "lake"),
    Command("namespace drop", "catalogs:drop_namespace", "lake.db --dry-run"),
    Command("config show", "service:show_config", "--origin"),
    Command("token create", "access:create", "airflow --role operator --on 'sales.**' -o name > airflow.token"),
    Command("token list", "access:list_tokens"),
    Command("token revoke", "access:revoke", "airflow"),
    Command("user add", "access:add", "ann --role operator --on 'sales.**'"),
    Command("user list", "access:list_users"),
    Command("user update", "access:update", "ann --role admin"),
    Command("user password", "access:password", "ann"),
    Command("user remove", "access:remove", "ann"),
    Command("audit list", "access:list_audit", "--since 1d --outcome refused"),
    Command("monitoring export", "service:export", "/etc/prometheus/amoro", options=("debug",)),
    Command("state show", "service:show_state"),
    Command("state backup", "service:backup", "amoro-backup.db"),
    Command("state check", "service:check"),
)
GROUPS = {
    "table": "Tables: their health, and whether they are optimized.",
    "process": "Optimizing processes: what runs and what ran.",
    "cluster": "Clustering: the order of rows in files. amoro optimize TABLE --type cluster brings them into it.",
    "task": "Tasks of processes: one set of files each, rewritten together.",
    "event": "Events: what happened to tables, processes and optimizers.",
    "listener": "Listeners: what gets events, and how far it is.",
    "series": "Series: values over time, of the system, groups and tables.",
    "trash": "Trash: files marked for deletion that are still there.",
    "lease": "Leases: snapshots that are kept for a while.",
    "optimizer": "Optimizers: the processes that rewrite files.",
    "group": "Optimizer groups: which optimizers work for which tables.",
    "catalog": "Catalogs: where tables come from.",
    "policy": "Policies: defaults of table properties by patterns of names.",
    "namespace": "Namespaces of catalogs of the kind internal.",
    "config": "Settings of the coordinator.",
    "token": "Manage access tokens.",
    "user": "Manage users, who log in to the dashboard.",
    "audit": "The audit log: who changed what.",
    "monitoring": "Monitoring: files for Prometheus and Grafana.",
    "state": "The state database: copies and checks.",
}


class LazyGroup(TyperGroup):
    """A group whose commands are loaded when they are named, or listed in its help."""

    format_options = _write_options

    def __init__(self, *args: Any, prefix: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._prefix = prefix
        self.commands = cast(Any, dict.fromkeys(_names(prefix)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = self._load(cmd_name)
        return self.commands.get(cmd_name)

    def _load(self, name: str) -> Any:
        path = f"{self._prefix} {name}".lstrip()
        if path not in GROUPS:
            return _load(next(command for command in COMMANDS if command.path == path))
        own = [command for command in COMMANDS if command.path.startswith(f"{path} ")]
        listing = (command.example for command in own if command.path == f"{path} list")
        return LazyGroup(
            name=name,
            prefix=path,
            help=with_example(GROUPS[path], next(listing, own[0].example)),
            no_args_is_help=True,
            context_settings=CONTEXT_SETTINGS,
            rich_markup_mode=None,
        )


def _names(prefix: str) -> Iterator[str]:
    """The commands of the group in the order of the table; of the program also the groups."""
    for command in COMMANDS:
        group, _, name = command.path.rpartition(" ")
        if group == prefix:
            yield name
    if not prefix:
        yield from GROUPS


def with_example(text: str, example: str) -> str:
    """The help of a command; the mark keeps the example's line unwrapped."""
    return f"{text}\n\n\b\nExample:\n  {example}"


def _load(command: Command) -> Any:
    """The command, which also takes its global options after its name; they override those before it."""
    module, name = command.function.split(":")
    function: Callable[..., None] = getattr(import_module(f"amoro_cli.commands.{module}"), name)

    def run(ctx: typer.Context, **given: Any) -> None:
        # The root context holds the options before the command; a group's own object is for completion.
        session: Session = ctx.find_root().obj
        own = {option: value for option in command.options if (value := given.pop(option))}
        output = given.pop("output") if has_output else session.output
        function(replace(session, options=replace(session.options, **own), output=output), **given)

    context = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    own = [*signature(function, eval_str=True).parameters.values()][1:]
    has_output = command.has_output and all(parameter.name != "output" for parameter in own)
    keywords = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own] + [OUTPUT] * has_output
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    about = with_example(getdoc(function) or "", command.example)
    decorate = app.command(command.path.rpartition(" ")[2], cls=HelpfulCommand, help=about)
    decorate(with_parameters(run, [context, *keywords, *global_parameters(command.options)]))
    return typer.main.get_command(app)
