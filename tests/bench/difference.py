"""CPU of looking at, planning and committing to a large table whose last commit was small:

`python -m tests.bench.difference [--files 100000 …] [--manifests 100 1000 10000] [--pairs 1] [--against PATH]` prints
JSON.

Tables of metadata alone as in `live_files`, one of each number of files in each number of manifests that gives a
manifest ten files or more. Measured in one process, seconds of CPU: the first look (load, scan, evaluate), the next
look and the plan after another's commit of twelve files (medians of five commits), the same with nothing left but the
cache on disk, and commit attempts that replace ten files after another's commit of twelve; and the most memory up to
the end of the first look, and of all steps. `--against` names another checkout, which does the same in turn with ours
on tables of up to `--against-files` files; its plans must be equal to ours.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import inspect
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.live_files import COLUMNS, MIB, NOW, OF_AMORO, PARTITIONS, _described, _file, made_up
from tests.bench.machine import OURS, described, modules_of, peak_mb

#: Files of another's commit, and files that a commit attempt of ours replaces.
ADDED, REPLACED = 12, 10
#: Others' commits of which the median is told.
COMMITS = 5
#: Files that a manifest has at least.
LEAST = 10
Figures = dict[str, float]


def main() -> None:
    """Measure one checkout in this process, or all in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[100_000])
    parser.add_argument("--manifests", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--against-files", type=int, default=100_000, help="the largest table that it is measured on")
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--append", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.append:
        _append(given.root, given.append)
        return
    if given.root:
        print(json.dumps(measured(given.root)))
        return
    versions = {"now": OURS} | ({} if given.against is None else {"before": given.against})
    results = []
    for files, manifests in itertools.product(sorted(given.files), given.manifests):
        if files < LEAST * manifests:
            continue
        some = {name: path for name, path in versions.items() if name == "now" or files <= given.against_files}
        results.append({"files": files, "manifests": manifests, **_compared(files, manifests, given.pairs, some)})
    told = {"results": results, "pairs": given.pairs, **_first_looks(results), **described(versions)}
    print(json.dumps(told, indent=2))


def _compared(files: int, manifests: int, pairs: int, versions: Mapping[str, Path]) -> dict[str, Any]:
    """The medians of one table's rounds, and the plan that all of them made."""
    rounds: dict[str, list[Figures]] = {name: [] for name in versions}
    plans: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="amoro-difference-") as directory:
        made_up(Path(directory) / "made", files, 20, manifests)
        for _ in range(pairs):
            for name, version in versions.items():
                told = _run(version, Path(directory))
                print(f"{files} files, {manifests} manifests, {name}: {told}", file=sys.stderr, flush=True)
                rounds[name].append(told["figures"])
                plans.append(told["plan"])
                if plans[0] != told["plan"]:
                    raise SystemExit(f"{name} plans {told['plan']} instead of {plans[0]}")
    medians = {
        name: {key: round(statistics.median(one[key] for one in some), 3) for key in some[0]}
        for name, some in rounds.items()
    }
    return {"medians": medians, "plan": plans[0]}


def _first_looks(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What a file costs in the first look: of before the least at the least size, beside now at each size."""
    costs = {
        (name, one["files"], one["manifests"]): figures["first look s"] / one["files"]
        for one in results
        for name, figures in one["medians"].items()
    }
    sizes = [files for name, files, _ in costs if name == "before"]
    if not sizes:
        return {}
    before = min(cost for (name, files, _), cost in costs.items() if name == "before" and files == min(sizes))
    ratios = {
        f"{files} files, {manifests} manifests": round(before / cost, 2)
        for (name, files, manifests), cost in costs.items()
        if name == "now"
    }
    return {f"first look per file, before at {min(sizes)} files / now": ratios}


def _run(version: Path, directory: Path) -> dict[str, Any]:
    """What one round told, after which the table is as it was made."""
    made, kept = directory / "made", directory / "kept"
    # Paths in metadata are absolute: the round needs the table in its place.
    shutil.copytree(made, kept)
    with modules_of(version) as path:
        done = _ours(["--root", str(made)], path)
    shutil.rmtree(made)
    kept.rename(made)
    return dict(json.loads(done.splitlines()[-1]))


def _ours(arguments: list[str], path: str) -> str:
    """What this program says with the arguments, with modules from that path."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    env = {**os.environ, **OF_AMORO, "PYTHONPATH": path}
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True).stdout


