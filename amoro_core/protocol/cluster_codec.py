"""The work of a clustered group and its result, as messages and back."""

from amoro_core.model.clustering import ClusterInput, ClusterOutput, Layout, LayoutKey, StageFacts, Strategy
from amoro_core.protocol import cluster_pb2 as pb
from amoro_core.protocol.codec import decode_input, decode_output, encode_input, encode_output


def encode_layout(layout: Layout) -> pb.Layout:
    """The layout as a message."""
    keys = [
        pb.LayoutKey(
            field_id=key.field_id, transform=key.transform, descending=key.descending, nulls_last=key.nulls_last
        )
        for key in layout.keys
    ]
    return pb.Layout(strategy=layout.strategy.value, keys=keys, curve_version=layout.curve_version)


def decode_layout(message: pb.Layout) -> Layout:
    """The layout in the message. Raises ValueError for an unknown strategy."""
    keys = tuple(LayoutKey(key.field_id, key.transform, key.descending, key.nulls_last) for key in message.keys)
    return Layout(Strategy(message.strategy), keys, message.curve_version)


def encode_cluster_input(work: ClusterInput) -> bytes:
    """The input as the payload of its work, the same bytes each time."""
    return pb.ClusterInput(
        rewrite=encode_input(work.rewrite),
        layout=encode_layout(work.layout),
        sort_order_id=work.sort_order_id,
        group_id=work.group_id,
        seed=work.seed,
    ).SerializeToString(deterministic=True)


def decode_cluster_input(payload: bytes) -> ClusterInput:
    """The input in the payload. Raises ValueError for an unknown strategy."""
    message = pb.ClusterInput.FromString(payload)
    return ClusterInput(
        rewrite=decode_input(message.rewrite),
        layout=decode_layout(message.layout),
        group_id=message.group_id,
        seed=message.seed,
        sort_order_id=message.sort_order_id,
    )


def encode_cluster_output(output: ClusterOutput) -> bytes:
    """The output as the payload of a result, the same bytes each time."""
    return pb.ClusterOutput(
        rewrite=encode_output(output.rewrite),
        cuts=output.cuts,
        stages=[pb.StageFacts(name=one.name, core_ms=one.core_ms, rows=one.rows) for one in output.stages],
        shuffle_bytes=output.shuffle_bytes,
        spill_bytes=output.spill_bytes,
    ).SerializeToString(deterministic=True)


def decode_cluster_output(payload: bytes) -> ClusterOutput:
    """The output in the payload."""
    message = pb.ClusterOutput.FromString(payload)
    return ClusterOutput(
        rewrite=decode_output(message.rewrite),
        cuts=message.cuts,
        stages=tuple(StageFacts(one.name, one.core_ms, one.rows) for one in message.stages),
        shuffle_bytes=message.shuffle_bytes,
        spill_bytes=message.spill_bytes,
    )
