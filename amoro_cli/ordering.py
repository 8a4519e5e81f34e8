"""How the rows of a table are to be ordered, as requested on the command line."""

from typing import TYPE_CHECKING

from amoro_core.records import record

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


@record
class Ordering:
    """What `--type cluster` takes beside what the table's properties say."""

    columns: tuple[str, ...] = ()
    strategy: str = ""
    partitions: str = ""
    full: bool = False
    schedule_only: bool = False

    @property
    def message(self) -> "pb.ClusterOptions | None":
        """The same for the coordinator; None where nothing is asked for."""
        from amoro_core.protocol import admin_pb2 as pb

        if self == AS_CONFIGURED:
            return None
        return pb.ClusterOptions(
            columns=self.columns,
            strategy=self.strategy,
            partitions=self.partitions,
            full=self.full,
            schedule_only=self.schedule_only,
        )

    @property
    def options(self) -> list[str]:
        """The same as options of a command."""
        return [
            *(["--columns", ",".join(self.columns)] if self.columns else []),
            *(["--strategy", self.strategy] if self.strategy else []),
            *(["--partitions", self.partitions] if self.partitions else []),
            *(["--full"] if self.full else []),
            *(["--schedule-only"] if self.schedule_only else []),
        ]


AS_CONFIGURED = Ordering()


def columns_of(text: str) -> tuple[str, ...]:
    """Names of columns with commas between them."""
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()
