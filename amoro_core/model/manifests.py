"""Manifests of a table that are to be written anew, and what came of it."""

from dataclasses import dataclass

from amoro_core.model.commits import StagedCommit


@dataclass(frozen=True, slots=True)
class ManifestCluster:
    """Manifests of one content and spec that are to become fewer, sorted by partition."""

    content: str  # "data" or "delete"
    spec_id: int
    paths: tuple[str, ...]
    size_bytes: int  # of all of them
    entries: int  # live files in them
    reason: str


@dataclass(frozen=True, slots=True)
class ManifestsStaged:
    """A snapshot with the same files in other manifests, not yet visible to anybody."""

    commit: StagedCommit
    created: int
    replaced: int
    kept: int  # manifests that stay as they are
    entries: int  # live files that were written anew
    dropped: tuple[str, ...] = ()  # reasons why what was clustered is left out
