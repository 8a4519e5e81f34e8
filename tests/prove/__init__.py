"""The large figures: batches of random tests without end, whose totals are added up in `docs/proof.json`.

    python -m tests.prove --budget 60m              # what `make prove BUDGET=60m` does
    python -m tests.prove --only kills --budget 5m
    python -m tests.prove --replay schedules:17     # one batch again, counted nowhere
    python -m tests.prove --mended schedules:17 --by 1a2b3c4

A batch is one seed of one kind, and runs in a process of its own (`tests.prove.batch`). After each batch the totals
are written, so that a killed run loses at most the batch that was running. A mismatch does not stop the run: it is
written down with its seed, and makes the exit status 1 until somebody says which commit mended it, with which the
seed is run again; it stays on the page all the same.

To add a kind, write a module in `tests/prove/kinds/` with these names, and add it to `KINDS` there:

- `NAME`: one word, on the page and for `--only`.
- `WHAT`: a sentence for the page: what one batch does, and what would be a mismatch.
- `TARGETS`: totals to be reached, by name; kinds that have not reached theirs run first.
- `SECONDS`: how long a batch takes, about; it is ended as hanging after ten times that (five minutes at least).
- `REPLAYS`: whether the seed decides everything, timing included.
- `run(seed, totals)`: one batch. Adds to `totals` (a Counter) as it goes, prints what helps to understand a failure,
  and raises for a mismatch. Names of totals are free; `A × B` is shown as a table of A by B.
"""
