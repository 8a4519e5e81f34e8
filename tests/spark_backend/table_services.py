"""Services of Hudi and Paimon tables whose drivers and coordinator are killed, and services beside a writer.

With PySpark 3.5, `python -m tests.spark_backend.table_services kills SEED` prints what was counted, as JSON; so does
`… beside COMMITS`.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.acceptance.processes import Installation, Process, address_of, install, wait_until
from tests.spark.session import FORMAT_JARS, HUDI_JAR, Application
from tests.spark.test_paimon import Table
from tests.spark_backend import hudi_tables as hudi
from tests.spark_backend.hudi_tables import SHARED, execute, service
from tests.spark_backend.spark import Call, is_alive, java_of, kill, spark_optimizer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from amoro_optimizer.backends.spark.driver import SparkBackend

PLAN_EVERY = 5


class Lake:
    """A coordinator with a catalog of Hudi tables, as processes, and the table `lake.db.t`."""

    def __init__(self, installation: Installation, template: Path, port: int = 0) -> None:
        self.installation, self.ask = installation, installation.ask
        self.place = installation.directory / "lake" / "db" / "t"
        shutil.copytree(template, self.place)
        hudi.state(self.place, **SHARED)
        self.coordinator = installation.up()
        self.address = address_of(self.coordinator)
        self.ask("catalog", "add", "lake", "type=hudi", f"warehouse={self.place.parents[1].as_uri()}")

    def optimizer(self, jars: Sequence[Path] = (HUDI_JAR,)) -> Process:
        given = ",".join(map(str, jars))
        return spark_optimizer(self.installation, self.address, "local[3]", "--jars", given)

    def begin(self, table: str = "lake.db.t", action: str = "hudi-compact") -> str:
        return str(self.ask("table", "maintain", table, "--action", action)["process_id"])

    def restart(self) -> None:
        """Kill the coordinator, and start one at its address."""
        self.coordinator.kill()
        self.coordinator = self.installation.up(port=int(self.address.rpartition(":")[2]))

    def wait_for_task(self, optimizer: Process, processes: Sequence[str]) -> None:
        """Until the optimizer has begun one, or the processes have ended."""
        ended = self.installation.ended
        wait_until(lambda: "task.started" in optimizer.output or all(map(ended, processes)), "a task has begun")

    def ended(self, process_id: str) -> dict[str, Any]:
        return wait_until(lambda: self.installation.ended(process_id), "the process ends")


def kill_rounds(
    installation: Installation, spark: SparkSession, template: Path, seed: int, rounds: int
) -> Counter[str]:
    """In each round three tables are written and serviced, while the driver is killed twice, the coordinator too.

    Fails unless each service is done, once, with equal rows for all readers, and is begun again only when the JVM of
    the driver that was lost has ended.
    """
    chance, totals, lake = random.Random(seed), Counter[str](), Lake(installation, template)
    clustered = shutil.copytree(template, lake.place.with_name("u"))
    hudi.state(clustered, **SHARED, **{"table-service.cluster.columns": "name"})
    keyed = Table(installation.directory / "water", "orders", "bucket=2", "table-service.local-files=true")
    lake.ask("catalog", "add", "water", "type=paimon", f"warehouse={keyed.warehouse.as_uri()}")
    jars = (HUDI_JAR, FORMAT_JARS / "paimon-bundle-1.4.2.jar")
    optimizer = lake.optimizer(jars)
    for number in range(1, rounds + 1):
        if number > 1:
            for place in (lake.place, clustered):
                hudi.upsert(spark, place, 7 + number)
            keyed.write_on(installation.directory / f"stop-{number}")
        rows = [hudi.by_hudi(lake.place), hudi.by_hudi(clustered), keyed.read()]
        services = {"lake.db.t": "hudi-compact", "lake.db.u": "hudi-cluster", "water.db.orders": "paimon-compact"}
        processes = [lake.begin(*one) for one in services.items()]
        lake.wait_for_task(optimizer, processes)
        for _ in range(2):  # a task that was lost three times fails
            moment = chance.uniform(0, chance.choice((4, 15)))
            time.sleep(moment)
            if chance.random() < 0.6:
                lake.restart()
                totals["coordinators killed"] += 1
            going_on = [one for one in processes if not installation.ended(one)]
            if not going_on:
                break
            java, victims = java_of(optimizer.popen.pid), chance.choice(("driver", "driver", "both", "JVM"))
            print(f"round {number}: {victims} after {moment:.1f} s, {len(going_on)} services", file=sys.stderr)
            if victims != "JVM":
                optimizer.kill()
            if victims != "driver":
                kill(java)
            totals.update({"drivers killed": 1, f"killed: {victims}": 1, "services interrupted": len(going_on)})
            optimizer.popen.wait(60)
            optimizer = lake.optimizer(jars)
            lake.wait_for_task(optimizer, processes)
            assert not is_alive(java), "the JVM of the lost driver goes on"
        ended = [lake.ended(one) for one in processes]
        assert [one["status"] for one in ended] == ["success"] * 3, json.dumps(ended)
        assert rows == [hudi.by_hudi(lake.place), hudi.by_hudi(clustered), keyed.read()]
        assert rows[:2] == [hudi.by_spark(spark, lake.place), hudi.by_spark(spark, clustered)]
        assert (hudi.log_files(lake.place), hudi.planned(lake.place), hudi.planned(clustered)) == ([], [], [])
        assert list(hudi.completed(lake.place, "commit").values()) == [1] * number
        assert list(hudi.completed(clustered, "replacecommit").values()) == [1] * number
        users = [one.user.partition("_")[0] for one in keyed.loaded().timeline if one.action == "COMPACT"]
        assert len(set(users)) == len(users) == number, users
        totals.update({"rounds": 1, "services": 3})
    return totals


def compact_beside(backend: SparkBackend, spark: SparkSession, place: Path, commits: int) -> Counter[str]:
    """Execute the plans that a writer without a lock makes beside it; fails unless each is done once and rows equal."""
    inline = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": str(PLAN_EVERY)}
    writing = Call(lambda: [hudi.upsert(spark, place, number, inline) for number in range(commits)])
    writing.start()
    done = []
    while writing.is_alive() or hudi.planned(place):
        for instant in hudi.planned(place):
            assert not execute(backend, service("compact", place, instant)).nothing_to_do
            done.append((instant, writing.is_alive()))
        time.sleep(0.1)
    assert writing.raised is None, writing.raised
    assert hudi.completed(place, "commit") == dict.fromkeys((instant for instant, _ in done), 1)
    assert len(done) >= commits // PLAN_EVERY - 1
    assert hudi.by_spark(spark, place) == hudi.by_hudi(place) == hudi.written(commits)
    beside = sum(is_beside for _, is_beside in done)
    return Counter({"commits": commits, "plans compacted": len(done), "of these beside the writer": beside})


def main(what: str, number: int) -> None:
    with tempfile.TemporaryDirectory(prefix="amoro-services-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        application = Application(directory)
        try:
            if what == "beside":
                totals = compact_beside(application.backend, application.session, directory / "t", number)
            else:
                hudi.seven_upserts(application.session, directory / "template")
                installation = install(directory)
                try:
                    totals = kill_rounds(installation, application.session, directory / "template", number, rounds=4)
                finally:
                    installation.close()
                    print(*(text for pair in installation.logs() for text in pair), sep="\n", file=sys.stderr)
        finally:
            application.close()
    print(json.dumps(totals))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