def measured(root: Path) -> dict[str, Any]:
    """Seconds of CPU of each step, peaks of memory and the last plan, by whatever version is imported."""
    from amoro_core.services import planning  # noqa: F401  # what is imported later is no part of the figures

    def another() -> None:
        numbers.append(len(numbers) + 1)
        _ours(["--root", str(root), "--append", str(numbers[-1])], str(OURS))

    numbers: list[int] = []
    bench = _Bench(f"sqlite:///{root / 'catalog.db'}", root.as_uri(), root / "cache")
    found = {"first look s": bench.timed(bench.look), "first look MB": round(peak_mb())}
    for after, begin in (("again", lambda: None), ("after a restart", bench.restart)):
        steps: dict[str, list[float]] = {f"look {after} s": [], f"plan {after} s": []}
        for _ in range(COMMITS):
            another()
            begin()
            for seconds, step in zip(steps.values(), (bench.look, bench.plan), strict=True):
                seconds.append(bench.timed(step))
        found |= {name: statistics.median(seconds) for name, seconds in steps.items()}
    attempt = bench.attempt()
    for name in ("first attempt s", "second attempt s", "third attempt s"):
        another()
        found[name] = bench.timed(attempt)
    found["MB peak"] = round(peak_mb())
    return {"figures": found, "plan": _summary(bench.plan()[1])}


def _summary(plan: Any) -> dict[str, Any]:
    """What two plans are compared by."""
    hashes = []
    for task in plan.tasks:
        rewritten = sorted((_name(one.data), sorted(map(_name, one.deletes))) for one in task.rewritten)
        named = repr((rewritten, sorted(_name(one.data) for one in task.converted), task.output_count))
        hashes.append(hashlib.sha256(named.encode()).hexdigest())
    return {
        "type": str(plan.type),
        "tasks": len(plan.tasks),
        "files": sum(len(task.rewritten) + len(task.converted) for task in plan.tasks),
        "hash": hashlib.sha256("".join(sorted(hashes)).encode()).hexdigest()[:16],
    }


def _name(file: Any) -> str:
    """Where the table is differs from run to run."""
    return str(file.path.rpartition("/")[2])


