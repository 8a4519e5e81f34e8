"""Spark's cluster mode: commands for YARN and Kubernetes. Handles begin with the master's name."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from amoro_core.model.containers import Launch, Liveness, Observation

_NAMESPACE = "spark-conf.spark.kubernetes.namespace"
#: Assumed length of a long log line; YARN counts bytes.
_LINE_BYTES = 1024


class Cluster(Protocol):
    """A cluster manager that runs drivers."""

    prefix: str  # of its masters, and of the handles
    needs_token_file: bool  # whether spark-submit can't ship the enrolment token to the driver

    def prepare(self, launch: Launch, token_file: str | None) -> tuple[str, list[str]]:
        """The path of the token on the driver, and further arguments of spark-submit."""
        ...

    def handle(self, launch: Launch, said: str) -> str:
        """The handle of the application that spark-submit started, from its output; "" when unknown."""
        ...

    def ask(self, handle: str, submit: Callable[[], str]) -> list[str]:
        """The command that reports the application's status."""
        ...

    def parse_status(self, said: str) -> Observation:
        """The status in that command's output."""
        ...

    def kill(self, handle: str, submit: Callable[[], str]) -> list[str]:
        """The command that ends the application."""

    def ask_logs(self, handle: str, lines: int) -> list[str]:
        """The command that shows the last lines of the driver's log: `lines` of them, or somewhat more."""
        ...


class Yarn:
    """YARN. spark-submit can't request an application's status; the command `yarn` can. Handle: yarn|application id."""

    prefix = "yarn"
    needs_token_file = False

    def prepare(self, launch: Launch, token_file: str | None) -> tuple[str, list[str]]:
        # A file of --files is copied to the driver's directory, and to a staging directory that only the user can read.
        brought = [] if token_file else [f"--files={launch.token_file}#enrolment.token"]
        tell = ["--conf", "spark.yarn.submit.waitAppCompletion=false"]
        return token_file or "enrolment.token", [*tell, *brought]

    def handle(self, launch: Launch, said: str) -> str:
        found = re.findall(r"\bapplication_\d+_\d+\b", said)
        return f"{self.prefix}|{found[-1]}" if found else ""

    def ask(self, handle: str, submit: Callable[[], str]) -> list[str]:
        return ["yarn", "application", "-status", _id(handle)]

    def parse_status(self, said: str) -> Observation:
        """YARN's states: NEW, NEW_SAVING, SUBMITTED, ACCEPTED, RUNNING, FINISHED, FAILED, KILLED."""
        return _observation(_value(said, r"State\s*:"), _YARN_STATES)

    def kill(self, handle: str, submit: Callable[[], str]) -> list[str]:
        return ["yarn", "application", "-kill", _id(handle)]

    def ask_logs(self, handle: str, lines: int) -> list[str]:
        return ["yarn", "logs", "-applicationId", _id(handle), "-size", f"-{lines * _LINE_BYTES}"]


class Kubernetes:
    """Kubernetes. We name the driver's pod. Handle: master|namespace:pod, the form of spark-submit."""

    prefix = "k8s://"
    needs_token_file = True

    def prepare(self, launch: Launch, token_file: str | None) -> tuple[str, list[str]]:
        tell = (
            "spark.kubernetes.submission.waitAppCompletion=false",
            f"spark.kubernetes.driver.pod.name={_pod(launch)}",
        )
        return token_file or "", [word for item in tell for word in ("--conf", item)]

    def handle(self, launch: Launch, said: str) -> str:
        properties = dict(launch.properties)
        return f"{properties['spark-master']}|{properties.get(_NAMESPACE, 'default')}:{_pod(launch)}"

    def ask(self, handle: str, submit: Callable[[], str]) -> list[str]:
        return [submit(), f"--master={handle.rpartition('|')[0]}", "--status", _id(handle)]

    def parse_status(self, said: str) -> Observation:
        """A pod's phases: Pending, Running, Succeeded, Failed; a pod that was deleted is not found."""
        if "Application not found." in said or "No applications found." in said:
            return Observation(Liveness.ENDED, "its pod is gone")
        return _observation(_value(said, "phase:"), _POD_PHASES)

    def kill(self, handle: str, submit: Callable[[], str]) -> list[str]:
        return [submit(), f"--master={handle.rpartition('|')[0]}", "--kill", _id(handle)]

    def ask_logs(self, handle: str, lines: int) -> list[str]:
        namespace, _, pod = _id(handle).partition(":")
        return ["kubectl", "logs", f"--namespace={namespace}", f"--tail={lines}", pod]


CLUSTERS: tuple[Cluster, ...] = (Yarn(), Kubernetes())

_YARN_STATES: Mapping[str, Liveness] = MappingProxyType(
    {
        **dict.fromkeys(("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"), Liveness.ALIVE),
        **dict.fromkeys(("FINISHED", "FAILED", "KILLED"), Liveness.ENDED),
    }
)
_POD_PHASES: Mapping[str, Liveness] = MappingProxyType(
    {
        **dict.fromkeys(("Pending", "Running"), Liveness.ALIVE),
        **dict.fromkeys(("Succeeded", "Failed"), Liveness.ENDED),
    }
)


def _observation(word: str, known: Mapping[str, Liveness]) -> Observation:
    liveness = known.get(word, Liveness.UNKNOWN)
    return Observation(liveness, f"its application is {word.lower()}" if liveness is Liveness.ENDED else "")


def _value(said: str, label: str) -> str:
    """The word after the last occurrence of a label at the start of a line; empty without one."""
    found = re.findall(rf"(?m)^\s*{label}\s*(\w+)", said)
    return found[-1] if found else ""


def _id(handle: str) -> str:
    return handle.rpartition("|")[2]


def _pod(launch: Launch) -> str:
    return f"amoro-{launch.resource_id}"
