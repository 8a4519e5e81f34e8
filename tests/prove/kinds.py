"""All kinds of batches, in the order of the results page, which shows their docstrings."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.principals import Role
from amoro_core.store.database import Store
from tests.acceptance.processes import ROOT, install
from tests.browser.chromium import Seat, started
from tests.browser.pages import STATES, VIEWS, looks, paths_in
from tests.dashboard import states
from tests.dashboard.fuzzing import fuzzed_once
from tests.dashboard.served import serving
from tests.engine.chance import seed_ids
from tests.faults import random_commits, random_expiries, random_maintenance
from tests.faults import random_sweeps as faulty_sweeps
from tests.iceberg import random_sweeps
from tests.iceberg.histories import random_lake
from tests.iceberg.looking import watched
from tests.kills import catalog_writers, site, upkeep
from tests.kills.site import PROPERTIES
from tests.model import clustered, interleaving, live, machine, whole_stories
from tests.model.conftest import quick_directory
from tests.model.lake import Stages
from tests.prove.proof import CROSS, Batch, Kind
from tests.rewrite import random_tables
from tests.rewrite.random_copies import copy_files
from tests.simulation import simulation
from tests.unit.planning.clustering.world import arrivals, changes_of_choice, random_table
from tests.unit.planning.random_tables import lived

#: By their names on the page and for --only.
KINDS: dict[str, Kind] = {}


def _kind(name: str, seconds: float, targets: Mapping[str, int], *, replays: bool = True) -> Callable[[Batch], Batch]:
    def add(run: Batch) -> Batch:
        KINDS[name] = Kind(targets, seconds, run, " ".join((run.__doc__ or "").split()), replays)
        return run

    return add


@_kind("schedules", 60, {"schedules": 2000})
def _schedules(seed: int, totals: Counter[str]) -> None:
    """Random schedules of the model of rows (`tests/model/machine.py`): writers, changes of schema, spec and refs, and
    the steps of two coordinators in any order, with crashes and lost answers. A mismatch: a ref whose rows differ from
    the model's, a process that commits twice or does not end, a missing or leftover file. The table counts operations
    by the stage of the process.
    """
    machine.run(seed, 25, 20, totals)


def _beside(module: Any, first: Sequence[Any], seed: int, totals: Counter[str]) -> None:
    """64 cases: those of the module's matrix, then pairs by chance."""
    with quick_directory() as made, closing(Stages(Path(made) / "stages")) as stages:
        try:
            for number in range(seed * 64, (seed + 1) * 64):
                case = first[number] if number < len(first) else module.pair(random.Random(number))
                print(f"interleaving {number}: {case}")
                status = module.carry_out(case, Path(made) / str(number), stages)
                totals["interleavings"] += 1
                totals["of two operations"] += len(case.happenings) > 1
                totals[f"ended {status}"] += 1
        finally:
            close_catalogs()


@_kind("interleavings", 60, {"interleavings": len(interleaving.MATRIX)})
def _interleavings(seed: int, totals: Counter[str]) -> None:
    """The first cases are the complete matrix (operation × point × table), of which `make test` runs a part; later
    cases are two random operations at one or two points. A mismatch: as with schedules, and in the matrix another
    outcome of the process than the operation implies.
    """
    _beside(interleaving, interleaving.MATRIX, seed, totals)


@_kind("rewriting", 30, {"tables": 1000})
def _rewriting(seed: int, totals: Counter[str]) -> None:
    """Fifty random tables (`tests/rewrite/tables.py`) of random types and specs, with deletes of all kinds, changed
    schemas and files of different writers, are rewritten with much memory and with little. A mismatch: other rows
    than the slow reader's (`tests/engine/oracle.py`), or wrong metrics. `make test` rewrites the first twenty.
    """
    with quick_directory() as made, random_tables.warehouse(Path(made)) as (catalog, config):
        for number in range(seed * 50, (seed + 1) * 50):
            totals["tasks"] += random_tables.rewrite_table(catalog, config, number)
            totals["tables"] += 1


