"""One batch in a process of its own: `python -m tests.prove.batch KIND SEED RESULT`."""

from __future__ import annotations

import json
import sys
import traceback
from collections import Counter
from pathlib import Path

from tests.prove.kinds import KINDS


def main(kind: str, seed: str, result: str) -> int:
    """Write what was counted, and how it failed, to the file; 1 for a mismatch."""
    totals: Counter[str] = Counter()
    mismatch = ""
    run = KINDS[kind].run
    try:
        run(int(seed), totals)
    except Exception as error:
        traceback.print_exc()
        mismatch = f"{type(error).__name__}: {error}"
    Path(result).write_text(json.dumps({"totals": totals, "mismatch": mismatch}))
    return 1 if mismatch else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
