"""What many callers ask for, carried out together."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from amoro_core.rpc.calls import off_loop

A = TypeVar("A")
R = TypeVar("R")


class Rounds(Generic[A, R]):
    """Carries out in one go all that is asked while the round before goes on. Used within one event loop."""

    def __init__(self, pool: Executor, carry_out: Callable[[Sequence[A]], Sequence[R | BaseException]]) -> None:
        """`carry_out` runs in the pool; it gives for each of what is asked an answer or an error."""
        self._pool, self._carry_out = pool, carry_out
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None

    async def ask(self, one: A) -> R:
        """The answer. Raises the error that stands in its place, or that which ended the round."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                await self._one(asked)
        finally:
            self._running = None

    async def _one(self, asked: Sequence[tuple[A, "asyncio.Future[R]"]]) -> None:
        try:
            answers = await off_loop(self._pool, lambda: self._carry_out([one for one, _ in asked]))
        except Exception as error:
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), told in zip(asked, answers, strict=True):
            if answer.done():  # its caller is gone
                continue
            if isinstance(told, BaseException):
                answer.set_exception(told)
            else:
                answer.set_result(told)