@_kind("copies", 15, {"files": 500})
def _copies(seed: int, totals: Counter[str]) -> None:
    """Forty tasks of two to four random files each, written by pyarrow, DuckDB, Polars and DataFusion (arrow-rs) with
    random columns of every type, codecs, encodings, pages, indexes, checksums, bloom filters and row groups, some
    without rows or statistics, are rewritten with position deletes, copied where possible
    (`tests/rewrite/random_copies.py`). A mismatch: other rows for pyarrow, DuckDB or Polars, another number of rows
    for a condition in pyarrow, DuckDB or DataFusion, or wrong metrics. `make test` begins with the same tasks.
    """
    for number in range(seed * 40, (seed + 1) * 40):
        with tempfile.TemporaryDirectory(prefix="amoro-copies-") as made:
            copy_files(Path(made), number, totals)
        totals["tasks"] += 1


@_kind("differences", 30, {"histories": 2000, "real histories": 2000})
def _differences(seed: int, totals: Counter[str]) -> None:
    """20 tables in memory with randomly added and removed manifests (`tests/unit/planning/random_tables.py`), and 20
    real ones of all formats with 12 commits of all kinds (`tests/iceberg/histories.py`): those of other engines and
    pyiceberg, and our rewrites of files and manifests, planned and staged with the manifest cache. Each commit is
    followed by a scan with the cache and one without; real tables are also read entry by entry and matched file by
    file, and their branch is sometimes scanned. A mismatch: another scan, match, verdict or plan, or other rows.
    """
    for number in range(seed * 100, seed * 100 + 20):
        lived(number)
        totals["histories"] += 1
    for number in range(seed * 20, (seed + 1) * 20):
        chance = random.Random(number)
        with quick_directory() as made, pytest.MonkeyPatch.context() as patch:
            seed_ids(patch, chance)
            try:
                seen = watched(random_lake(Path(made), chance), chance, 12)
            except Exception as error:
                raise AssertionError(f"history {number}: {type(error).__name__}: {error}") from error
            finally:
                close_catalogs()
        totals["real histories"] += 1
        totals["commits with merged manifests"] += seen["merged"]
        totals["commits with conversions"] += seen["conversions"]
        totals["looks at another branch"] += seen["looks at the branch"]
        totals.update({what: count for what, count in seen.items() if CROSS in what})


@_kind("faults", 30, {"faulty commits": 1500, "faulty commits with deletes carried over": 200}, replays=False)
def _faults(seed: int, totals: Counter[str]) -> None:
    """Ten commits to a table over a REST catalog behind a faulty proxy, while others write and the coordinator crashes
    (`tests/faults/random_commits.py`). A mismatch: a commit that lands twice, reports a wrong outcome, or never ends;
    an extra or missing row; a removed file of an open attempt.
    """
    for number in range(seed * 5, (seed + 1) * 5):
        with quick_directory() as made:  # the last one carries deletes over with each commit
            random_commits.run(number, Path(made), totals, carries_deletes=number == seed * 5 + 4)


@_kind("maintenance", 50, {"ambiguous commits": 200, "ambiguous expiries": 50}, replays=False)
def _maintenance(seed: int, totals: Counter[str]) -> None:
    """Data expiry, dangling deletes, manifests and tags of one table over a REST catalog behind a faulty proxy, while
    others write and the coordinator crashes (`tests/faults/random_maintenance.py`). A mismatch: a commit that lands
    twice, reports a wrong outcome, or never ends; an extra or missing row; a lost manifest. Then ten expiries of a
    table, with tags created meanwhile (`tests/faults/random_expiries.py`). A mismatch: an expiry that does not end, an
    unreadable snapshot, a condemned file that a snapshot reaches, a lost tag.
    """
    for number in range(seed * 5, (seed + 1) * 5):
        with quick_directory() as made:
            random_maintenance.run(number, Path(made), totals)
    with quick_directory() as made:
        random_expiries.run(seed, 10, Path(made), totals)


@_kind("undoing", 60, {"stories": 300})
def _undoing(seed: int, totals: Counter[str]) -> None:
    """Ten random stories of a table of thirty steps each (`tests/model/whole_stories.py`): writers, optimizing, every
    action of maintenance, the sweep, tags and rollbacks, and undo, with hours and days between. A mismatch: wrong
    rows of the head or of any snapshot, also after the undo of an expiry; a planned undo that does not land; a process
    that is held or fails. The table counts actions and undos; `refused` are those that were impossible.
    """
    with quick_directory() as made:
        whole_stories.run(range(seed * 10, (seed + 1) * 10), 30, Path(made), totals)


