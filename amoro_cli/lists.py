"""Lists of tables, and queues, as the command line asks for them."""

from collections.abc import Callable, Iterator

from amoro_cli.calling import Calls
from amoro_cli.paging import Part, gather, pages
from amoro_core.model.paging import ALL, PAGE, Window
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import queue_pb2 as queue
from amoro_core.protocol.deadlines import QUICK, TOUCHING


class ListCalls(Calls):
    """Calls for lists; every one may raise an AmoroError."""

    def list_tables(self, catalog: str = "", status: str = "", group: str = "", window: Window = ALL) -> Part[pb.Table]:
        """Tables by name."""
        wanted = pb.ListTablesRequest(catalog=catalog, status=status, group=group)
        return gather(window, self._ask_tables(wanted), lambda answer: answer.tables)[1]

    def table_pages(self, wanted: pb.ListTablesRequest, window: Window) -> Iterator[Part[pb.Table]]:
        """Tables as `wanted` says, page by page; at least one."""
        for _, part in pages(window, self._ask_tables(wanted), lambda answer: answer.tables):
            yield part

    def _ask_tables(self, wanted: pb.ListTablesRequest) -> Callable[[int, str], pb.ListTablesResponse]:
        def ask(limit: int, after: str) -> pb.ListTablesResponse:
            request = pb.ListTablesRequest(limit=limit, after=after)
            request.MergeFrom(wanted)
            return self._call(self._stub.ListTables, request, QUICK)

        return ask

    def list_queue(self, group: str = "", window: Window = ALL, only: str = "") -> queue.ListQueueResponse:
        """What waits for a plan or for threads, in one group or all: the limit is of each of the two lists.

        All pages as one answer; what came twice because the order moved between them is there once.
        """
        pending: dict[tuple[str, int], queue.PendingTable] = {}
        waiting: dict[tuple[str, str], queue.WaitingProcess] = {}
        first, left, after, order_changed = None, window.limit, window.after, False
        while True:
            limit = min(left, PAGE) if window.limit else PAGE
            request = queue.ListQueueRequest(group=group, limit=limit, after=after, only=only)
            answer = self._call(self._stub.ListQueue, request, QUICK)
            first, order_changed = first or answer, order_changed or answer.order_changed
            for table in answer.pending:
                pending.setdefault((table.group, table.table_id), table)
            for process in answer.waiting:
                waiting.setdefault((process.group, process.process_id), process)
            left -= max(len(answer.pending), len(answer.waiting))
            after = answer.next
            if not after or (window.limit and left <= 0):
                break
        return queue.ListQueueResponse(
            pending=pending.values(),
            waiting=waiting.values(),
            pending_total=first.pending_total,
            waiting_total=first.waiting_total,
            next=after,
            order_changed=order_changed,
        )

    def list_trash(self, table: str = "", window: Window = ALL) -> Part[pb.Trash]:
        """Condemned files that are not deleted yet, by process."""

        def ask(limit: int, after: str) -> pb.ListTrashResponse:
            request = pb.ListTrashRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListTrash, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.trash)[1]

    def list_leases(self, table: str = "", window: Window = ALL) -> Part[pb.Lease]:
        """Active leases, the next to expire first."""

        def ask(limit: int, after: str) -> pb.ListLeasesResponse:
            request = pb.ListLeasesRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListLeases, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.leases)[1]
