"""`amoro optimizer run --backend spark --master spark://…`: a cluster of real processes, parts of which are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Installation, address_of, wait_until
from tests.spark_backend.cluster import Cluster, start_cluster
from tests.spark_backend.losses import SETTINGS, large_table, lose_everything_once, threads
from tests.spark_backend.spark import spark_optimizer


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = start_cluster(tmp_path, workers=2, cores=2)
    yield made
    made.close()


@pytest.mark.timeout(1800)  # a busy machine is slow
def test_a_table_of_200_mb_is_optimized_once_although_an_executor_a_worker_and_the_driver_are_killed(
    installation: Installation, cluster: Cluster
) -> None:
    address = address_of(installation.up())
    table = large_table(installation, "db.large", megabytes=200, level=19)
    optimizer = spark_optimizer(installation, address, cluster.master_url, settings=SETTINGS)
    told = lose_everything_once(installation, address, cluster, optimizer, table)
    assert told["megabytes optimized"] >= 200
    assert told["files"] >= 250
    wait_until(lambda: threads(installation) == [2], "a thread for each core that is left")
    another = cluster.add_worker()
    wait_until(lambda: threads(installation) == [4], "threads for the cores of a worker that is back")
    another.kill()
    wait_until(lambda: threads(installation) == [2], "no thread for the cores of a worker that is gone")