@_kind("decoys", 120, {"tables": 5000, "tables of all shapes": 5000})
def _decoys(seed: int, totals: Counter[str]) -> None:
    """Twenty-five random tables (`tests/iceberg/random_sweeps.py`) of formats 1 and 2 with branches, tags, rolled-back
    snapshots, files added again and paths in six spellings, with planted files of every kind: orphans, and files
    that only look like orphans; those of all shapes also have staged and cherry-picked snapshots, several specs, and
    hashes in their paths. They are expired, cleaned and emptied while others write. One of fourteen has another table
    in its location (kind `shared-places`). A mismatch: a batch of deletes with a file that pyiceberg reaches from any
    snapshot at that moment, a deleted file that is needed or too young, an alarm of the guard although nobody
    committed a condemned file, or fewer than 99 of 100 planted orphans detected. Five more tables are on a storage that
    is busy, returns wrong listings, deletes partially and loses manifests (`tests/faults/random_sweeps.py`).
    """
    with quick_directory() as made:
        random_sweeps.run(range(seed * 25, (seed + 1) * 25), Path(made), totals)
    with quick_directory() as made:
        faulty_sweeps.run(range(seed * 5, (seed + 1) * 5), Path(made), totals)


@_kind("shared-places", 60, {"tables in a shared place": 200})
def _shared_places(seed: int, totals: Counter[str]) -> None:
    """Twenty-five pairs of the random tables of kind `decoys`: one is in the other's location, in a listed directory,
    registered before or not. Both are expired and emptied while others write, and cleaning orphans of either is
    refused by name. A mismatch: as for `decoys`, no refusal, or a deleted orphan.
    """
    each = random_sweeps.EACH
    first = seed * 25 * each + each - 1
    with quick_directory() as made:
        random_sweeps.run(range(first, first + 25 * each, each), Path(made), totals)


@contextmanager
def _spark_and_catalog(name: str) -> Iterator[tuple[Any, Any, Path]]:
    """A session, a catalog that it reads, too, and a directory."""
    from tests.spark.session import missing_parts, shared_catalog, start_session

    if missing := missing_parts():
        raise RuntimeError(f"Spark needs {', '.join(missing)}")
    with quick_directory() as made:
        spark = start_session(Path(made))
        try:
            with shared_catalog(spark, Path(made) / name, name) as catalog:
                yield spark, catalog, Path(made)
        finally:
            spark.stop()


@_kind("java", 180, {"tables expired": 500, "tables cleaned": 500})
def _java(seed: int, totals: Counter[str]) -> None:
    """Fifty random tables that Iceberg's Java runtime expires after our preview (`tests/spark/test_expiring.py`), and
    fifty whose orphan files both list (`tests/spark/test_maintenance.py`). A mismatch: other snapshots, references or
    files than Java's, except those that documented protections keep.
    """
    from tests.spark.session import shared_catalog
    from tests.spark.test_expiring import expired_as_by_java
    from tests.spark.test_maintenance import PROTECTED, differences_from_java

    with _spark_and_catalog("expired") as (spark, catalog, made):
        first = 1000 + seed * 50  # `make test-all` has those before
        went, released = expired_as_by_java(catalog, range(first, first + 50))
        totals.update({"tables expired": 50, "snapshots expired": went, "files released": released})
        with shared_catalog(spark, made / "cleaned", "cleaned") as cleaned:
            first = 100 + seed * 50
            found = differences_from_java(spark, cleaned, range(first, first + 50))
            assert found <= PROTECTED, found - PROTECTED
            totals["tables cleaned"] += 50


@_kind("java-sweeps", 180, {"tables swept": 500})
def _java_sweeps(seed: int, totals: Counter[str]) -> None:
    """Twenty-five random tables of kind `decoys` in a catalog shared with Java (`tests/spark/test_maintenance.py`). A
    mismatch: a batch of deletes with a file that Iceberg's Java runtime or pyiceberg reaches from any snapshot at that
    moment, or a mismatch of `decoys`.
    """
    from tests.spark.test_maintenance import FIRST_SWEPT, SWEPT_TABLES, swept_before_java

    first, found = FIRST_SWEPT + 10 * SWEPT_TABLES + seed * 25, Counter[str]()
    with _spark_and_catalog("swept") as (spark, catalog, _):
        swept_before_java(spark, catalog, range(first, first + 25), found)
    totals["tables swept"] += found.pop("tables")
    totals.update(found)


