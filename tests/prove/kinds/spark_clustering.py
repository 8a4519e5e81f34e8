"""A table of more than 1 GB that a Spark cluster clusters, parts of which are killed."""

from __future__ import annotations

from collections import Counter

from tests.prove.kinds.spark_cluster import optimize_and_kill

NAME = "spark-clustering"
WHAT = (
    "As `spark-cluster`, with a table that is clustered: each of its twelve partitions is a group, and a job of three "
    "stages. An executor, a worker and the driver are killed while rows are written. A mismatch is the same."
)
TARGETS = {"megabytes optimized": 1000}
SECONDS = 400.0
REPLAYS = False  # what is lost depends on the moment

#: One commit of all groups.
WHOLE = {"self-optimizing.cluster.partial-progress": "false"}


def run(seed: int, totals: Counter[str]) -> None:
    optimize_and_kill(f"db.clustered{seed}", ("--type", "cluster", "--columns", "payload"), WHOLE, totals)
