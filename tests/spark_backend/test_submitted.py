"""A group whose optimizers spark-submit starts, in client mode."""

from __future__ import annotations

import psutil

from tests.acceptance.processes import Installation, wait_until
from tests.acceptance.tables import assert_optimized_once, look, name_of, partitioned_table


def test_spark_submit_starts_an_optimizer_that_works_and_drains(installation: Installation) -> None:
    installation.up()
    table = partitioned_table(installation.catalog, {"self-optimizing.group": "spark"})
    before = look(table)
    settings = ("spark-master=local[1]", "spark-conf.spark.ui.enabled=false")
    given = [word for item in settings for word in ("--property", item)]
    made = installation.run("group", "create", "spark", "--container", "spark", *given)
    assert made.status == 0, made.stderr
    installation.ask("group", "scale", "spark", "1")
    leader = 0
    try:
        outcome = installation.run("optimize", name_of(table), "--type", "full", "--wait")
        assert outcome.status == 0, outcome.stderr
        assert_optimized_once(table, before, files=3)
        (instance,) = installation.ask("group", "show", "spark")["instances"]
        (optimizer,) = installation.ask("optimizer", "list")["optimizers"]
        leader = int(instance["handle"])
        assert (optimizer["labels"]["backend"], optimizer["labels"]["master"]) == ("spark", "local[1]")
        assert optimizer["labels"]["resource-id"] == instance["resource_id"]
        assert "org.apache.spark.deploy.SparkSubmit" in psutil.Process(leader).cmdline()

        stands = installation.ask("optimizer", "status", optimizer["optimizer_id"])
        assert (stands["resource_id"], stands["liveness"]) == (instance["resource_id"], "alive")

        installation.ask("group", "scale", "spark", "0")
        wait_until(lambda: installation.ask("group", "show", "spark")["instances"] == [], "no instance is left")
        assert not psutil.pid_exists(leader) or psutil.Process(leader).status() == psutil.STATUS_ZOMBIE
        log = (installation.home / "logs" / f"optimizer-{instance['resource_id']}.log").read_text()
        shown = installation.ask("optimizer", "logs", instance["resource_id"], "--lines", "10000")["lines"]
        assert shown == [line for line in log.splitlines() if line.strip()]
        assert "optimizer.deregistered" in log
        assert (installation.home / "enrolment.token").read_text().strip() not in log
    finally:
        if leader and psutil.pid_exists(leader):
            psutil.Process(leader).kill()
