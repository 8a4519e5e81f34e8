"""Scan reports, as Iceberg's REST protocol sends them to `…/tables/{table}/metrics`: clustering learns from them."""

import json
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from amoro_core.errors import MalformedRequest, UnknownToken
from amoro_core.model.principals import Channel, anonymous
from amoro_core.model.scan_stats import filters_of_report
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.app_context import bearer, context_of
from amoro_core.web.login import address_of
from amoro_core.web.rest.requests import HttpError, content_of, problem_of

#: Between the parts of a namespace.
_SEPARATOR = "\x1f"
PATH = "/iceberg/v1/{catalog}/namespaces/{namespace}/tables/{table}/metrics"


def routes() -> Sequence[BaseRoute]:
    """The route of reports; its catalog is the prefix of the protocol."""
    return (Route(PATH, _report, methods=["POST"]),)


async def _report(request: Request) -> Response:
    try:
        return await _learned(request)
    except HttpError as answered:
        return answered.response
    except Exception as error:
        return problem_of(error)


async def _learned(request: Request) -> Response:
    operations = context_of(request).operations
    address = address_of(request)
    try:
        principal = await operations.admit(bearer(request), Channel.REST, address)
    except UnknownToken as error:
        await operations.refuse("LearnScans", anonymous(Channel.REST, address), error)
        raise
    try:
        report = json.loads(await content_of(request))
    except (ValueError, RecursionError) as error:
        raise MalformedRequest("the report is no JSON") from error
    filters = filters_of_report(report)
    if filters is not None:
        path = request.path_params
        table = TableIdentifier(path["catalog"], tuple(path["namespace"].split(_SEPARATOR)), path["table"])
        values = [pb.ScanFilter(column=one.column, operator=one.operator.value) for one in filters]
        message = pb.LearnScansRequest(table=str(table), scans=[pb.ToldScan(filters=values, scans=1)])
        await operations.call("LearnScans", message, principal)
    return Response(status_code=204)