@_kind("vectors", 40, {"sets": 1000})
def _vectors(seed: int, totals: Counter[str]) -> None:
    """Fifty random sets of positions (single ones, shares, runs, almost all, edges of containers) that Spark deletes
    from fifty files of a table of format 3 (`tests/spark/test_vectors.py`). A mismatch: a vector that differs from ours
    in one byte, or that we read as another set.
    """
    from tests.spark.test_vectors import SETS_OF_A_TABLE, compare_vectors

    with _spark_and_catalog("vectors") as (_, catalog, made):
        compare_vectors(catalog, made, random.Random(seed), SETS_OF_A_TABLE, "sets")
        totals["sets"] += SETS_OF_A_TABLE


@_kind("kills", 120, {"kills": 200}, replays=False)
def _kills(seed: int, totals: Counter[str]) -> None:
    """A coordinator and an optimizer on one table, with a writer between; each is killed with SIGKILL, at a random
    failpoint or moment, and restarted, some fifteen times a table (`tests/kills/site.py`). A mismatch: rows that
    differ from the model's after any round, a process that commits twice, reports a wrong outcome or does not end, a
    lost task, a lost live file, a damaged database. The table counts kills by failpoint, or at a random moment.
    """
    with quick_directory() as made:
        site.run_rounds(seed, 15, Path(made), totals)


@_kind("upkeep", 150, {"kills": 1000, **{f"{name} × coordinator": 3 for name in upkeep.UPKEEP}}, replays=False)
def _upkeep(seed: int, totals: Counter[str]) -> None:
    """A coordinator that expires, cleans, sweeps, clusters, tags, counts and undoes on one table with a writer between
    (`tests/kills/upkeep.py`); it is killed with SIGKILL, at a random failpoint or moment, and restarted, some twenty
    times a table. A mismatch: changed rows of the head or of any snapshot, a lost file that a snapshot reaches, a
    process that commits twice or does not end, a forgotten condemned file or orphan, a damaged database.
    """
    with quick_directory() as made:
        upkeep.run(seed, 20, Path(made), totals)


@_kind("catalog-writers", 60, {"kills": 200}, replays=False)
def _catalog_writers(seed: int, totals: Counter[str]) -> None:
    """Sixteen writers of eight tables of an internal catalog, behind a proxy that loses, cuts and repeats requests; the
    coordinator is killed with SIGKILL at twenty random moments (`tests/kills/catalog_writers.py`). A mismatch: a lost,
    torn or duplicate commit, one that was refused and is there, a lost or forgotten metadata file, a damaged database.
    """
    with quick_directory() as made:
        catalog_writers.run(seed, 20, Path(made), totals)


@_kind("live", 620, {"live seconds": 1200}, replays=False)
def _live(seed: int, totals: Counter[str]) -> None:
    """A writer commits each second, alternating appends and upserts, for ten minutes, while a coordinator and its
    optimizer run (`tests/model/live.py`); odd seeds use a partitioned table. A mismatch: the writer fails, its rows
    differ from the model's at any commit, a rewrite lands twice or fails except by a conflict, or fewer than two land.
    """
    with quick_directory() as made:
        live.run(600.0, seed, Path(made), totals, partitioned=seed % 2 == 1)


@_kind("simulation", 60, {"simulated seeds": 5000})
def _simulation(seed: int, totals: Counter[str]) -> None:
    """A hundred seeds of the simulation (`tests/simulation`): events of tables, processes, tasks and optimizers on a
    virtual clock, with lost, late and duplicate messages, commits of unknown outcome, clock changes, and crashes of
    coordinator and optimizers at any effect; then all work must end. A mismatch: a transition outside the state
    machines, a result that counts twice, two processes on a table, a process that commits twice or reports a wrong
    outcome, a lost or duplicate row, a missing file, a forgotten task, a thread idle while tasks wait, or work that
    does not end within bounded virtual time.
    """
    for number in range(seed * 100, (seed + 1) * 100):
        outcome = simulation.run(number)
        totals["simulated seeds"] += 1
        totals["simulated events"] += outcome.steps
        totals.update({f"simulated: {name}": count for name, count in outcome.counts.items()})


