"""Which small manifests a commit merges, like Iceberg's own merging appends."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from pyiceberg.manifest import ManifestFile

from amoro_core.model.properties import boolean, declared, duration, parse_into, whole
from amoro_core.records import record

T = TypeVar("T")
Bin = tuple[ManifestFile, ...]
_UNCOUNTED = 2**31

ENABLED_KEY = "commit.manifest-merge.enabled"
MIN_COUNT_KEY = "commit.manifest.min-count-to-merge"
TARGET_SIZE_KEY = "commit.manifest.target-size-bytes"
BUDGET_KEY = "self-optimizing.commit.manifest-merge-budget"

#: To read an entry and write it again: 20,000 entries with metrics of ten columns took 6.2 s of CPU.
ENTRY_COST = timedelta(microseconds=300)


@record
class MergeSettings:
    """The table's properties of merging; the defaults are Iceberg's, but for the budget, which it does not have."""

    enabled: bool = declared(ENABLED_KEY, "true", boolean)
    min_count: int = declared(MIN_COUNT_KEY, "100", whole(0))
    target_bytes: int = declared(TARGET_SIZE_KEY, "8388608", whole(1))
    budget: timedelta = declared(BUDGET_KEY, "1s", duration)

    @property
    def most_entries(self) -> int:
        """The number of entries that one commit merges at most."""
        return self.budget // ENTRY_COST


def merge_settings(properties: Mapping[str, str]) -> MergeSettings:
    """The settings in the table's properties. Raises TableRefused("configuration") for a malformed value."""
    return parse_into(MergeSettings, properties)


def in_bins(manifests: Sequence[ManifestFile], settings: MergeSettings) -> Iterator[tuple[ManifestFile, ...]]:
    """Bins of manifests of one content, newest first, each to become one manifest; all manifests of a bin share a spec.

    Bins are filled in order from the oldest, so that only the newest one is not full. It is merged once it has the
    minimum count: otherwise each commit would rewrite it.
    """
    if not settings.enabled:
        yield from ((one,) for one in manifests)
        return
    by_spec: dict[int, list[ManifestFile]] = {}
    for one in manifests:
        by_spec.setdefault(one.partition_spec_id, []).append(one)
    for group in by_spec.values():
        for some in packed(group, lambda one: one.manifest_length, settings.target_bytes):
            is_newest = any(one is manifests[0] for one in some)
            if is_newest and len(some) < settings.min_count:
                yield from ((one,) for one in some)
            else:
                yield some


def within_budget(bins: Iterable[Bin], settings: MergeSettings) -> Iterator[Bin]:
    """The bins; those whose entries do not fit into the budget with those before them fall apart.

    Manifests of which the list does not say the number of entries count as many as there may be.
    """
    room = settings.most_entries
    for some in bins:
        entries = sum(map(_entries, some)) if len(some) > 1 else 0
        if entries > room:
            yield from ((one,) for one in some)
            continue
        room -= entries
        yield some


def _entries(manifest: ManifestFile) -> int:
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    return _UNCOUNTED if None in counts else sum(one or 0 for one in counts)


def packed(items: Sequence[T], size: Callable[[T], int], target: int) -> list[tuple[T, ...]]:
    """The items in order, in bins of at most the target size (or of a single item), filled from the end."""
    bins: list[list[T]] = []
    room = 0
    for item in reversed(items):
        if bins and size(item) <= room:
            bins[-1].append(item)
        else:
            bins.append([item])
            room = target
        room -= size(item)
    return [tuple(reversed(one)) for one in reversed(bins)]
