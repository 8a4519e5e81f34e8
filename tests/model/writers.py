"""The half of the state machine that only writes: every operation on rows, deletes, schema, spec, refs and history."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType

from tests.engine import oracle
from tests.model.lake import MAIN, Lake, ids_are

#: Target sizes by which all small files are fragments, or segments, which are converted.
SIZES = ("134217728", "4000")
WRITES = (
    "append",
    "upsert",
    "delete positions",
    "delete equal in partitions",
    "delete equal everywhere",
    "overwrite",
    "remove file",
    "append to branch",
)
#: Those that need delete files, so format 2.
DELETING = ("upsert", "delete positions", "delete equal in partitions", "delete equal everywhere")
EVOLUTIONS = (
    "add column",
    "rename column",
    "drop column",
    "promote column",
    "drop key column",
    "change spec",
    "change target size",
)
MOVES = ("create branch", "create tag", "roll back", "replace main", "expire")
idents = st.sets(st.integers(0, 9), min_size=1, max_size=4).map(sorted)
parts = st.sampled_from(("a", "b", None))


class Writers(RuleBasedStateMachine):
    """All others than we, on the table of `lake`, which a subclass makes."""

    lake: Lake
    written: int  # a number for each row and name, so that all differ

    def meets(self, operation: str) -> None:
        """Called before each operation; a subclass keeps count of what it slips into."""

    # Few rules, so that the steps of the coordinators come about as often.

    @rule(what=st.sampled_from(WRITES), ids=idents, part=parts, flag=st.booleans())
    def write_rows(self, what: str, ids: list[int], part: str | None, flag: bool) -> None:
        self.write(what, ids, part, flag)

    def write(self, what: str, ids: list[int], part: str | None, flag: bool) -> None:
        """One commit of rows or deletes; in format 1 rows in place of delete files."""
        lake, rows, key = self.lake, [self._row(id_, part) for id_ in ids], self._key(flag)
        if (what in DELETING and lake.version == 1) or (what == "append to branch" and len(self._branches()) < 2):
            what = "append"
        self.meets(what)
        match what:
            case "upsert":
                lake.upsert(rows, key)
            case "delete positions":
                lake.delete_positions(ids_are(*ids), per_file=flag, with_bounds=len(ids) % 2 == 0)
            case "delete equal in partitions":
                lake.delete_equal(rows, key)
            case "delete equal everywhere":
                lake.delete_equal([{"id": id_} for id_ in ids], everywhere=True)
            case "overwrite":
                lake.overwrite(ids_are(*ids), {"part": part} if flag else None)
            case "remove file":
                lake.remove_file(ids_are(ids[0]))
            case "append to branch":
                lake.append(rows, next(name for name in self._branches() if name != MAIN))
            case _:
                lake.append(rows, files=1 + flag)

    @rule(what=st.sampled_from(EVOLUTIONS), at=st.integers(0, 5))
    def evolve(self, what: str, at: int) -> None:
        """One change of schema, spec or properties."""
        plain = self._plain_columns()
        name = plain[at % len(plain)] if plain else ""
        possible = {
            "rename column": bool(plain),
            "drop column": bool(plain),
            "promote column": self._columns().get("number") == IntegerType(),
            "drop key column": "number" in self._columns(),
            "change spec": len(self.lake.table.metadata.partition_specs) < 3,
        }
        if not possible.get(what, True):
            what = "add column"
        self.meets(what)
        self.written += 1
        match what:
            case "rename column":
                self.lake.rename_column(name, f"c{self.written}")
            case "drop column":
                self.lake.drop_column(name)
            case "promote column":
                self.lake.promote_column("number")
            case "drop key column":
                self.lake.drop_column("number")
            case "change spec":
                self._change_spec(at)
            case "change target size":
                with self.lake.table.refresh().transaction() as change:
                    change.set_properties({"self-optimizing.target-size": SIZES[at % 2]})
            case _:
                self.lake.add_column(f"c{self.written}")

    @rule(what=st.sampled_from(MOVES), at=st.integers(0, 30))
    def move(self, what: str, at: int) -> None:
        """One change of refs or of history."""
        known = [one.snapshot_id for one in self.lake.table.refresh().metadata.snapshots]
        if what in ("create branch", "create tag") and len(self.lake.rows) > 3:
            return
        self.meets(what)
        match what:
            case "create branch":
                self.lake.create_branch(f"r{len(self.lake.rows)}", self._ancestor(at % 3))
            case "create tag":
                self.lake.create_tag(f"r{len(self.lake.rows)}", self._ancestor(at % 3))
            case "roll back":
                self.lake.set_main(self._ancestor(1 + at % 2))
            case "replace main":
                self.lake.set_main(known[at % len(known)])
            case "expire":
                self.lake.expire()

    def _change_spec(self, at: int) -> None:
        spec = self.lake.table.refresh().spec()
        if not oracle.is_unpartitioned(spec):
            self.lake.partition_by_nothing()
        elif at % 2 and not spec.fields:
            self.lake.partition_by_part()
        else:
            with self.lake.table.update_spec() as update:
                update.add_field("id", BucketTransform(2), "bucket")

    def _row(self, id_: int, part: str | None) -> dict[str, Any]:
        """A row that differs from all others in a column that is no key."""
        self.written += 1
        own = dict.fromkeys(self._plain_columns(), f"w{self.written}")
        return {"id": id_, "part": part, **({"number": id_ % 3} if "number" in self._columns() else {}), **own}

    def _key(self, wide: bool) -> tuple[str, ...]:
        return ("id", "number") if wide and "number" in self._columns() else ("id",)

    def _columns(self) -> dict[str, Any]:
        return {field.name: field.field_type for field in self.lake.table.refresh().schema().fields}

    def _plain_columns(self) -> list[str]:
        return [name for name in self._columns() if name not in ("id", "part", "number")]

    def _branches(self) -> list[str]:
        refs = self.lake.table.refresh().metadata.refs
        return [name for name, ref in refs.items() if ref.snapshot_ref_type == "branch"]

    def _ancestor(self, back: int) -> int:
        ancestors = self.lake.ancestors()
        return ancestors[min(back, len(ancestors) - 1)]
