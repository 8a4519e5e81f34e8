"""Upgrades of tables' formats."""

from amoro_core.admin.services import Call, Services
from amoro_core.protocol import snapshots_pb2 as pb


def upgrade_table(services: Services, request: pb.UpgradeTableRequest, call: Call) -> pb.TableUpgrade:
    """Upgrade the table, or with `dry_run` say what that would do."""
    identifier = services.catalogs.resolve(request.table)
    done = services.upgrading.upgrade(identifier, request.format_version, dry_run=request.dry_run)
    return pb.TableUpgrade(
        table=str(identifier), before=done.before, after=done.after, is_done=done.is_done, notes=done.notes
    )
