"""Upgrading a table's format: asked for by an administrator, never by itself."""

from amoro_core.errors import CommitConflict, InvalidArgument
from amoro_core.events import get_logger
from amoro_core.formats.port import Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.model.tables import TableIdentifier
from amoro_core.records import record

log = get_logger("amoro.upgrading")

#: The only version that tables are upgraded to.
TARGET = 3
_ROLES = frozenset({Role.COMMIT, Role.MAINTAIN})
#: Attempts while others commit.
_TRIES = 20
_NOTES = (
    "It can't be taken back: no engine makes a table of an earlier format of it.",
    "Engines that don't know format 3 can't read or write the table any more.",
    "Files keep their place. Their rows get ids with the next commit; earlier snapshots have none.",
    "Deletion vectors take the place of position deletes as files are rewritten or converted.",
    "An optimizing process that is under way ends with a conflict; the table is planned anew.",
)


@record
class Upgrade:
    """What an upgrade does or has done."""

    table: TableIdentifier
    before: int  # the format versions
    after: int
    is_done: bool
    notes: tuple[str, ...] = _NOTES


class UpgradeService:
    """Upgrades of tables."""

    def __init__(self, tables_of: Tables) -> None:
        self._tables = tables_of

    def upgrade(self, identifier: TableIdentifier, version: int, *, dry_run: bool = False) -> Upgrade:
        """Upgrade the table to that format version, by one commit without a snapshot; with `dry_run` only check it.

        Raises InvalidArgument for another version than 3, and for a table that has it already; TableRefused for one
        that is not handled, or while format 3 is not; errors of loading and committing: after CommitUnknown it may be
        upgraded.
        """
        if version != TARGET:
            raise InvalidArgument(
                f"tables can't be upgraded to format version {version}", hint=f"Say --format-version {TARGET}."
            )
        table = with_roles(self._tables.open(identifier), _ROLES, "an upgrade")
        before = table.facts.format_version
        if before >= TARGET:
            raise InvalidArgument(
                f"{identifier} has format version {before} already", hint="There is nothing to be done."
            )
        table.refuse_unsupported()
        for tries_left in reversed(range(1 if dry_run else _TRIES)):
            payload = table.stage_upgrade()
            if dry_run:
                break
            try:
                table.send(payload)
                break
            except CommitConflict:
                if not tries_left:
                    raise
        if not dry_run:
            log.info("table.upgraded", table=str(identifier), before=before, after=TARGET)
        return Upgrade(identifier, before, TARGET, not dry_run)
