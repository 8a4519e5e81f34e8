"""The whole job through a REST catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.model.processes import CatalogConfig, CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine.builders import SPECS
from tests.faults.system import System
from tests.faults.world import World
from tests.tiers import sample


@pytest.mark.parametrize("spec", sample(sorted(SPECS), every=2))
def test_minor_major_and_full_are_committed_through_rest(
    over_rest: CatalogConfig, catalog: SqlCatalog, tmp_path: Path, spec: str
) -> None:
    world = World(catalog, SPECS[spec])
    with System(tmp_path / "home", catalog, over_rest) as system:
        for kind in OptimizingType:
            world.fill()
            process = system.optimized(kind)
            assert process.type == kind
            assert process.status is ProcessStatus.SUCCESS
            assert world.require_ended(system, process.process_id) is ProcessStatus.SUCCESS
            assert [attempt.outcome for attempt in system.attempts(process.process_id)] == [CommitOutcome.DONE]
