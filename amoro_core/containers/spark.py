"""Spark's cluster mode: commands for YARN and Kubernetes. Handles begin with the master's name."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amoro_core.containers.local import LocalContainer, optimizer_arguments
from amoro_core.errors import AmoroError, InvalidArgument
from amoro_core.model.group_config import ADDRESS, TOKEN_FILE, Launch, Liveness, Observation, Resource
from amoro_core.model.text_sanitizing import is_secret, without_secrets

_NAMESPACE = "spark-conf.spark.kubernetes.namespace"
#: Assumed length of a long log line; YARN counts bytes.
_LINE_BYTES = 1024


class Yarn:
    """YARN. spark-submit can't request an application's status; the command `yarn` can. Handle: yarn|application id."""

    prefix = "yarn"  # of its masters, and of the handles
    needs_token_file = False  # whether spark-submit can't ship the enrolment token to the driver

    def prepare(self, launch: Launch, token_file: str | None) -> tuple[str, list[str]]:
        """The path of the token on the driver, and further arguments of spark-submit."""
        # A file of --files is copied to the driver's directory, and to a staging directory that only the user can read.
        shipped = [] if token_file else [f"--files={launch.token_file}#enrolment.token"]
        no_wait = ["--conf", "spark.yarn.submit.waitAppCompletion=false"]
        return token_file or "enrolment.token", [*no_wait, *shipped]

    def handle(self, launch: Launch, output: str) -> str:
        """The handle of the application that spark-submit started, from its output; "" when unknown."""
        matches = re.findall(r"\bapplication_\d+_\d+\b", output)
        return f"{self.prefix}|{matches[-1]}" if matches else ""

    def status_command(self, handle: str, submit: Callable[[], str]) -> list[str]:
        return ["yarn", "application", "-status", _id(handle)]

    def parse_status(self, output: str) -> Observation:
        return _observation(output, r"State\s*:")

    def kill_command(self, handle: str, submit: Callable[[], str]) -> list[str]:
        return ["yarn", "application", "-kill", _id(handle)]

    def logs_command(self, handle: str, lines: int) -> list[str]:
        return ["yarn", "logs", "-applicationId", _id(handle), "-size", f"-{lines * _LINE_BYTES}"]


class Kubernetes:
    """Kubernetes. We name the driver's pod. Handle: master|namespace:pod, the form of spark-submit."""

    prefix = "k8s://"
    needs_token_file = True

    def prepare(self, launch: Launch, token_file: str | None) -> tuple[str, list[str]]:
        settings = (
            "spark.kubernetes.submission.waitAppCompletion=false",
            f"spark.kubernetes.driver.pod.name={_pod(launch)}",
        )
        return token_file or "", [word for item in settings for word in ("--conf", item)]

    def handle(self, launch: Launch, output: str) -> str:
        properties = dict(launch.properties)
        return f"{properties['spark-master']}|{properties.get(_NAMESPACE, 'default')}:{_pod(launch)}"

    def status_command(self, handle: str, submit: Callable[[], str]) -> list[str]:
        return [submit(), f"--master={handle.rpartition('|')[0]}", "--status", _id(handle)]

    def parse_status(self, output: str) -> Observation:
        """A pod that was deleted is not found."""
        if "Application not found." in output or "No applications found." in output:
            return Observation(Liveness.ENDED, "its pod is gone")
        return _observation(output, "phase:")

    def kill_command(self, handle: str, submit: Callable[[], str]) -> list[str]:
        return [submit(), f"--master={handle.rpartition('|')[0]}", "--kill", _id(handle)]

    def logs_command(self, handle: str, lines: int) -> list[str]:
        namespace, _, pod = _id(handle).partition(":")
        return ["kubectl", "logs", f"--namespace={namespace}", f"--tail={lines}", pod]


#: A cluster manager that runs drivers.
Cluster = Yarn | Kubernetes
CLUSTERS: tuple[Cluster, ...] = (Yarn(), Kubernetes())

#: States of YARN and phases of Kubernetes's pods.
_ALIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING", "Pending", "Running")
_ENDED = ("FINISHED", "FAILED", "KILLED", "Succeeded", "Failed")


