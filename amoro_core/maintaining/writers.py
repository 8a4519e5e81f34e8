"""Exactly-once writers that keep their progress in snapshot summaries, and find it again by walking back from a
branch's head through the parents."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

_KAFKA_OFFSETS = "kafka.connect.offsets."


@dataclass(frozen=True, slots=True, order=True)
class Writer:
    """One writer, identified by its key and id among others on the same branch."""

    kind: str  # for display: "Flink", "Spark", "Kafka Connect", or the key that properties name
    name: str  # the job, the query, or the consumer; "" if the key identifies it

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


def writers_of(summary: Mapping[str, str], keys: Collection[str] = ()) -> Iterator[Writer]:
    """The writers that would find their state in a snapshot with this summary. `keys` are those of further writers."""
    job = summary.get("flink.job-id")
    if job is not None and "flink.max-committed-checkpoint-id" in summary:
        # Flink's committer takes a snapshot without an operator id for that of any operator of its job.
        yield Writer("Flink", f"{job} {summary.get('flink.operator-id', '')}".rstrip())
    query = summary.get("spark.sql.streaming.queryId")
    if query is not None and "spark.sql.streaming.epochId" in summary:
        yield Writer("Spark", query)
    for key in summary:
        if key.startswith(_KAFKA_OFFSETS):
            yield Writer("Kafka Connect", key.removeprefix(_KAFKA_OFFSETS))
        elif key in keys:
            yield Writer(key, "")
