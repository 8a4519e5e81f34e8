"""Detection of tables of other formats that look like Iceberg, by the traces of their writers.

Treating such a table as plain Iceberg loses or resurrects rows: files of Amoro's Mixed format contain both inserts and
deletes, and metadata that another format generates over its own files is a copy that is regenerated from there.
"""

import re
from collections.abc import Iterable, Mapping

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import TableRefused
from amoro_core.live.spelling import Paths

#: Amoro's property of its own tables, including both stores of the Mixed format.
_TABLE_FORMAT = "table-format"
_OTHER_FORMATS = {
    "MIXED_ICEBERG": "a table of Amoro's Mixed-Iceberg format",
    "MIXED_HIVE": "a table of Amoro's Mixed-Hive format",
    "PAIMON": "a Paimon table",
    "HUDI": "a Hudi table",
    "DELTA": "a table of Delta Lake",
}
_STORE = "mixed-format.table-store"
_STORES = ("base", "change")
_MIXED_HIVE = "arctic.enabled"
#: Properties that only the named tool writes, in metadata that it generates over another format's files.
_COPIES = (
    (re.compile(r"delta-version|delta-timestamp|base-delta-version|delta-high-water-mark"), "Delta Lake (UniForm)"),
    (re.compile(r"delta\.universalformat\..*", re.IGNORECASE), "Delta Lake (UniForm)"),
    (re.compile(r"XTABLE_.+|ONETABLE_.+|INFLIGHT_COMMITS_TO_CONSIDER_FOR_NEXT_SYNC"), "Apache XTable"),
    (re.compile(r"metadata\.iceberg\..*"), "Paimon"),
)
_XTABLE = "XTABLE_METADATA"
_PAIMON_COMMIT = "paimon-commit-identity"
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
#: Paimon numbers its manifest lists; Iceberg's writers name them by snapshot and attempt.
_PAIMON_LIST = re.compile(rf"snap-[0-9]+-{_UUID}\.avro")


def refuse_foreign(metadata: TableMetadata) -> None:
    """Raise TableRefused("format") for a table of another format, or a copy of one, by its metadata alone."""
    if found := _mixed(metadata.properties):
        raise found
    if mark := _copied(metadata):
        owner, where = mark
        raise TableRefused(
            f"the table's Iceberg metadata is a copy that {owner} makes over its own files: {where}",
            reason="format",
            hint=f"Optimize the table where it is written, with {owner.split(' (')[0]}'s own tools.",
        )


def refuse_mixed_hive(parameters: Mapping[str, str]) -> None:
    """Raise TableRefused("format") for a Hive table whose parameters mark it as Mixed-Hive."""
    if parameters.get(_MIXED_HIVE, "").strip().lower() == "true" and (found := _mixed(parameters)):
        raise found


def refuse_foreign_files(parts: Iterable[Paths]) -> None:
    """Raise TableRefused("format") when at least half of these data files are named like those of a Mixed table.

    Such a store may be registered in a catalog without its properties.
    """
    known = list(parts)
    files = sum(len(part.array) for part in known)
    count = sum(part.shape.mixed for part in known)
    first = next((part.shape.first_mixed for part in known if part.shape.mixed), None)
    if count and 2 * count >= files:
        raise TableRefused(
            f"{count} of {files} data files are named as those of Amoro's Mixed format, such as {first}",
            reason="format",
            hint="Such a store holds inserts and deletes as data. Optimize it with Amoro.",
        )


def _mixed(properties: Mapping[str, str]) -> TableRefused | None:
    named = properties.get(_TABLE_FORMAT, "")
    store = properties.get(_STORE, "").strip().lower()
    if what := _OTHER_FORMATS.get(named.strip().upper().replace("-", "_")):
        said = f"it is {what}: {_TABLE_FORMAT}={named}"
    elif store in _STORES:
        said = f"it is a {store} store of Amoro's Mixed format: {_STORE}={properties[_STORE]}"
    elif properties.get(_MIXED_HIVE, "").strip().lower() == "true":
        said = f"it is {_OTHER_FORMATS['MIXED_HIVE']}: {_MIXED_HIVE}={properties[_MIXED_HIVE]}"
    else:
        return None
    if store == "change" and _STORE not in said:
        said += f", its change store ({_STORE}={properties[_STORE]})"
    return TableRefused(
        f"the table is not a plain Iceberg table: {said}",
        reason="format",
        hint="Optimize it with the tools of its own format; here it can only be observed.",
    )


def _copied(metadata: TableMetadata) -> tuple[str, str] | None:
    """The format that generates the copy, and the trace of it; None for Iceberg's own metadata."""
    for key, value in sorted(metadata.properties.items()):
        for pattern, owner in _COPIES:
            if pattern.fullmatch(key):
                return owner, f"it has the property {key}" if len(value) > 80 else f"it has the property {key}={value}"
    for snapshot in metadata.snapshots:
        if copier := _copier(snapshot):
            return copier, f"snapshot {snapshot.snapshot_id} is as {copier} writes it"
    return None


def _copier(snapshot: Snapshot) -> str | None:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    if _XTABLE in summary:
        return "Apache XTable"
    if _PAIMON_COMMIT in summary:
        return "Paimon"
    # Paimon uses its own number for both; Iceberg's writers draw ids at random.
    is_numbered = snapshot.sequence_number is not None and snapshot.snapshot_id == snapshot.sequence_number > 0
    if is_numbered and _PAIMON_LIST.fullmatch(snapshot.manifest_list.rsplit("/", 1)[-1]):
        return "Paimon"
    return None
