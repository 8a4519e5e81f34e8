"""A group whose optimizers are processes of the coordinator's machine: scaled, killed, adopted, drained."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import psutil

from tests.acceptance.processes import Installation, free_port, wait_until
from tests.acceptance.tables import assert_optimized_once, look, name_of, partitioned_table

GROUP = "workers"


def instances(installation: Installation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = installation.ask("group", "show", GROUP)["instances"]
    return found


def registered(installation: Installation, count: int, *, besides: frozenset[str] = frozenset()) -> dict[str, int]:
    """The processes of so many instances that run and are registered, by resource, once there are no others."""

    def found() -> dict[str, int] | None:
        listed = instances(installation)
        ready = {
            item["resource_id"]: int(item["handle"])
            for item in listed
            if item["state"] == "running" and item["optimizer_id"] and item["resource_id"] not in besides
        }
        return ready if len(ready) == len(listed) == count else None

    return wait_until(found, f"{count} instances are registered")


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def stop_all(installation: Installation) -> None:
    """End what a failed test has left."""
    for process in psutil.process_iter():
        try:
            if any(str(installation.home) in word for word in process.cmdline()) and "optimizer" in process.cmdline():
                process.kill()
        except psutil.Error:
            continue


def create(installation: Installation, container: str, *properties: str) -> None:
    given = [word for item in ("threads=1", *properties) for word in ("--property", item)]
    made = installation.run("group", "create", GROUP, "--container", container, "--memory", "256MB", *given)
    assert made.status == 0, made.stderr


SUBMIT = """#!{python}
import os, sys
if os.path.exists({broken!r}):
    sys.exit("no room on the cluster")
own = sys.argv[next(at for at, word in enumerate(sys.argv) if word.endswith("optimizer.py")) + 1 :]
os.execv(sys.executable, [sys.executable, "-m", "amoro_core", *(word for word in own if word != "--backend=spark")])
"""


def test_a_spark_submit_that_fails_ends_in_a_condition_with_its_log_and_recovers(impatient: Installation) -> None:
    """Spark's command is a stand-in: after some failures it runs an optimizer of this installation."""
    submit, broken = impatient.directory / "spark" / "bin" / "spark-submit", impatient.directory / "broken"
    submit.parent.mkdir(parents=True)
    submit.write_text(SUBMIT.format(python=sys.executable, broken=str(broken)))
    submit.chmod(0o755)
    broken.touch()
    place = {"SPARK_HOME": str(submit.parents[1])}
    coordinator = impatient.start("up", "--port", "0", "--without-optimizer", environment=place)
    coordinator.wait_for("amoro listens on")
    table = partitioned_table(impatient.catalog, {"self-optimizing.group": GROUP})
    create(impatient, "spark", "max-instances=1", "idle-timeout=2s", "max-failed-starts=9")
    try:
        planned = impatient.ask("optimize", name_of(table), "--type", "full")
        raised = "instances-cannot-start"

        def conditions() -> set[str]:
            return {one["name"] for one in impatient.run("status", "-o", "json").document["conditions"]}

        wait_until(lambda: raised in conditions(), "the condition is raised")
        failing = impatient.ask("group", "show", GROUP)
        assert "no room on the cluster (amoro optimizer logs " in failing["start_failure"]
        causes = [one["cause"] for one in impatient.ask("group", "jobs", GROUP)["jobs"][1:]]
        assert {"no room on the cluster" in cause for cause in causes} == {True}
        broken.unlink()
        process = wait_until(lambda: impatient.ended(planned["process_id"]), "the process ends")
        assert process["status"] == "success"
        wait_until(lambda: instances(impatient) == [], "nothing is left without work")
        wait_until(lambda: raised not in conditions(), "the condition is gone")
        assert impatient.ask("group", "jobs", GROUP)["jobs"][0]["cause"] == "it had no task for 2 s"
    finally:
        stop_all(impatient)


def test_instances_of_a_group_are_kept_adopted_and_drained(impatient: Installation) -> None:
    port = free_port()
    coordinator = impatient.up(port=port)
    token = (impatient.home / "enrolment.token").read_text().strip()
    table = partitioned_table(impatient.catalog, {"self-optimizing.group": GROUP})
    before = look(table)
    create(impatient, "local")
    try:
        scaled = impatient.ask("group", "scale", GROUP, "2")
        assert (scaled["container"], scaled["wanted_instances"]) == ("local", 2)
        first = registered(impatient, 2)
        for pid in first.values():
            command = psutil.Process(pid).cmdline()
            assert (command[1:5], f"--group={GROUP}" in command) == (["-m", "amoro_core", "optimizer", "run"], True)
            assert not any(token in word for word in command)
        outcome = impatient.run("optimize", name_of(table), "--type", "full", "--wait")
        assert outcome.status == 0, outcome.stderr
        assert_optimized_once(table, before, files=3)

        killed, kept = sorted(first)
        stands = impatient.ask("optimizer", "status", killed)
        assert (stands["group"], stands["state"], stands["liveness"]) == (GROUP, "running", "alive")
        assert stands["handle"] == str(first[killed])
        said = impatient.ask("optimizer", "logs", stands["optimizer_id"], "--lines", "10000")
        assert said["resource_id"] == killed
        assert any("optimizer.registered" in line for line in said["lines"])
        os.kill(first[killed], signal.SIGKILL)
        second = registered(impatient, 2, besides=frozenset({killed}))
        assert second[kept] == first[kept]

        coordinator.kill()
        coordinator = impatient.up(port=port)
        assert registered(impatient, 2) == second
        assert coordinator.terminate() == 0
        coordinator.wait_for(f"Still running for the next amoro up: 2 optimizers of group {GROUP}. To end: kill ")
        running = coordinator.output.split("To end: kill ")[1].splitlines()[0].split()
        assert {int(pid) for pid in running} == {*second.values()}
        coordinator = impatient.up(port=port)
        assert registered(impatient, 2) == second

        stopped = impatient.ask("optimizer", "kill", kept)
        assert (stopped["resource_id"], stopped["state"]) == (kept, "stopping")
        second = registered(impatient, 2, besides=frozenset({kept}))
        wait_until(lambda: not is_running(first[kept]), "the killed process is gone")
        # It is forgotten, but not what it said.
        ended = impatient.ask("optimizer", "logs", kept, "--lines", "10000")["lines"]  # many, on a busy machine
        assert any("optimizer.registered" in line for line in ended)

        impatient.ask("group", "scale", GROUP, "1")
        last = registered(impatient, 1)
        assert last.items() <= second.items()
        (gone,) = second.keys() - last.keys()
        wait_until(lambda: not is_running(second[gone]), "the drained process ends")
        log = (impatient.home / "logs" / f"optimizer-{gone}.log").read_text()
        assert "optimizer.draining" in log
        assert "optimizer.deregistered" in log

        impatient.ask("group", "scale", GROUP, "0")
        wait_until(lambda: instances(impatient) == [], "no instance is left")
        assert not any(is_running(pid) for pid in {**first, **second}.values())
        assert impatient.ask("optimizer", "list")["optimizers"] == []
        assert token not in coordinator.output
        assert all(token not in path.read_text() for path in (impatient.home / "logs").iterdir())
    finally:
        stop_all(impatient)
