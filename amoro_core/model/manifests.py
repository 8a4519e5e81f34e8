"""Manifests of a table to be rewritten, and the result."""

from amoro_core.model.commits import StagedCommit
from amoro_core.records import record


@record
class ManifestCluster:
    """Manifests of one content and spec to be merged into fewer, sorted by partition."""

    content: str  # "data" or "delete"
    spec_id: int
    paths: tuple[str, ...]
    size_bytes: int  # of all of them
    entries: int  # live files in them
    reason: str


@record
class ManifestsStaged:
    """A staged snapshot with the same files in other manifests."""

    commit: StagedCommit
    created: int
    replaced: int
    kept: int  # manifests that stay as they are
    entries: int  # entries that were rewritten
    dropped: tuple[str, ...] = ()  # why clusters were left out
