"""A process that decodes data manifests for a coordinator, with a socket whose descriptor is its argument.

It gets bytes and returns bytes over that connection: it opens no file, knows no catalog and no secret, and ends when
the coordinator closes the connection or ends.
"""

import json
import signal
import sys
from multiprocessing.connection import Connection

from pyiceberg.types import NestedField, PrimitiveType, StructType

from amoro_core.iceberg.manifest.columns import Listed, read_columns
from amoro_core.scan.column_store import packed_part


def told(listed: Listed) -> bytes:
    """What a worker must know of a manifest beside its bytes."""
    types = StructType(*(NestedField(at, f"f{at}", kind, required=False) for at, kind in enumerate(listed.types)))
    known = (listed.spec_id, listed.sequence_number, listed.live_files, listed.first_row_id, types.model_dump_json())
    return json.dumps(known).encode()


def _heard(data: bytes) -> Listed:
    spec_id, sequence_number, live_files, first_row_id, types = json.loads(data)
    kinds = (field.field_type for field in StructType.model_validate_json(types).fields)
    given = tuple(kind for kind in kinds if isinstance(kind, PrimitiveType))
    return Listed(spec_id, sequence_number, live_files, first_row_id, given)


def serve(connection: Connection) -> None:
    """Answer until the other end is closed: the files of each manifest, or nothing for one that is to be read entry by
    entry."""
    while True:
        try:
            listed = _heard(connection.recv_bytes())
            found = read_columns(connection.recv_bytes(), listed)
            connection.send_bytes(b"" if found is None else packed_part(found))
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends first, and this with it
    serve(Connection(int(sys.argv[1])))