def _observation(output: str, label: str) -> Observation:
    """By the word after the last occurrence of a label at the start of a line."""
    states = re.findall(rf"(?m)^\s*{label}\s*(\w+)", output)
    if states and states[-1] in _ENDED:
        return Observation(Liveness.ENDED, f"its application is {states[-1].lower()}")
    return Observation(Liveness.ALIVE if states and states[-1] in _ALIVE else Liveness.UNKNOWN)


def _id(handle: str) -> str:
    return handle.rpartition("|")[2]


def _pod(launch: Launch) -> str:
    return f"amoro-{launch.resource_id}"


MASTER = "spark-master"
DEPLOY_MODE = "spark-deploy-mode"
APPLICATION = "spark-application"
JARS = "spark-jars"
CONF = "spark-conf."
KEYS = (MASTER, DEPLOY_MODE, APPLICATION, JARS)

DEFAULT_MASTER = "local[*]"
CLIENT, CLUSTER = "client", "cluster"
#: Names and mount points of Kubernetes secrets, which are not secret themselves.
_REFERENCE = re.compile(r"spark\.kubernetes\.(driver|executor)\.(secrets|secretKeyRef)\.")
SUBMIT_S = 300.0
QUERY_S = 60.0


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """The properties of a group that configure its Spark applications."""

    master: str
    deploy_mode: str
    application: str  # "": that of this installation
    settings: tuple[tuple[str, str], ...]
    jars: str = ""  # paths, with commas in between

    @property
    def cluster(self) -> Cluster | None:
        """Where the driver runs in cluster mode."""
        clusters = (cluster for cluster in CLUSTERS if self.master.startswith(cluster.prefix))
        return next(clusters, None) if self.deploy_mode == CLUSTER else None


def parse_spark(properties: Mapping[str, str]) -> SparkConfig:
    """The parsed properties. Raises InvalidArgument, also for secrets, which a command line would show."""
    settings = {key.removeprefix(CONF): value for key, value in properties.items() if key.startswith(CONF)}
    for key in sorted(key for key in settings if is_secret(key) and not _REFERENCE.match(key)):
        raise InvalidArgument(
            f"{CONF}{key} would be on a command line, which every user of the machine can read",
            hint="Put it into spark-defaults.conf, or let the file system find it in its own configuration.",
        )
    config = SparkConfig(
        properties.get(MASTER, DEFAULT_MASTER),
        properties.get(DEPLOY_MODE, CLIENT),
        properties.get(APPLICATION, ""),
        tuple(sorted(settings.items())),
        properties.get(JARS, ""),
    )
    if config.deploy_mode not in (CLIENT, CLUSTER):
        raise InvalidArgument(f"{DEPLOY_MODE} has the malformed value {config.deploy_mode!r}: client or cluster")
    if config.deploy_mode == CLUSTER:
        _check_cluster(config, properties)
    return config


def _check_cluster(config: SparkConfig, properties: Mapping[str, str]) -> None:
    cluster = config.cluster
    if cluster is None:
        raise InvalidArgument(
            f"Spark's master {config.master} runs no Python application in cluster mode",
            hint=f"Give {DEPLOY_MODE}=client, or a master yarn or k8s://….",
        )
    if ADDRESS not in properties:
        raise InvalidArgument(f"in cluster mode an optimizer must be told where the coordinator is: {ADDRESS}")
    if cluster.needs_token_file and TOKEN_FILE not in properties:
        raise InvalidArgument(
            f"an optimizer on {config.master} must find the enrolment token there: {TOKEN_FILE}",
            hint="Mount it as a secret: spark-conf.spark.kubernetes.driver.secrets.NAME=/path, and name the file.",
        )


