"""Catalogs of our own against Iceberg's Java: its compatibility kit, its metadata, Spark beside pyiceberg."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from amoro_core.errors import CommitConflict, InvalidArgument
from amoro_core.iceberg.metadata_updates import new_table, normalised, updated
from amoro_core.model.processes import CatalogConfig
from tests.dashboard.served import serving
from tests.tiers import seeds

from .java import java_with
from .session import JARS, SERVER_JARS

Json = dict[str, Any]
RCK_JARS = JARS.parent / "rck-jars"
RUNTIME = next(JARS.glob("iceberg-spark-runtime-*.jar"), Path())


def test_the_compatibility_kit_of_iceberg_passes(tmp_path: Path) -> None:
    import pyspark  # not part of every installation; Hadoop's client comes with it

    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    jars = [*RCK_JARS.glob("*.jar"), *SERVER_JARS.glob("*.jar"), *hadoop]
    with serving(tmp_path / "home") as lake:
        properties = (("type", "internal"), ("warehouse", f"file://{tmp_path}/warehouse"))
        lake.coordinator.catalogs.add(CatalogConfig("lake", properties, allowed_locations=("file:///tmp",)))
        settings = {
            "uri": f"http://127.0.0.1:{lake.port}/iceberg",
            "warehouse": "lake",
            "token": lake.admin,
            "rck.local": "false",
            "rck.requires-namespace-create": "true",
            "rck.supports-names-with-dot": "true",
            "rck.supports-variant": "true",
        }
        command = [
            *("java", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(map(str, jars))),
            *(f"-D{key}={value}" for key, value in settings.items()),
            *("org.junit.platform.console.ConsoleLauncher", "execute", "--details", "tree", "--disable-banner"),
            *("--config", "rck.local=false"),
            *("--select-class", "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests"),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    (tmp_path / "kit.log").write_text(ran.stdout + ran.stderr)
    counts = {word: int(number) for number, word in re.findall(r"\[ +(\d+) tests (\w+) ", ran.stdout)}
    assert counts["failed"] == 0, ran.stdout[-20_000:]
    assert counts["successful"] >= 90
    # By assumptions that the kit makes of every server: of slashes, of nested and of empty namespaces.
    assert counts["aborted"] <= 8


TYPES = ("int", "long", "string", "date", "timestamptz", "decimal(9, 2)", "double", "boolean", "binary")


class Sequence:
    """Random updates of one table, and what a writer has to know of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        version = self.random.choice((1, 2, 2, 3))
        fields = [
            {"id": at, "name": f"c{at}", "required": False, "type": self.random.choice(TYPES)} for at in (1, 2, 3)
        ]
        schema = {"type": "struct", "fields": fields}
        self.metadata = new_table(schema, None, None, "s3://lake/t", {"format-version": str(version)}, 1000)
        self.next = 0
        # Java writes the present time, and refuses a log that goes back by more than a minute.
        self.now_ms = round(time.time() * 1000)

    @property
    def version(self) -> int:
        return int(self.metadata["format-version"])

    def updates(self) -> list[Json]:
        made: list[Json] = []
        if self.random.random() < 0.1:
            return [{"action": "upgrade-format-version", "format-version": self.random.randint(1, 3)}]
        for _ in range(self.random.randint(1, 5)):
            made += getattr(self, self.random.choice([name for name in dir(self) if name.startswith("_on_")]))()
        # Java fails where a snapshot is removed twice and no other is left.
        return [one for at, one in enumerate(made) if one["action"] != "remove-snapshots" or one not in made[:at]]

    def _number(self) -> int:
        self.next += 1
        return self.next

    def _on_snapshot(self) -> list[Json]:
        known, number = normalised(self.metadata), self._number()
        sequence = max(1, known["last-sequence-number"] + self.random.choice((0, 1, 1, 1, 1, 2)))
        snapshot = {"snapshot-id": number, "timestamp-ms": self.now_ms + number, "summary": {"operation": "append"}}
        snapshot |= {"manifest-list": f"s3://lake/t/{number}.avro", "schema-id": known["current-schema-id"]}
        if not known["current-snapshot-id"]:
            # Where one without a parent is older than others, Java lets the table's number go back, or fails.
            sequence = known["last-sequence-number"] + number
        else:
            snapshot["parent-snapshot-id"] = known["current-snapshot-id"]
        if self.version > 1:
            snapshot["sequence-number"] = sequence
        if self.version > 2:
            first = known["next-row-id"] + self.random.choice((0, 0, 0, -1))
            snapshot |= {"first-row-id": max(first, 0), "added-rows": 5}
        return [{"action": "add-snapshot", "snapshot": snapshot}, *self._ref(number)]

    def _ref(self, number: int) -> list[Json]:
        name, kind = self.random.choice((("main", "branch"), ("main", "branch"), ("b", "branch"), ("t", "tag")))
        more = {"max-ref-age-ms": 9} if self.random.random() < 0.3 else {}
        return [{"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": number, **more}]

    def _on_ref(self) -> list[Json]:
        return self._ref(self.random.randint(1, self.next + 1))

    def _on_removal(self) -> list[Json]:
        number = self.random.choice([one["snapshot-id"] for one in self.metadata["snapshots"]] or [0])
        return self.random.choice((
            # Java fails on a table that has fewer snapshots than are removed.
            [{"action": "remove-snapshots", "snapshot-ids": [number]}] if number else [],
            [{"action": "remove-snapshot-ref", "ref-name": self.random.choice(("main", "b", "t"))}],
            [{"action": "remove-statistics", "snapshot-id": number}],
            [{"action": "remove-properties", "removals": ["k1", "k2"]}],
        ))  # fmt: skip

    def _on_schema(self) -> list[Json]:
        known = self.random.choice(self.metadata["schemas"])
        field = {"id": self.metadata["last-column-id"] + 1, "name": f"n{self._number()}", "required": False}
        added = [] if self.random.random() < 0.3 else [{**field, "type": self.random.choice(TYPES)}]
        schema = {"type": "struct", "schema-id": 0, "fields": [*known["fields"], *added]}
        return [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]

    def _on_spec(self) -> list[Json]:
        source, at = self.random.randint(1, 4), self.metadata["last-partition-id"] + 1
        transform = self.random.choice(("identity", "bucket[4]", "void"))
        at = 1000 if self.version == 1 else max(at, 1000)
        field = {"source-id": source, "field-id": at, "transform": transform, "name": f"p{source}_{transform[:2]}"}
        spec = {"spec-id": 0, "fields": self.random.choice(([field], []))}
        return [{"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1}]

    def _on_order(self) -> list[Json]:
        field = {"source-id": self.random.randint(1, 4), "transform": "identity"}
        field |= {"direction": self.random.choice(("asc", "desc")), "null-order": "nulls-first"}
        fields = self.random.choice(([field], []))
        order = {"order-id": len(fields), "fields": fields}
        return [
            {"action": "add-sort-order", "sort-order": order},
            {"action": "set-default-sort-order", "sort-order-id": self.random.choice((-1, -1, 0))},
        ]

    def _on_other(self) -> list[Json]:
        statistics = {"snapshot-id": max(1, self.next), "statistics-path": "s3://x", "file-size-in-bytes": 9}
        statistics |= {"file-footer-size-in-bytes": 4, "blob-metadata": []}
        return self.random.choice((
            [{"action": "set-properties", "updates": {f"k{self.random.randint(1, 3)}": "v"}}],
            [{"action": "set-location", "location": self.random.choice(("s3://lake/t", "s3://lake/u"))}],
            [{"action": "set-statistics", "statistics": statistics}],
            [{"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"}],
        ))  # fmt: skip


def comparable(metadata: Json) -> Json:
    """Without what no two servers have alike: times of the change itself; lists of which the order tells nothing."""
    found = {key: value for key, value in metadata.items() if key not in ("last-updated-ms", "metadata-log")}
    known = {one["snapshot-id"]: one["timestamp-ms"] for one in found["snapshots"]}
    found["snapshot-log"] = [one["snapshot-id"] for one in found["snapshot-log"]]
    found["statistics"] = sorted(map(json.dumps, found["statistics"]))
    for key in ("schema", "partition-spec"):
        found.pop(key, None)
    found["schemas"] = [
        {**one, "identifier-field-ids": one.get("identifier-field-ids", [])} for one in found["schemas"]
    ]
    return {**found, "times": known}


def test_random_updates_are_applied_as_java_applies_them() -> None:
    applied = refused = 0
    with java_with(RUNTIME) as gateway:
        iceberg = gateway.jvm.org.apache.iceberg
        for seed in seeds(200, 200):
            made = Sequence(seed)
            for _ in range(6):
                updates = made.updates()
                base = iceberg.TableMetadataParser.fromJson("s3://lake/t/metadata/base.json", json.dumps(made.metadata))
                builder, theirs = iceberg.TableMetadata.buildFrom(base), None
                try:
                    for one in updates:
                        iceberg.MetadataUpdateParser.fromJson(json.dumps(one)).applyTo(builder)
                    theirs = json.loads(iceberg.TableMetadataParser.toJson(builder.build()))
                except Py4JError:  # PySpark, where it was used before, replaces Java's own by one that fails
                    pass
                try:
                    ours = updated(normalised(made.metadata), updates, made.now_ms, "s3://lake/t/metadata/base.json")
                except (InvalidArgument, CommitConflict):
                    assert theirs is None, (seed, updates)
                    refused += 1
                    continue
                assert theirs is not None, (seed, updates)
                applied += 1
                assert comparable(ours or made.metadata) == comparable(theirs), (seed, updates)
                made.metadata = ours or made.metadata
    assert min(applied, refused) > 100
