"""All kinds of batches, in the order of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol, cast

from tests.prove.kinds import (
    clustering,
    clustering_beside,
    clustering_kills,
    copies,
    decoys,
    differences,
    faults,
    interleavings,
    java,
    java_sweeps,
    kills,
    live,
    maintenance,
    pages,
    rest,
    rewriting,
    schedules,
    shared_places,
    simulation,
    spark_cluster,
    spark_clustering,
    spark_clustering_large,
    tags,
    undoing,
    upkeep,
    vectors,
)


class Kind(Protocol):
    """A module of this package; `tests.prove` says what each name means."""

    NAME: str
    WHAT: str
    TARGETS: Mapping[str, int]
    SECONDS: float
    REPLAYS: bool

    def run(self, seed: int, totals: Counter[str]) -> None: ...


KINDS: Mapping[str, Kind] = {
    kind.NAME: kind
    for kind in (
        cast(Kind, module)
        for module in (
            schedules,
            interleavings,
            rewriting,
            copies,
            differences,
            faults,
            maintenance,
            undoing,
            decoys,
            shared_places,
            java,
            java_sweeps,
            vectors,
            tags,
            kills,
            upkeep,
            live,
            simulation,
            clustering,
            clustering_beside,
            clustering_kills,
            spark_cluster,
            spark_clustering,
            spark_clustering_large,
            rest,
            pages,
        )
    )
}
