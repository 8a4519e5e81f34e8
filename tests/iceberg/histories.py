"""Random commits to a table: other engines', the library's, and ours, planned and staged by what is known of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from amoro_core.errors import TableRefused
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.iceberg.manifest.writing import ENABLED_KEY, MIN_COUNT_KEY
from amoro_core.iceberg.scan import ManifestSources
from amoro_core.model.commits import Group, PlanRecord
from amoro_core.model.files import Partition, ScannedFile, TableScan
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from tests.engine import oracle, writer
from tests.iceberg.rewriting import PROCESS, group_of, loaded
from tests.model.lake import Lake, row

NAME = TableIdentifier("cat", ("db",), "t")
BRANCH = "branch"
SUMMARY = {"amoro.process-id": PROCESS}


def random_lake(directory: Path, chance: random.Random) -> Lake:
    """A new table of any format, whose manifests are merged early, late or never."""
    properties = {
        ENABLED_KEY: chance.choice(("true", "true", "true", "false")),
        MIN_COUNT_KEY: chance.choice(("2", "3", "5", "100")),
    }
    version, partitioned = chance.choice((1, 2, 2, 3, 3)), chance.random() < 0.8
    return Lake.created(writer.make_catalog(directory), version, partitioned=partitioned, properties=properties)


class History:
    """Random commits to the table, and how many there were of each kind."""

    def __init__(self, lake: Lake, chance: random.Random) -> None:
        self.lake, self.chance = lake, chance
        self.seen = Counter[str]()
        self._config = CatalogConfig("cat", tuple({**lake.catalog.properties, "type": "sql"}.items()))
        self._number = 0

    def commit(self, sources: ManifestSources) -> None:
        """A commit of a kind that the format has; some change nothing."""
        lake, before, version = self.lake, self.lake.table.refresh().metadata_location, self.lake.version
        what = self.chance.choice([one for one in CHANGES if lake.version in FORMATS.get(one, (1, 2, 3))])
        self._number += 1
        if what in OWN:
            with suppress(TableRefused):  # pyiceberg writes specs after an upgrade that name a field twice
                OWN[what](self, IcebergTable(self._config, NAME, loaded(lake.table), sources))
        else:
            self._write(what)
        if lake.table.refresh().metadata_location != before:
            self.seen.update((what, f"{what} × format {version}"))

    def _write(self, what: str) -> None:
        """Another engine's commit."""
        lake, chance, number = self.lake, self.chance, self._number
        keys = [one.record["id"] for one in lake.placed()]
        some = chance.sample(keys, k=min(2, len(keys)))
        part = chance.choice("abc")
        match what:
            case "append":
                lake.append([row(100 + number, part), row(200 + number, "a")], files=chance.randint(1, 2))
            case "append by pyiceberg" if len(lake.table.refresh().spec().fields) < 2:  # it can't fill a void field
                lake.append_by_library([row(400 + number, part), row(500 + number, "a")])
            case "upsert":
                lake.upsert([row(chance.randrange(8), part, f"new {number}")])
            case "equality delete":
                lake.delete_equal([row(chance.randrange(8), part)], everywhere=chance.random() < 0.5)
            case "position delete":
                lake.delete_positions(lambda one: one["id"] in some, per_file=chance.random() < 0.5)
            case "position deletes compacted":
                lake.compact_position_deletes(per_file=chance.random() < 0.5)
            case "overwrite":
                lake.overwrite(lambda one: one["id"] in some, {"value": f"over {number}"})
            case "removal" if some:
                lake.remove_file(lambda one: one["id"] == some[0])
            case "spec change":
                is_plain = oracle.is_unpartitioned(lake.table.refresh().spec())
                (lake.partition_by_part if is_plain else lake.partition_by_nothing)()
            case "expiry":
                lake.expire()
            case "rollback":
                lake.set_main(chance.choice(lake.ancestors()))
            case "branch":
                if BRANCH not in lake.table.refresh().metadata.refs:
                    lake.create_branch(BRANCH)
                lake.append([row(300 + number, part)], branch=BRANCH)

    def _rewrite(self, table: IcebergTable) -> None:
        """Some of the files, planned by one look and staged by another, with a commit of others between at times."""
        found = table.scan()
        if found is None or not (groups := self._groups(table, found)):
            return
        facts = table.facts
        record = PlanRecord(
            PROCESS,
            facts.uuid,
            facts.format_version,
            found.snapshot_id,
            found.sequence_number,
            facts.last_column_id,
            tuple(groups),
        )
        if self.chance.random() < 0.2:
            self._write(self.chance.choice(BETWEEN))
        head = table.head(record.snapshot_id)
        done = validate(build_view(record, head))
        if done.content is None:
            self.seen["rewrites lost"] += 1
            return
        table.send(table.stage(head, done.content, SUMMARY).payload)
        self.seen["conversions"] += bool(done.content.added_deletes)

    def _groups(self, table: IcebergTable, found: TableScan) -> list[Group]:
        files, groups = list(found.files), list[Group]()
        places: dict[tuple[int, Partition], list[ScannedFile]] = {}
        for one in self.chance.sample(files, k=self.chance.randint(0, len(files))):
            places.setdefault((one.data.spec_id, one.data.partition), []).append(one)
        for number, ((spec_id, _), some) in enumerate(places.items(), 1):
            kept = [one for one in some if one.deletes and self.chance.random() < 0.5]
            gone = [one for one in some if one not in kept]
            groups.append(group_of(number, table.context(spec_id), table.access(), found, gone, kept))
        return groups

    def _rewrite_manifests(self, table: IcebergTable) -> None:
        if table.manifest_clusters(None):
            table.send(table.stage_manifests(None, SUMMARY).commit.payload)

    def _upgrade(self, table: IcebergTable) -> None:
        """To the next format: the library's commit, or ours."""
        if self.chance.random() < 0.4:  # or few would stay as they were made
            return
        if self.lake.version == 1:
            with self.lake.table.refresh().transaction() as change:
                change.upgrade_table_version(2)
        else:
            table.send(table.stage_upgrade())
        self.lake.version += 1


OWN: Mapping[str, Callable[[History, IcebergTable], None]] = {
    "rewrite": History._rewrite,
    "rewrite of manifests": History._rewrite_manifests,
    "upgrade": History._upgrade,
}
#: Each as often as it stands here.
CHANGES = (
    *("append", "append", "append by pyiceberg", "upsert", "equality delete", "position delete"),
    *("position deletes compacted", "overwrite", "removal", "spec change", "expiry", "rollback", "branch"),
    *("rewrite", "rewrite", "rewrite", "rewrite of manifests", "upgrade"),
)
#: The formats of changes that not all have. pyiceberg can't write format 3.
FORMATS = {
    "append by pyiceberg": (1, 2),
    "upsert": (2, 3),
    "equality delete": (2, 3),
    "position delete": (2, 3),
    "position deletes compacted": (2, 3),
    "upgrade": (1, 2),
}
BETWEEN = ("append", "overwrite", "removal")