class SparkContainer(LocalContainer):
    """In client mode spark-submit, with the driver, is a process of this machine; in cluster mode it only submits."""

    #: In cluster mode each request starts a JVM.
    status_interval_s = 30.0

    def __init__(self, home: Path, submit: str | None = None) -> None:
        super().__init__(home)
        self._submit = submit

    def check(self, properties: Mapping[str, str]) -> None:
        """Raises InvalidArgument."""
        parse_spark(properties)

    def start(self, launch: Launch) -> str:
        """In cluster mode returns once the cluster has accepted it, else at once. Raises AmoroError."""
        properties = dict(launch.properties)
        config = parse_spark(properties)
        command = submit_command(launch, config, self._spark_submit())
        if config.cluster is None:
            # The driver's Python is ours: amoro is installed there.
            return self.run(launch.resource_id, command, {"PYSPARK_DRIVER_PYTHON": sys.executable})
        output = _run(command, SUBMIT_S)
        handle = config.cluster.handle(launch, output)
        if not handle:
            raise AmoroError(f"spark-submit did not report what it started: {_last_line(output)}")
        return handle

    def status(self, resource: Resource) -> Observation:
        cluster = _cluster_of(resource)
        if cluster is None:
            return super().status(resource)
        try:
            return cluster.parse_status(_run(cluster.status_command(resource.handle, self._spark_submit), QUERY_S))
        except AmoroError as error:
            return Observation(Liveness.UNKNOWN, error.message)

    def stop(self, resource: Resource, *, by_force: bool) -> None:
        """Raises AmoroError. In cluster mode an application is killed even when not `by_force`."""
        cluster = _cluster_of(resource)
        if cluster is None:
            super().stop(resource, by_force=by_force)
            return
        _run(cluster.kill_command(resource.handle, self._spark_submit), QUERY_S)

    def logs(self, resource: Resource, lines: int) -> list[str]:
        """In cluster mode, the logs that the cluster returns; empty when they can't be requested."""
        cluster = _cluster_of(resource)
        if cluster is None:
            return super().logs(resource, lines)
        try:
            output = _run(cluster.logs_command(resource.handle, lines), QUERY_S)
        except AmoroError:
            return []
        return [without_secrets(line) for line in output.splitlines() if line.strip()][-lines:]

    def _spark_submit(self) -> str:
        """The path of spark-submit. Raises InvalidArgument when there is none."""
        if self._submit is not None:
            return self._submit
        home = os.environ.get("SPARK_HOME", "")
        places = (f"{home}/bin" if home else "", str(Path(sys.executable).parent))
        program = next(
            (path for place in places if place and (path := shutil.which("spark-submit", path=place))),
            shutil.which("spark-submit"),
        )
        if program is None:
            raise InvalidArgument(
                "spark-submit was not found", hint="Install it with: pip install 'amoro[spark]', or set SPARK_HOME."
            )
        return program


def submit_command(launch: Launch, config: SparkConfig, submit: str) -> list[str]:
    """The command line that starts the optimizer; it contains only the name of the enrolment token's file."""
    properties, cluster = dict(launch.properties), config.cluster
    token_file = properties.get(TOKEN_FILE, str(launch.token_file))
    extra: Sequence[str] = ()
    if cluster is not None:
        token_file, extra = cluster.prepare(launch, properties.get(TOKEN_FILE))
    settings = {"spark.app.name": f"amoro-{launch.group}", **dict(config.settings)}
    arguments = optimizer_arguments(launch, token_file)
    return [
        submit,
        f"--master={config.master}",
        f"--deploy-mode={config.deploy_mode}",
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        *([f"--jars={config.jars}"] if config.jars else []),
        *extra,
        config.application or str(application_file()),
        *arguments,
        "--backend=spark",
        *([f"--jars={config.jars}"] if config.jars else []),
    ]


def application_file() -> Path:
    """What spark-submit runs: a file of this installation."""
    return Path(__file__).parents[1] / "submit" / "optimizer.py"


def _cluster_of(resource: Resource) -> Cluster | None:
    """The cluster where the resource's driver runs; None: on this machine, or unknown."""
    return next((cluster for cluster in CLUSTERS if resource.handle.startswith(cluster.prefix)), None)


def _run(command: Sequence[str], seconds: float) -> str:
    """The output of a successful command. Raises AmoroError with its last line on failure."""
    try:
        ended = subprocess.run(  # noqa: S603 - a list, no shell
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AmoroError(f"{command[0]} can't be run: {error}") from error
    if ended.returncode:
        raise AmoroError(f"{command[0]} ended with status {ended.returncode}: {_last_line(ended.stdout)}")
    return ended.stdout


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return without_secrets(lines[-1]) if lines else "it printed nothing"
