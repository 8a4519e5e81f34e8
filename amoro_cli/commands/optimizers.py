"""amoro optimizer."""

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from amoro_cli.connection import DEFAULT_ADDRESS, Kind, OptimizerOptions, SparkOptions, parse_address, recorded_address
from amoro_cli.context import (
    CONNECTION,
    MEMORY,
    MOST_THREADS,
    Session,
    available_cores,
    default,
    id_argument,
    memory_option,
    option,
    option_parser,
)
from amoro_cli.list_options import ListOptions, list_command, show_list
from amoro_cli.views.services import (
    OPTIMIZERS,
    instance_logs,
    instance_status,
    optimizer_detail,
    optimizer_released,
    package_detail,
)
from amoro_core.errors import InvalidArgument
from amoro_core.model.properties import parse_duration
from amoro_core.protocol import admin_pb2 as pb

OptimizerArgument = Annotated[str, id_argument("ID", "The optimizer's id", Kind.OPTIMIZER)]
InstanceArgument = Annotated[str, id_argument("ID", "The id of the optimizer or of its instance", Kind.OPTIMIZER)]


class Backend(StrEnum):
    """Where an optimizer executes its tasks."""

    STANDALONE = "standalone"
    SPARK = "spark"


_INTERVAL = default("10s")


def _heartbeat(text: str) -> timedelta:
    """A duration; a bare number means milliseconds, as for Amoro's -hb."""
    return parse_duration(f"{text.strip()}ms" if text.strip().isdecimal() else text)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def _spark_options(
    backend: Backend, master: str | None, settings: list[tuple[str, str]] | None, jars: str
) -> SparkOptions | None:
    if backend is Backend.SPARK:
        return SparkOptions(master, tuple(settings or ()), tuple(filter(None, jars.split(","))))
    if master is not None or settings or jars:
        raise InvalidArgument("--master, --spark-conf and --jars are for Spark", hint="Add --backend spark.")
    return None


def run(
    session: Session,
    address: Annotated[
        str | None,
        option(
            "--address",
            "-a",
            metavar="HOST:PORT",
            help=f"The coordinator [default: $AMORO_ADDRESS, else the state directory's, else {DEFAULT_ADDRESS}].",
            rich_help_panel=CONNECTION,
        ),
    ] = None,
    group: Annotated[str, typer.Option("--group", "-g", help="The group whose tasks it takes.")] = "default",
    threads: Annotated[
        int | None,
        option(
            "--threads",
            "-p",
            min=1,
            max=MOST_THREADS,
            help="Tasks that it runs at a time [default: one for each core, also of a Spark cluster].",
        ),
    ] = None,
    memory: Annotated[int, memory_option(help_="Memory of each thread.")] = MEMORY,
    token_file: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help="The enrolment token [default: enrolment.token in the state directory].",
            rich_help_panel=CONNECTION,
        ),
    ] = None,
    heartbeat_interval: Annotated[
        timedelta,
        typer.Option(
            "--heartbeat-interval",
            "-hb",
            metavar="DURATION",
            parser=option_parser(_heartbeat),
            help="How often it reports; a bare number means milliseconds.",
        ),
    ] = _INTERVAL,
    resource_id: Annotated[
        str | None, option("--resource-id", "-id", metavar="ID", help="The id of the resource that it was started as.")
    ] = None,
    backend: Annotated[
        Backend, typer.Option(help="Where tasks run: in its own threads, or in a Spark application.")
    ] = Backend.STANDALONE,
    master: Annotated[
        str | None,
        option(
            metavar="MASTER",
            help="Spark's master, such as local[4] or spark://host:7077 [default: spark-submit's, else local[*]].",
        ),
    ] = None,
    spark_conf: Annotated[
        list[Any] | None,
        option(metavar="KEY=VALUE", parser=option_parser(_setting), help="A setting of Spark; may be repeated."),
    ] = None,
    jars: Annotated[
        str,
        option(
            metavar="FILE[,FILE...]",
            help="Jars for Spark: with Hudi's or Paimon's it services tables of that format, too.",
        ),
    ] = "",
) -> None:
    """Run an optimizer until Ctrl-C or SIGTERM. It asks a coordinator for tasks, and rewrites files."""
    spark = _spark_options(backend, master, spark_conf, jars)
    place = session.place
    named = parse_address(address) if address else place.address
    session.launcher.optimizer(
        OptimizerOptions(
            address=named or recorded_address(place.home, lasting=True) or DEFAULT_ADDRESS,
            group=group,
            threads=threads or (None if spark else available_cores()),
            memory_bytes=memory,
            token_file=token_file or session.options.token_file,
            home=place.home,
            heartbeat_interval=heartbeat_interval,
            resource_id=resource_id,
            spark=spark,
            trust=place.trust,
        )
    )


@list_command(OPTIMIZERS, after="ID", watch=True)
def list_optimizers(
    session: Session, options: ListOptions, group: Annotated[str, option(help="Only those of this group.")] = ""
) -> None:
    """List the optimizers that are registered with the coordinator."""
    there, of_group = (" in the group", f" --group {group}") if group else ("", "")
    nothing = f"No optimizers are registered{there}. Start one with: amoro optimizer run{of_group}"
    show_list(session, options, OPTIMIZERS, pb.ListOptimizersRequest(group=group), nothing)


def drain(session: Session, optimizer_id: OptimizerArgument) -> None:
    """Let an optimizer finish its running tasks and unregister. It gets no new ones."""
    session.change(pb.DrainOptimizerRequest(optimizer_id=optimizer_id), optimizer_detail)


def release(session: Session, optimizer_id: OptimizerArgument) -> None:
    """Unregister an optimizer at once. Its tasks are planned again, its results no longer count.

    An optimizer that is still running leaves.
    """
    session.change(pb.ReleaseOptimizerRequest(optimizer_id=optimizer_id), optimizer_released)


def status(session: Session, instance: InstanceArgument) -> None:
    """Ask the container that started an optimizer for its state."""
    session.show(pb.GetInstanceRequest(id=instance), instance_status)


def logs(
    session: Session,
    instance: InstanceArgument,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=100_000, help="How many of its last lines to show.")
    ] = 100,
) -> None:
    """Show the log of an optimizer that a container started. If it has ended, give the full id of its instance."""
    session.show(pb.GetInstanceLogsRequest(id=instance, lines=lines), instance_logs)


def kill(session: Session, instance: InstanceArgument) -> None:
    """Kill an optimizer that a container started. Its tasks go to others, and its group gets a new one."""
    session.change(pb.KillInstanceRequest(id=instance), instance_status)


def package(
    session: Session,
    file: Annotated[
        Path | None, option(metavar="FILE", help="The archive to write [default: a name that says where it can run].")
    ] = None,
    include: Annotated[
        list[str] | None,
        option(metavar="DISTRIBUTION", help="Also pack this installed distribution, such as s3fs; may be repeated."),
    ] = None,
    without_interpreter: Annotated[
        bool, typer.Option("--without-interpreter", help="Leave Python itself to the executors' machines.")
    ] = False,
) -> None:
    """Pack this installation for the executors of a Spark cluster. They get the archive by spark.archives."""
    packed = session.launcher.package(file, tuple(include or ()), with_interpreter=not without_interpreter)
    session.write(package_detail(packed))
