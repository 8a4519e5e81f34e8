"""Rewriting in the optimizer's own threads: no JVM."""

from collections.abc import Callable, Mapping

from amoro_core.failpoints import failpoint
from amoro_core.files.io import open_access
from amoro_core.model.processes import Attempt
from amoro_core.model.rewrite import RewriteInput, RewriteOutput
from amoro_optimizer.rewrite.engine import rewrite
from amoro_optimizer.rewrite.spilling import default_spill_root, sweep_spills
from amoro_optimizer.runner import Execute


def in_process(memory_bytes: int) -> Execute:
    """An executor that rewrites in the calling thread within that much memory.

    What a killed process has left of its spilled keys is removed first.
    """
    sweep_spills(default_spill_root())

    def execute(
        work: RewriteInput,
        io_properties: Mapping[str, str],
        attempt: Attempt,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
    ) -> RewriteOutput:
        access = open_access(
            io_properties,
            work.table.location,
            read_locations=work.table.read_locations,
            write_locations=(work.table.location, work.table.data_location),
        )
        failpoint("task.before_write")
        return rewrite(
            work,
            access,
            attempt,
            on_progress=on_progress,
            is_cancelled=is_cancelled,
            memory_limit_bytes=memory_bytes,
        )

    return execute
