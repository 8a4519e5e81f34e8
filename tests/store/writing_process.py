"""A process that writes until it is killed, and says what was acknowledged: one number on each line."""

import sys
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from amoro_core.store import accounts
from amoro_core.store.database import Store


def main(path: Path) -> None:
    store = Store.open(path)
    number = 0
    while True:
        # Eight wait at a time, so that they share transactions.
        waiting: list[tuple[int, Future[None]]] = []
        for _ in range(8):
            number += 1
            save = partial(accounts.save_builtin_token, kind=str(number), token_hash="x" * 2000)
            waiting.append((number, store.submit(save)))
        for done, future in waiting:
            future.result()
            print(done, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
