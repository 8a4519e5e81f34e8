"""Clustering as a kind of work."""

from collections.abc import Mapping

from amoro_core.failpoints import failpoint
from amoro_core.files.io import FileAccess
from amoro_core.protocol.cluster_codec import decode_cluster_input, decode_cluster_output, encode_cluster_output
from amoro_optimizer.cluster.engine import cluster
from amoro_optimizer.running import Run, access_for


class ClusterKind:
    """Work of the kind `cluster`: a group of files written anew, in the order of a layout."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        return access_for(decode_cluster_input(payload).rewrite, io_properties)

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        failpoint("task.before_write")
        output = cluster(
            decode_cluster_input(payload),
            access,
            run.attempt,
            on_progress=run.on_progress,
            on_stage=run.on_stage,
            is_cancelled=run.is_cancelled,
            memory_limit_bytes=run.memory_bytes,
        )
        return encode_cluster_output(output)

    def files(self, result: bytes) -> frozenset[str]:
        return frozenset(file.path for file in decode_cluster_output(result).rewrite.data_files)
