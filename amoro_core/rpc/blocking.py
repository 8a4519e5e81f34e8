"""The part of the AdminService that keeps work off tables."""

from datetime import timedelta

import grpc

from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.paging import page_by_name
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.rpc import views
from amoro_core.rpc.administering import AdminCalls, word
from amoro_core.services.overview import page_limit


class BlockerCalls(AdminCalls):
    """Blockers of tables."""

    async def BlockTable(
        self,
        request: pb.BlockTableRequest,
        context: grpc.aio.ServicerContext[pb.BlockTableRequest, pb.Blocker],
    ) -> pb.Blocker:
        def work() -> pb.Blocker:
            named = [word(BlockedOperation, text, "kind of work") for text in request.operations]
            operations = frozenset(item for item in named if item is not None) or {BlockedOperation.OPTIMIZE}
            runtime = self._tables.ensure(self._catalogs.resolve(request.table))
            held_for = _duration(request.hold_ms)
            return views.blocker(
                self._blockers.block(runtime.table_id, frozenset(operations), held_for, request.reason)
            )

        return await self._run("BlockTable", context, work)

    async def RenewBlocker(
        self,
        request: pb.RenewBlockerRequest,
        context: grpc.aio.ServicerContext[pb.RenewBlockerRequest, pb.Blocker],
    ) -> pb.Blocker:
        return await self._run(
            "RenewBlocker",
            context,
            lambda: views.blocker(self._blockers.renew(request.blocker_id, _duration(request.hold_ms))),
        )

    async def ReleaseBlocker(
        self,
        request: pb.ReleaseBlockerRequest,
        context: grpc.aio.ServicerContext[pb.ReleaseBlockerRequest, pb.Blocker],
    ) -> pb.Blocker:
        return await self._run(
            "ReleaseBlocker", context, lambda: views.blocker(self._blockers.release(request.blocker_id))
        )

    async def ListBlockers(
        self,
        request: pb.ListBlockersRequest,
        context: grpc.aio.ServicerContext[pb.ListBlockersRequest, pb.ListBlockersResponse],
    ) -> pb.ListBlockersResponse:
        def work() -> pb.ListBlockersResponse:
            table_id = self._tables.id_of(self._catalogs.resolve(request.table)) if request.table else None
            # Their ids begin with the time at which they were taken.
            held, limit = self._blockers.list_active(table_id), page_limit(request.limit)
            page = page_by_name(held, request.after, limit, lambda item: item.blocker.blocker_id)
            return pb.ListBlockersResponse(blockers=map(views.blocker, page.items), next=page.next, total=page.total)

        return await self._run("ListBlockers", context, work)


def _duration(milliseconds: int) -> timedelta | None:
    return timedelta(milliseconds=milliseconds) if milliseconds else None
