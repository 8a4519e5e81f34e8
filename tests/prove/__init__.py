"""The large figures: batches of random tests without end, whose totals are added up in `docs/proof.json`.

    python -m tests.prove --budget 60m              # what `make prove BUDGET=60m` does
    python -m tests.prove --only kills --budget 5m
    python -m tests.prove --replay schedules:17     # one batch again, counted nowhere
    python -m tests.prove --mended schedules:17 --by 1a2b3c4

A batch is one seed of one kind (`kinds.py`), and runs in a process of its own. After each batch the totals are written,
so that a killed run loses at most the batch that was running. A mismatch does not stop the run: it is written down with
its seed, and makes the exit status 1 until somebody says which commit mended it, with which the seed is run again; it
stays on the page all the same. Names of totals are free; `A × B` is shown as a table of A by B.
"""
