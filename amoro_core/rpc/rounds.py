"""What many callers ask for, carried out together."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from amoro_core.rpc.calls import off_loop

A = TypeVar("A")
R = TypeVar("R")


class Rounds(Generic[A, R]):
    """Carries out in one go all that is asked while the round before goes on, or soon after it began.

    A round that follows one of several begins no sooner than `gather_s` seconds after that one: who was answered
    together is likely to ask again together. Who asks alone never waits. Used within one event loop.
    """

    def __init__(
        self, pool: Executor, carry_out: Callable[[Sequence[A]], Sequence[R | BaseException]], gather_s: float = 0.0
    ) -> None:
        """`carry_out` runs in the pool; it gives for each of what is asked an answer or an error."""
        self._pool, self._carry_out, self._gather_s = pool, carry_out, gather_s
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None
        self._begun_s, self._size = 0.0, 0  # of the round before

    async def ask(self, one: A) -> R:
        """The answer. Raises the error that stands in its place, or that which ended the round."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                early_s = self._begun_s + self._gather_s - loop.time()
                if self._size > 1 and early_s > 0:
                    await asyncio.sleep(early_s)
                asked, self._waiting = self._waiting, []
                self._begun_s, self._size = loop.time(), len(asked)
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
