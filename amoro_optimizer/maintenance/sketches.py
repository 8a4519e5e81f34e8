"""Sketching the distinct values of columns of some files."""

from collections.abc import Mapping

from amoro_core.files.io import FileAccess, open_access
from amoro_core.files.sketches import ThetaSketch
from amoro_core.protocol import codec
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_optimizer.rewrite.sketching import sketch_rows
from amoro_optimizer.running import Run


class SketchKind:
    """Work of the kind `sketch`."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        table = pb.SketchWork.FromString(payload).table
        return open_access(io_properties, table.location, read_locations=table.read_locations, write_locations=())

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        work = pb.SketchWork.FromString(payload)
        columns = frozenset(work.columns)
        sketches = dict.fromkeys(sorted(columns), ThetaSketch())
        for number, reading in enumerate(work.readings):
            reading.table.CopyFrom(work.table)
            found = sketch_rows(
                codec.decode_input(reading),
                access,
                columns,
                memory_limit_bytes=run.memory_bytes,
                is_cancelled=run.is_cancelled,
            )
            sketches = {field_id: sketch.union(found[field_id]) for field_id, sketch in sketches.items()}
            run.on_progress(number + 1, len(work.readings))
        output = pb.SketchOutput()
        for field_id, sketch in sketches.items():
            output.columns.add(field_id=field_id, theta=sketch.theta, hashes=sketch.hashes.astype("<u8").tobytes())
        return output.SerializeToString(deterministic=True)

    def files(self, result: bytes) -> frozenset[str]:
        return frozenset()
