"""Calls are timed by method, by a handler that is made once."""

import asyncio
from typing import Any

import grpc
import pytest

from amoro_core.meters import Meters
from amoro_core.model import metrics
from amoro_core.rpc.timing import Timing


class Details:
    def __init__(self, method: str) -> None:
        self.method, self.invocation_metadata = method, ()


async def answer(request: str, context: object) -> str:
    if request == "broken":
        raise ValueError(request)
    return request.upper()


async def stream(request: str, context: object) -> Any:
    yield request


HANDLERS = {
    "/a.Service/Say": grpc.unary_unary_rpc_method_handler(answer),
    "/a.Service/Tell": grpc.unary_unary_rpc_method_handler(answer),
    "/a.Service/Watch": grpc.unary_stream_rpc_method_handler(stream),
}


def test_every_call_is_timed_and_its_handler_is_asked_for_once() -> None:
    meters, asked = Meters(), []
    timing = Timing(meters)

    async def continuation(details: Details) -> Any:
        asked.append(details.method)
        return HANDLERS.get(details.method)

    def handler(method: str) -> Any:
        return asyncio.run(timing.intercept_service(continuation, Details(f"/a.Service/{method}")))  # type: ignore[arg-type]

    def call(method: str, request: str) -> str:
        return str(asyncio.run(handler(method).unary_unary(request, None)))

    assert [call("Say", "a"), call("Tell", "b"), call("Say", "c")] == ["A", "B", "C"]
    with pytest.raises(ValueError, match=r"^broken$"):
        call("Tell", "broken")
    assert asked == ["/a.Service/Say", "/a.Service/Tell"]
    assert handler("Watch") is HANDLERS["/a.Service/Watch"]
    assert handler("Unknown") is None
    assert handler("Unknown") is None
    assert asked[2:] == ["/a.Service/Watch", "/a.Service/Unknown", "/a.Service/Unknown"]
    counted = {one.labels: one.buckets[-1] for one in meters.histograms() if one.name == metrics.RPC_TIME.name}
    assert counted == {("Say",): 2, ("Tell",): 2}
