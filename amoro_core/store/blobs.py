"""Data that tasks need beside their input, in `work_blob`: bytes in pieces, kept until the process ends."""

from collections.abc import Mapping

from amoro_core.store.connection import Connection

#: Bytes of a piece, which is what travels at once.
PIECE_BYTES = 1 << 20


def save_many(db: Connection, process_id: str, blobs: Mapping[str, bytes]) -> None:
    """Store the process's blobs by their SHA-256, replacing its previous ones."""
    remove(db, process_id)
    db.execute_many(
        "INSERT INTO work_blob (process_id, sha256, piece, content) VALUES (:process_id, :sha256, :piece, :content)",
        (
            {
                "process_id": process_id,
                "sha256": sha256,
                "piece": number,
                "content": content[start : start + PIECE_BYTES],
            }
            for sha256, content in blobs.items()
            for number, start in enumerate(range(0, len(content), PIECE_BYTES))
        ),
    )


def find_piece(db: Connection, process_id: str, sha256: str, piece: int) -> bytes | None:
    """The piece of the blob with that number, from 0; None if there is none."""
    row = db.select_one(
        "SELECT content FROM work_blob WHERE process_id = :process_id AND sha256 = :sha256 AND piece = :piece",
        {"process_id": process_id, "sha256": sha256, "piece": piece},
    )
    return None if row is None else bytes(row["content"])


def remove(db: Connection, process_id: str) -> None:
    """Delete the blobs of the process."""
    db.execute("DELETE FROM work_blob WHERE process_id = :process_id", {"process_id": process_id})
