"""An action as requested on the command line."""

from datetime import timedelta
from typing import TYPE_CHECKING

from amoro_core.records import record

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


@record
class Wanted:
    """An action requested on a table, with the options that override the table's properties."""

    table: str
    action: str
    older_than: timedelta | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    locations: tuple[str, ...] = ()
    file_list: str = ""
    confirm: str = ""  # the table's name, where the plan was seen

    @property
    def request(self) -> "pb.MaintainTableRequest":
        """The request message."""
        from amoro_core.protocol import admin_pb2 as pb

        return pb.MaintainTableRequest(
            table=self.table,
            action=self.action,
            older_than_ms=_ms(self.older_than),
            retain_last=self.retain_last or 0,
            snapshot_ids=self.snapshot_ids,
            locations=self.locations,
            file_list=self.file_list,
            confirm=self.confirm,
        )


def _ms(duration: timedelta | None) -> int:
    return 0 if duration is None else duration // timedelta(milliseconds=1)