@_kind("clustering", 60, {"tables": 500, "days": 600})
def _clustering(seed: int, totals: Counter[str]) -> None:
    """Fifty random tables (`tests/unit/planning/clustering/world.py`) are planned and clustered by a model of
    the executor until there is nothing to do. A mismatch: more than two plans. Then sixty days of arrivals at one
    table; a mismatch: more than 8 bytes written per arriving byte, or a point query that reads more than 4 times the
    files of a table clustered at once. Then sixty days of queries on random columns; a mismatch: `auto` chooses others.
    """
    for number in range(seed * 50, (seed + 1) * 50):
        assert len(random_table(number).settle()) <= 2, f"table {number} needs more than two plans"
        totals["tables"] += 1
    columns = ("a", "b", "c")[: 2 + seed % 2]
    table, worst = arrivals(columns, 60, 8 * (1 + seed % 4), ("anywhere", "time")[seed // 2 % 2], seed)
    each = table.written / table.arrived
    assert each <= 8, f"{each:.1f} bytes written for each that arrived"
    assert worst <= 4, f"a point query meets {worst:.1f} times the files"
    totals["days"] += 60
    changes = changes_of_choice(seed)
    assert changes == 0, f"other columns were chosen {changes} times"
    totals["days of queries"] += 60


@_kind("clustering-beside", 180, {"interleavings": len(clustered.WHOLE)})
def _clustering_beside(seed: int, totals: Counter[str]) -> None:
    """The first cases are all of operation × moment × format × partitions × update strategy during clustering
    (`tests/model/clustered.py`), of which `make test` runs a part; later cases are two random operations at one or two
    moments. A mismatch: a lost, duplicate or restored row in any ref, a group committed twice, a missing or leftover
    file, or another outcome of the process than the operation implies.
    """
    _beside(clustered, clustered.WHOLE, seed, totals)


@_kind("clustering-kills", 120, {"kills": 200}, replays=False)
def _clustering_kills(seed: int, totals: Counter[str]) -> None:
    """As `kills`, with a table of two partitions that is clustered along a Hilbert curve two times of three, else fully
    rewritten, with one commit per group in every second batch. Also a mismatch: a group committed twice.
    """
    progress = {"self-optimizing.cluster.partial-progress": str(seed % 2 == 0).lower()}
    properties = {**PROPERTIES, "self-optimizing.cluster.columns": "id,value", **progress}
    with quick_directory() as made:
        site.run_rounds(seed, 15, Path(made), totals, kinds=("cluster", "cluster", "full"), properties=properties)


@_kind("spark-cluster", 400, {"megabytes optimized": 1000}, replays=False)
def _spark_cluster(seed: int, totals: Counter[str]) -> None:
    """A table of more than 1 GB in 1,300 files with deletes, on a standalone Spark cluster of a master and two workers
    on this machine; an executor, a worker and the driver are killed with SIGKILL during optimizing, and another
    driver finishes it (`tests/spark_backend/losses.py`). A mismatch: other rows, a second commit, a repeated finished
    task, more attempts than losses, a leftover file other than complete ones whose result was on its way to the
    coordinator.
    """
    _optimize_and_kill(f"db.large{seed}", ("--type", "full"), {}, totals)


@_kind("spark-clustering", 400, {"megabytes optimized": 1000}, replays=False)
def _spark_clustering(seed: int, totals: Counter[str]) -> None:
    """As `spark-cluster`, with clustering: each of the twelve partitions is a group, and a job of three stages. An
    executor, a worker and the driver are killed while rows are written. The mismatches are the same.
    """
    whole = {"self-optimizing.cluster.partial-progress": "false"}  # one commit of all groups
    _optimize_and_kill(f"db.clustered{seed}", ("--type", "cluster", "--columns", "payload"), whole, totals)


def _optimize_and_kill(name: str, asked: Sequence[str], properties: Mapping[str, str], totals: Counter[str]) -> None:
    """Optimize a large table of that name on a cluster, parts of which are killed; count what was done."""
    from tests.spark_backend.cluster import start_cluster
    from tests.spark_backend.losses import large_table, lose_everything_once

    # On a disk: it is several times the table's size.
    with tempfile.TemporaryDirectory(prefix="amoro-cluster-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        cluster = start_cluster(directory, workers=2, cores=2)
        installation = install(directory)
        try:
            table = large_table(installation, name, megabytes=1050, level=15, more=properties)
            totals.update(lose_everything_once(installation, cluster, table, asked))
        finally:
            installation.close()
            cluster.close()


@_kind("service-kills", 400, {"drivers killed": 20, "coordinators killed": 10}, replays=False)
def _service_kills(seed: int, totals: Counter[str]) -> None:
    """A coordinator and a Spark driver with the jars of Hudi and Paimon compact a Hudi and a Paimon table and cluster
    another Hudi table, four times (`tests/spark_backend/table_services.py`); the driver (its Python, its JVM, or both)
    and the coordinator are killed with SIGKILL at random moments of the services. A mismatch: a service that is not
    done exactly once, other rows for Spark, PyPI's `hudi` or pypaimon, or one begun again while the lost driver lives.
    """
    _with_older_spark(totals, "kills", seed)


@_kind("service-beside", 400, {"commits": 50}, replays=False)
def _service_beside(seed: int, totals: Counter[str]) -> None:
    """A writer commits fifty upserts to a Hudi table and schedules a compaction after each fifth, without a lock; a
    Spark driver executes them beside it (`tests/spark_backend/table_services.py`). A mismatch: a plan compacted twice
    or never, other rows for Spark or PyPI's `hudi`.
    """
    _with_older_spark(totals, "beside", 50)


def _with_older_spark(totals: Counter[str], *asked: object) -> None:
    """Count what the module of table services counts; Hudi's jar is for Spark 3.5."""
    older = {"PYSPARK_SERIES": "3.5", "PYTHONPATH": str(ROOT / "build" / "pyspark-3.5")}
    command = [sys.executable, "-m", "tests.spark_backend.table_services", *map(str, asked)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | older, stdout=subprocess.PIPE, text=True, check=True)
    totals.update(json.loads(done.stdout.splitlines()[-1]))


@_kind("rest", 120, {"requests": 100_000}, replays=False)
def _rest(seed: int, totals: Counter[str]) -> None:
    """Schemathesis in all its phases on the served description, as viewer and as admin in turn
    (`tests/dashboard/fuzzing.py`). A mismatch: a server error, an undocumented answer, an accepted invalid request,
    or an answer without a token.
    """
    with quick_directory() as made:
        ended = fuzzed_once(Path(made), (Role.VIEWER, Role.ADMIN)[seed % 2], 90, seed)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    (generated,) = re.findall(r"(\d+) generated", ended.stdout)
    totals["requests"] += int(generated)


@_kind("pages", 150, {"looks": len(looks(every=True))})
def _pages(seed: int, totals: Counter[str]) -> None:
    """Every page of a coordinator in one of six alternating states, at every width and in both colour schemes, in
    Chromium (`tests/browser/pages.py`). A mismatch: an error on the console, a request that fails or leaves the
    origin, a page that scrolls sideways, or a serious finding of axe.
    """
    state, wrong = STATES[seed % len(STATES)], []
    with quick_directory() as made, pytest.MonkeyPatch.context() as patch, started() as browser:
        patch.setenv("HOME", str(made))
        patch.setenv("PYICEBERG_HOME", str(made))
        home = Path(made) / "home"
        home.mkdir()
        with Store.open(home / "amoro.db") as store:
            states.seed(store, state)
        with serving(home) as served:
            for width, scheme in VIEWS:
                seat = Seat.of(browser, f"http://127.0.0.1:{served.port}", served.admin, width=width, scheme=scheme)
                for path in paths_in(state):
                    seat.look(path)
                    seat.examine()
                    wrong += [f"{state}, {path}, {width}, {scheme}: {one}" for one in seat.wrong]
                    totals["looks"] += 1
                    totals[f"looks, {state}"] += 1
                seat.close()
    assert not wrong, wrong
