"""The part of the AdminService about where work comes from and who does it: catalogs, groups, optimizers, tokens."""

from typing import TypeVar

import grpc

from amoro_core.model.containers import EXTERNAL
from amoro_core.model.paging import page_by_name
from amoro_core.model.processes import CatalogConfig, Optimizer, ResourceGroup
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.rpc import views
from amoro_core.rpc.administering import AdminCalls, word
from amoro_core.scheduling.policy import DEFAULT_POLICY
from amoro_core.services.catalogs import CatalogChange
from amoro_core.services.groups import GroupChange, GroupView
from amoro_core.services.optimizers import Life
from amoro_core.services.overview import page_limit

MAX_WAIT_S = 20.0

T = TypeVar("T")


class ResourceCalls(AdminCalls):
    """Catalogs, optimizer groups, optimizers, and the tokens that let them in."""

    async def AddCatalog(
        self,
        request: pb.AddCatalogRequest,
        context: grpc.aio.ServicerContext[pb.AddCatalogRequest, pb.Catalog],
    ) -> pb.Catalog:
        config = CatalogConfig(
            request.name, tuple(sorted(request.properties.items())), tuple(request.allowed_locations)
        )

        def work() -> pb.Catalog:
            added = self._catalogs.add(config, dict(request.site_files))
            self._explore()
            return self._catalog(added)

        return await self._run("AddCatalog", context, work)

    async def GetCatalog(
        self,
        request: pb.GetCatalogRequest,
        context: grpc.aio.ServicerContext[pb.GetCatalogRequest, pb.Catalog],
    ) -> pb.Catalog:
        return await self._run("GetCatalog", context, lambda: self._catalog(self._catalogs.get(request.name)))

    async def UpdateCatalog(
        self,
        request: pb.UpdateCatalogRequest,
        context: grpc.aio.ServicerContext[pb.UpdateCatalogRequest, pb.Catalog],
    ) -> pb.Catalog:
        change = CatalogChange(
            dict(request.properties),
            frozenset(request.removed_properties),
            tuple(request.allowed_locations),
            frozenset(request.removed_locations),
            dict(request.site_files),
            frozenset(request.removed_site_files),
        )

        def work() -> pb.Catalog:
            updated = self._catalogs.update(request.name, change)
            self._explore()
            return self._catalog(updated)

        return await self._run("UpdateCatalog", context, work)

    async def RemoveCatalog(
        self,
        request: pb.RemoveCatalogRequest,
        context: grpc.aio.ServicerContext[pb.RemoveCatalogRequest, pb.RemoveCatalogResponse],
    ) -> pb.RemoveCatalogResponse:
        return await self._run(
            "RemoveCatalog",
            context,
            lambda: pb.RemoveCatalogResponse(name=request.name, tables=self._catalogs.remove(request.name)),
        )

    async def ListCatalogs(
        self,
        request: pb.ListCatalogsRequest,
        context: grpc.aio.ServicerContext[pb.ListCatalogsRequest, pb.ListCatalogsResponse],
    ) -> pb.ListCatalogsResponse:
        def work() -> pb.ListCatalogsResponse:
            known, limit = self._catalogs.list_catalogs(), page_limit(request.limit)
            page = page_by_name(known, request.after, limit, lambda config: config.name)
            return pb.ListCatalogsResponse(catalogs=map(self._catalog, page.items), next=page.next, total=page.total)

        return await self._run("ListCatalogs", context, work)

    async def ListOptimizers(
        self,
        request: pb.ListOptimizersRequest,
        context: grpc.aio.ServicerContext[pb.ListOptimizersRequest, pb.ListOptimizersResponse],
    ) -> pb.ListOptimizersResponse:
        def work() -> pb.ListOptimizersResponse:
            known = [pair for pair in self._optimizers.list_optimizers() if request.group in ("", pair[0].group)]
            page = page_by_name(known, request.after, page_limit(request.limit), lambda pair: pair[0].optimizer_id)
            shown = [self._optimizer(item, life) for item, life in page.items]
            return pb.ListOptimizersResponse(optimizers=shown, next=page.next, total=page.total)

        return await self._run("ListOptimizers", context, work)

    async def DrainOptimizer(
        self,
        request: pb.DrainOptimizerRequest,
        context: grpc.aio.ServicerContext[pb.DrainOptimizerRequest, pb.Optimizer],
    ) -> pb.Optimizer:
        return await self._run(
            "DrainOptimizer",
            context,
            lambda: self._optimizer(*self._optimizers.drain(request.optimizer_id)),
        )

    async def ReleaseOptimizer(
        self,
        request: pb.ReleaseOptimizerRequest,
        context: grpc.aio.ServicerContext[pb.ReleaseOptimizerRequest, pb.ReleaseOptimizerResponse],
    ) -> pb.ReleaseOptimizerResponse:
        def work() -> pb.ReleaseOptimizerResponse:
            optimizer_id = self._optimizers.find(request.optimizer_id)[0].optimizer_id
            held = self._optimizing.dismiss(optimizer_id, "its optimizer was released", lost=False)
            self._optimizers.release(optimizer_id)
            return pb.ReleaseOptimizerResponse(optimizer_id=optimizer_id, tasks=held)

        return await self._run("ReleaseOptimizer", context, work)

    async def GetInstance(
        self,
        request: pb.GetInstanceRequest,
        context: grpc.aio.ServicerContext[pb.GetInstanceRequest, pb.InstanceStatus],
    ) -> pb.InstanceStatus:
        return await self._run(
            "GetInstance", context, lambda: views.instance_status(self._containers.find_instance(request.id))
        )

    async def GetInstanceLogs(
        self,
        request: pb.GetInstanceLogsRequest,
        context: grpc.aio.ServicerContext[pb.GetInstanceLogsRequest, pb.InstanceLogs],
    ) -> pb.InstanceLogs:
        def work() -> pb.InstanceLogs:
            resource_id, said = self._containers.logs(request.id, request.lines)
            return pb.InstanceLogs(resource_id=resource_id, lines=said)

        return await self._run("GetInstanceLogs", context, work)

    async def KillInstance(
        self,
        request: pb.KillInstanceRequest,
        context: grpc.aio.ServicerContext[pb.KillInstanceRequest, pb.InstanceStatus],
    ) -> pb.InstanceStatus:
        return await self._run(
            "KillInstance", context, lambda: views.instance_status(self._containers.kill(request.id))
        )

    async def CreateGroup(
        self,
        request: pb.CreateGroupRequest,
        context: grpc.aio.ServicerContext[pb.CreateGroupRequest, pb.Group],
    ) -> pb.Group:
        group = ResourceGroup(
            request.name,
            request.scheduling_policy or DEFAULT_POLICY,
            tuple(sorted(request.properties.items())),
            request.container or EXTERNAL,
        )
        return await self._run("CreateGroup", context, lambda: self._group(self._groups.create(group)))

    async def ListGroups(
        self,
        request: pb.ListGroupsRequest,
        context: grpc.aio.ServicerContext[pb.ListGroupsRequest, pb.ListGroupsResponse],
    ) -> pb.ListGroupsResponse:
        def work() -> pb.ListGroupsResponse:
            page = self._groups.page(request.after, page_limit(request.limit))
            shown = [self._group(view, uses=False) for view in page.items]
            return pb.ListGroupsResponse(groups=shown, next=page.next, total=page.total)

        return await self._run("ListGroups", context, work)

    async def GetGroup(
        self,
        request: pb.GetGroupRequest,
        context: grpc.aio.ServicerContext[pb.GetGroupRequest, pb.Group],
    ) -> pb.Group:
        return await self._run(
            "GetGroup",
            context,
            lambda: self._group(self._groups.get(request.name)),
        )

    async def UpdateGroup(
        self,
        request: pb.UpdateGroupRequest,
        context: grpc.aio.ServicerContext[pb.UpdateGroupRequest, pb.Group],
    ) -> pb.Group:
        change = GroupChange(
            request.scheduling_policy or None,
            dict(request.properties),
            frozenset(request.removed_properties),
            request.container or None,
        )
        return await self._run("UpdateGroup", context, lambda: self._group(self._groups.update(request.name, change)))

    async def ScaleGroup(
        self,
        request: pb.ScaleGroupRequest,
        context: grpc.aio.ServicerContext[pb.ScaleGroupRequest, pb.Group],
    ) -> pb.Group:
        def work() -> pb.Group:
            self._containers.scale(request.name, request.instances)
            return self._group(self._groups.get(request.name))

        return await self._run("ScaleGroup", context, work)

    async def RemoveGroup(
        self,
        request: pb.RemoveGroupRequest,
        context: grpc.aio.ServicerContext[pb.RemoveGroupRequest, pb.RemoveGroupResponse],
    ) -> pb.RemoveGroupResponse:
        def work() -> pb.RemoveGroupResponse:
            self._groups.remove(request.name)
            return pb.RemoveGroupResponse(name=request.name)

        return await self._run("RemoveGroup", context, work)

    async def CreateToken(
        self,
        request: pb.CreateTokenRequest,
        context: grpc.aio.ServicerContext[pb.CreateTokenRequest, pb.Token],
    ) -> pb.Token:
        def work() -> pb.Token:
            role = word(Role, request.kind, "role") or Role.ADMIN
            made, token = self._tokens.create(request.name, role)
            return views.token(made, token)

        return await self._run("CreateToken", context, work)

    async def ListTokens(
        self,
        request: pb.ListTokensRequest,
        context: grpc.aio.ServicerContext[pb.ListTokensRequest, pb.ListTokensResponse],
    ) -> pb.ListTokensResponse:
        def work() -> pb.ListTokensResponse:
            page = self._tokens.list_tokens(request.after, page_limit(request.limit))
            return pb.ListTokensResponse(tokens=map(views.token, page.items), next=page.next, total=page.total)

        return await self._run("ListTokens", context, work)

    async def RevokeToken(
        self,
        request: pb.RevokeTokenRequest,
        context: grpc.aio.ServicerContext[pb.RevokeTokenRequest, pb.RevokeTokenResponse],
    ) -> pb.RevokeTokenResponse:
        def work() -> pb.RevokeTokenResponse:
            self._tokens.revoke(request.name)
            return pb.RevokeTokenResponse(name=request.name)

        return await self._run("RevokeToken", context, work)

    def _group(self, view: GroupView, *, uses: bool = True) -> pb.Group:
        name = view.group.name
        return views.group(view, self._containers.find(name), self._nobody_works(name), uses=uses)

    def _optimizer(self, item: Optimizer, life: Life) -> pb.Optimizer:
        running = self._optimizing.running_tasks(item.optimizer_id)
        return views.optimizer(item, life, running)