class _Bench:
    """The steps of a coordinator on the table, by its own modules."""

    def __init__(self, uri: str, warehouse: str, cache: Path) -> None:
        from amoro_core.model.processes import CatalogConfig
        from amoro_core.model.tables import TableIdentifier

        self._cache = cache
        properties = {"type": "sql", "uri": uri, "warehouse": warehouse}
        self._config = CatalogConfig("cat", tuple(properties.items()))
        self._table = TableIdentifier("cat", ("db",), "t")
        self.restart()
        gc.freeze()  # as `amoro` does after its imports

    def restart(self) -> None:
        """Forget all but what is on disk."""
        from amoro_core.formats.iceberg import IcebergFormat

        known: dict[str, Any] = {}
        parameters = inspect.signature(IcebergFormat).parameters
        if "cache" in parameters:
            from amoro_core.iceberg.column_cache import ColumnCache

            known["cache"] = ColumnCache(self._cache, 2**40)
        if "tables" in parameters:
            from amoro_core.iceberg.known_manifests import KnownTables

            known["tables"] = KnownTables(2**40)
        self._format = IcebergFormat(**known)

    def timed(self, step: Callable[[], object]) -> float:
        """Seconds of CPU."""
        begun = time.process_time()
        step()
        return round(time.process_time() - begun, 3)

    def look(self) -> Any:
        """What a refresh does with the table's files."""
        from amoro_core.model.config import OptimizingConfig
        from amoro_core.planning.evaluating import evaluate

        table = self._format.load(self._config, self._table)
        table.refuse_unsupported()
        scan = table.scan()  # type: ignore[attr-defined]  # of Iceberg tables
        return table, scan, evaluate(scan, OptimizingConfig(), {}, NOW, path_of=table.partition_path)  # type: ignore[attr-defined]

    def plan(self) -> Any:
        """What planning does: it looks anew."""
        from amoro_core.model.config import OptimizingConfig
        from amoro_core.planning.planner import plan

        table, scan, evaluation = self.look()
        made = plan(scan, evaluation, OptimizingConfig(), threads=4)
        assert made is not None
        return table, made

    def attempt(self) -> Callable[[], object]:
        """A function that validates and stages a commit which replaces ten files of the plan."""
        from amoro_core.model.commits import Group, PlanRecord
        from amoro_core.model.rewrite import InputFile, RewriteInput, RewriteOutput

        table, made = self.plan()
        task = next(one for one in made.tasks if len(one.rewritten) >= REPLACED)
        files = task.rewritten[:REPLACED]
        deletes = tuple(dict.fromkeys(delete for one in files for delete in one.deletes))
        inputs = tuple(InputFile(one.data, tuple(map(deletes.index, one.deletes))) for one in files)
        context = table.context(task.key.spec_id)
        work = RewriteInput(context, inputs, (), deletes, made.sequence_number, 128 * MIB, 1)
        data = [one.data for one in files]
        rows = sum(one.record_count for one in data)
        path = f"{data[0].path.rpartition('/')[0]}/0197c0de-1-0.parquet"
        output = replace(data[0], path=path, record_count=rows, sequence_number=made.sequence_number)
        result = RewriteOutput((output,), (), rows, 0, rows, 0, 0, 0, 0)
        facts = table.facts
        record = PlanRecord(
            process_id="0197c0de",
            table_uuid=facts.uuid,
            format_version=2,
            snapshot_id=made.snapshot_id,
            sequence_number=made.sequence_number,
            last_column_id=COLUMNS,
            groups=(Group(1, work, result),),
        )
        committing = self._format.load(self._config, self._table)

        def attempt() -> object:
            head = committing.head(record.snapshot_id)  # type: ignore[attr-defined]
            content = _validated(record, head).content
            assert content is not None
            assert len(content.removed_data) == REPLACED
            return committing.stage(head, content, {})  # type: ignore[attr-defined]

        return attempt


def _validated(record: Any, head: Any) -> Any:
    """The validation by whatever version is imported: earlier ones took the record itself."""
    from amoro_core.validating import validate

    try:
        from amoro_core.validating.sight import look
    except ImportError:
        return validate(record, head)  # type: ignore[call-arg]
    return validate(look(record, head))


def _append(root: Path, number: int) -> None:
    """Another's commit of small files to one partition."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary

    from amoro_core.iceberg.list_writing import Listing, write_list
    from amoro_core.iceberg.manifest_writing import added_entry, new_header, write_manifest
    from amoro_core.iceberg.manifests import read_list
    from tests.engine.commits import MAIN, _send

    catalog = SqlCatalog("cat", uri=f"sqlite:///{root / 'catalog.db'}", warehouse=root.as_uri())
    table = catalog.load_table("db.t")
    head = table.current_snapshot()
    assert head is not None
    snapshot_id, sequence = 1000 + number, table.metadata.next_sequence_number()
    header = new_header(table.metadata, table.metadata.default_spec_id)
    files = [
        _file(_described(table.location(), number % PARTITIONS, f"n{number}{at}", MIB, sequence)) for at in range(ADDED)
    ]
    entries = [added_entry(one, header, snapshot_id) for one in files]
    path = f"{table.location()}/metadata/n{number}.avro"
    added = write_manifest(table.io, path, 2, ManifestContent.DATA, header, snapshot_id, entries)
    listed = [added, *read_list(table.io, head.manifest_list)]
    path = f"{table.location()}/metadata/snap-n{number}.avro"
    write_list(table.io, path, Listing(2, snapshot_id, head.snapshot_id, sequence), listed)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=sequence,
        manifest_list=path,
        summary=Summary(operation=Operation.APPEND),
        schema_id=table.metadata.current_schema_id,
    )
    _send(table, snapshot, MAIN)


if __name__ == "__main__":
    main()
