"""The files of a table: as the last evaluation found them, and listed on request."""

from amoro_core.dashboard.charts.histogram import SizeCounts, histogram
from amoro_core.dashboard.charts.svg import Chart
from amoro_core.dashboard.pages.looking import Looks
from amoro_core.dashboard.pages.table import known_table, on_table
from amoro_core.dashboard.pages.urls import command, to_table
from amoro_core.dashboard.pages.visits import Shown, Visit, whole_number
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as kept

FILES = 1000  # of a listing
_LARGEST_ID = 2**63 - 1
_KINDS = ("data", "position deletes", "equality deletes")


class Files:
    """The page of sizes and partitions, and the listing."""

    def __init__(self, looks: Looks[pb.ListTableFilesResponse]) -> None:
        self._looks = looks

    async def show(self, visit: Visit) -> Shown:
        """Histogram, and the partitions most in need, of the last evaluation that has read the files."""
        visit.query()
        table = await known_table(visit)
        digest = await visit.ask("GetTableDigest", kept.GetTableDigestRequest(table=table.table), kept.TableDigest)
        return on_table(
            table,
            "table_files.html",
            "files",
            digest=digest,
            sizes=_sizes(digest),
            same=command("amoro", "table", "files", table.table, "--limit", str(FILES)),
        )

    async def list_now(self, visit: Visit) -> Shown:
        """A thousand live files, read now from the table's manifests."""
        asked, table = visit.query(after=(), snapshot=()), await known_table(visit)
        snapshot = whole_number(asked["snapshot"], "snapshot", _LARGEST_ID) or 0
        request = pb.ListTableFilesRequest(table=table.table, limit=FILES, after=asked["after"], snapshot_id=snapshot)
        same = command("amoro", "table", "files", table.table)
        async with self._looks.looking(f"the list of files of {table.table}", f"The command line waits longer: {same}"):
            found = await visit.ask("ListTableFiles", request, pb.ListTableFilesResponse)
        following = ""
        if found.next:
            snapshot = found.snapshot_id
            following = to_table(table.table, table.table_id, "files", "list", after=found.next, snapshot=snapshot)
        return on_table(table, "table_file_list.html", "files", found=found, following=following, same=same)


def _sizes(digest: kept.TableDigest) -> Chart | None:
    """The histogram from the first size that files have to the last; None while no file was read."""
    if not digest.read_ms:
        return None
    bins = [
        SizeCounts(one.from_bytes, (one.data_files, one.position_delete_files, one.equality_delete_files))
        for one in digest.sizes
    ]
    return histogram(bins, _KINDS, digest.target_bytes, "Files by size")
