"""Scans reported by readers and query logs, and the columns that they suggest."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from amoro_core.errors import InvalidArgument
from amoro_core.formats.ports import Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.model.optimizing_config import parse_config
from amoro_core.model.scan_stats import KEEP_SCANS, MOST_OF_SOURCE, ScanRecord, ScanUse
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.planning.clustering.auto_columns import SCAN_DAYS, Suggested, suggest
from amoro_core.planning.clustering.model import ClusterFacts
from amoro_core.store import table_stats, tables
from amoro_core.store.database import Store

log = get_logger("amoro.learning")

#: Sets of filters and days, for each source, that one report may have.
MOST_TOLD = 50_000
#: Scans of one day and set of filters that one report may have.
MOST_SCANS = 10**12


@dataclass(frozen=True, slots=True)
class Learned:
    """What was kept of a report."""

    kept: tuple[ScanUse, ...]
    old_scans: int  # that are older than is kept
    recent_scans: int  # of the last days, whoever told of them


@dataclass
class LearningService:
    """Keeps reports of scans, and suggests columns."""

    store: Store
    tables: Tables
    clock: Callable[[], datetime]

    def learn(self, runtime: TableRuntime, records: Sequence[ScanRecord]) -> Learned:
        """Keep a report of scans of the table, all of it or nothing.

        What a source told before is forgotten: what it tells now has all of it. Scans without a source are added, and
        count twice when they come twice. Raises InvalidArgument, with file and line, for a column that the table does
        not have, a day to come, and more than a report may have; TableRefused, and what loading the table raises.
        """
        if len(records) > MOST_TOLD:
            raise InvalidArgument(
                f"{len(records):,} sets of filters and days are more than the {MOST_TOLD:,} that are learned at once",
                hint="Learn from fewer files at once.",
            )
        table = with_roles(self.tables.open(runtime.identifier), (Role.SORT,), "learning how it is read")
        columns = frozenset(column.name for column in table.sorting().columns)
        today = self.clock().date()
        uses = [_use(record, columns, today) for record in records]
        oldest = today - KEEP_SCANS
        by_source: dict[str, list[ScanUse]] = {}
        for scan_record, use in zip(records, uses, strict=True):
            by_source.setdefault(scan_record.source, []).extend([use] if use.day >= oldest else [])
        scan_uses = tuple(use for some in by_source.values() for use in some)
        self.store.write(lambda db: table_stats.add_learned_scans(db, runtime.table_id, by_source))
        scans = self.store.read(lambda db: table_stats.list_scans(db, runtime.table_id))
        recent = sum(scan_use.scans for scan_use in scans if scan_use.day > today - timedelta(days=SCAN_DAYS))
        log.info("scans.learned", table=str(runtime.identifier), scans=sum(scan_use.scans for scan_use in scan_uses))
        return Learned(scan_uses, sum(scan_use.scans for scan_use in uses if scan_use.day < oldest), recent)

    def suggest(self, identifier: TableIdentifier) -> Suggested:
        """Columns that the table may be clustered by, each with the reason; nothing is changed.

        Raises TableRefused, and what loading the table raises.
        """
        table = with_roles(self.tables.open(identifier), (Role.READ, Role.SORT), "suggesting columns")
        config = parse_config(self.tables.effective_properties(identifier.catalog, table))
        runtime = self.store.read(lambda db: tables.find(db, identifier))
        facts = ClusterFacts(
            scan=table.scan(), sorting=table.sorting(), optimizing=config, now=self.clock(), learn=table.layout_of
        )
        if runtime is not None:
            table_id = runtime.table_id
            facts = replace(
                facts,
                scans=self.store.read(lambda db: table_stats.list_scans(db, table_id)),
                choice=self.store.read(lambda db: table_stats.find_choice(db, table_id)),
            )
        filtered = table.filtered_columns(config.filter) if config.filter is not None else frozenset[str]()
        return suggest(facts, filtered, table.distinct_values())


def _use(scan: ScanRecord, columns: Collection[str], today: date) -> ScanUse:
    day = scan.day or today
    if day > today + timedelta(days=1):  # clocks of others may be ahead
        raise InvalidArgument(f"scans of {day} have not been yet: today is {today}", hint="Look at Spark's clock.")
    if len(scan.source) > MOST_OF_SOURCE:
        raise InvalidArgument(
            f"a source of {len(scan.source):,} characters has more than {MOST_OF_SOURCE}", hint="Look at the report."
        )
    if not 1 <= scan.scans <= MOST_SCANS:
        raise InvalidArgument(
            f"{scan.scans} scans at once are not from 1 to {MOST_SCANS:,}", hint="Look at the report."
        )
    unknown = next((item.column for item in scan.filters if item.column not in columns), None)
    if scan.place and unknown is not None:
        raise InvalidArgument(
            f"{scan.place} names column {unknown}, which the table does not have",
            hint="Name columns as the table's schema does, with dots between the levels.",
        )
    filters = tuple(item for item in scan.filters if item.column in columns)
    return ScanUse(min(day, today), filters, scan.scans)
