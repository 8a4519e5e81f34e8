"""Schemas and partition specs that a table no longer needs once some of its snapshots are gone."""

from collections.abc import Set

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from amoro_core.iceberg.tracing import manifests_of


def unused_metadata(table: Table, gone: Set[int]) -> tuple[list[int], list[int]]:
    """The sorted ids of the specs and of the schemas that can be removed too.

    Kept are the current ones, those of the remaining snapshots and their manifests; and, for every column that a
    remaining spec partitions by or that a live equality delete may compare, the newest schema that has it. Java removes
    these, after which such files can't be read. Raises what reading manifest lists raises.
    """
    metadata = table.metadata
    kept = [one for one in metadata.snapshots if one.snapshot_id not in gone]
    manifests = manifests_of(table.io, kept)
    specs = {metadata.default_spec_id, *(one.partition_spec_id for one in manifests)}
    schemas = {metadata.current_schema_id, *(one.schema_id for one in kept if one.schema_id is not None)}
    by_newest = sorted(metadata.schemas, key=lambda one: -one.schema_id)
    needed = {field.source_id for spec in metadata.partition_specs if spec.spec_id in specs for field in spec.fields}
    if any(one.content == ManifestContent.DELETES for one in manifests):
        needed |= {field_id for one in by_newest for field_id in one.field_ids}
    for one in by_newest:
        if one.schema_id in schemas:
            needed -= one.field_ids
    for one in by_newest:
        if needed & one.field_ids:
            schemas.add(one.schema_id)
            needed -= one.field_ids
    return (
        sorted(one.spec_id for one in metadata.partition_specs if one.spec_id not in specs),
        sorted(one.schema_id for one in metadata.schemas if one.schema_id not in schemas),
    )
