"""Bad input: the exit status, what is said, and that nothing has changed."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, Process, address_of
from tests.acceptance.tables import assert_nothing_is_left, assert_optimized_once, look, name_of, small_table
from tests.engine import oracle, writer, writer3
from tests.engine.builders import SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.parquet_rows import local_path

_NUMBERS = itertools.count(1)
NO_RETRIES = {"self-optimizing.execute.num-retries": "0"}


@pytest.fixture(scope="module")
def coordinator(shared: Installation) -> Process:
    started = shared.up()
    shared.optimizer(address_of(started))
    # With a second catalog a name's first part is a catalog's.
    other = shared.directory / "other"
    writer.make_catalog(other).close()
    shared.ask("catalog", "add", "other", "type=sql", f"uri=sqlite:///{other / 'catalog.db'}")
    return started


# --- What is asked for ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wrong:
    """A command that can't be carried out; `says` stands in what it says."""

    arguments: tuple[str, ...]
    status: int
    says: tuple[str, ...]
    token: str = ""


WRONG = {
    "unknown catalog": Wrong(
        ("optimize", "cta.db.t"), 3, ("catalog 'cta' is not known [AMORO-3001]", "Hint: Did you mean cat?")
    ),
    "unknown table": Wrong(("optimize", "cat.db.nope", "--wait"), 3, ("cat.db.nope", "[AMORO-3002]", "Hint: ")),
    "malformed table name": Wrong(("optimize", "cat..t"), 2, ("cat..t", "TABLE")),
    "unknown type": Wrong(("optimize", "cat.db.t", "--type", "huge"), 2, ("'huge'", "'minor', 'major', 'full'")),
    "wrong token": Wrong(
        ("table", "list"), 4, ("the admin token is wrong [AMORO-4002]", "Hint: ", "admin.token"), "amo_wrong"
    ),
    "unknown process": Wrong(("process", "show", "0123456789"), 3, ("0123456789", "[AMORO-3003]")),
    "upgrade to format 1": Wrong(
        ("table", "upgrade", "cat.db.t", "--format-version", "1", "--yes"),
        2,
        ("tables can't be upgraded to format version 1", "Hint: Say --format-version 3."),
    ),
    "upgrade to format 4": Wrong(
        ("table", "upgrade", "cat.db.t", "--format-version", "4", "--dry-run"),
        2,
        ("tables can't be upgraded to format version 4", "Hint: Say --format-version 3."),
    ),
    "catalog that does not work": Wrong(
        ("catalog", "add", "bad", "type=sql", "uri=sqlite:////nowhere/at/all.db"), 1, ("bad", "[AMORO-1010]")
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_request_is_refused_with_its_value_and_the_way_out(
    shared: Installation, coordinator: Process, wrong: Wrong
) -> None:
    environment = {"AMORO_TOKEN": wrong.token} if wrong.token else {}
    outcome = shared.run(*wrong.arguments, environment=environment)
    assert (outcome.status, outcome.stdout) == (wrong.status, "")
    for text in wrong.says:
        assert text in outcome.stderr


def test_a_table_of_format_3_is_not_upgraded_again(shared: Installation, coordinator: Process) -> None:
    table = table_with_vectors(shared.catalog)
    before = table.metadata_location
    outcome = shared.run("table", "upgrade", name_of(table), "--format-version", "3", "--yes")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert f"{name_of(table)} has format version 3 already" in outcome.stderr
    assert table.refresh().metadata_location == before


# --- What is wrong with the table -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Broken:
    """A table that can't be optimized while `trouble` lasts, whose value is `{value}` in what is said."""

    trouble: Callable[[Installation, Table], Iterator[str]]
    status: int
    says: tuple[str, ...]
    leaves: str = "idle"  # the table's status
    make: Callable[[Catalog], Table] = lambda catalog: small_table(catalog, NO_RETRIES)


def malformed_property(installation: Installation, table: Table) -> Iterator[str]:
    yield from _with_property(table, "self-optimizing.target-size", "abc")


def unknown_group(installation: Installation, table: Table) -> Iterator[str]:
    yield from _with_property(table, "self-optimizing.group", "nope")


def switched_off(installation: Installation, table: Table) -> Iterator[str]:
    with table.transaction() as change:  # once it is enabled again, the clock has no work for it
        change.set_properties({"self-optimizing.minor.trigger.interval": "-1"})
    installation.ask("table", "disable", name_of(table))
    yield name_of(table)
    installation.ask("table", "enable", name_of(table))


def missing_data_file(installation: Installation, table: Table) -> Iterator[str]:
    path = Path(local_path(oracle.live_files(table)[1].path))
    path.rename(path.with_suffix(".away"))
    yield str(path)
    path.with_suffix(".away").rename(path)


def other_format(installation: Installation, table: Table) -> Iterator[str]:
    yield from _with_property(table, "write.format.default", "avro")


def full_disk(installation: Installation, table: Table) -> Iterator[str]:
    place = installation.directory / "warehouse" / "full"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        for value in _with_property(table, "write.data.path", place.as_uri()):
            yield value
            assert [path for path in place.rglob("*") if path.is_file()] == []
    finally:
        subprocess.run(["umount", str(place)], check=True)


def large_table(catalog: Catalog) -> Table:
    """Three files of incompressible text, too large for the full disk."""
    noise = random.Random(1)
    table = writer.make_table(catalog, "db.large", SCHEMA, properties=NO_RETRIES)
    for number in range(3):
        writer.append(table, [row(number, value=noise.randbytes(50_000).hex())])
    return table


def table_with_vectors(catalog: Catalog) -> Table:
    """Three small files, each with a deletion vector in the one Puffin file."""
    table = writer.make_table(catalog, f"db.vectors{next(_NUMBERS)}", SCHEMA, format_version=3, properties=NO_RETRIES)
    for first in (0, 10, 20):
        writer.append(table, [row(first + number) for number in range(10)])
    writer3.delete_rows(table, lambda record: record["id"] % 10 == 3)
    return table.refresh()


def vectors_of(table: Table) -> list[oracle.LiveFile]:
    return [one for one in oracle.live_files(table) if one.is_vector]


def damaged_vector(installation: Installation, table: Table) -> Iterator[str]:
    vector = vectors_of(table)[1]
    path = Path(local_path(vector.path))
    content = path.read_bytes()
    path.write_bytes(content[: vector.offset + 9] + b"?" + content[vector.offset + 10 :])
    yield f"{vector.path} at {vector.offset}"
    path.write_bytes(content)


def two_vectors(installation: Installation, table: Table) -> Iterator[str]:
    before, vector = head_of(table), vectors_of(table)[0]
    data = next(one for one in oracle.live_files(table) if one.path == vector.referenced)
    commit(table, lambda head: Change(tuple(writer3.vectors(head, {data: [5]}))))
    yield data.path
    writer.rollback(table, before)


def head_of(table: Table) -> int:
    head = table.refresh().metadata.current_snapshot_id
    assert head is not None
    return head


BROKEN = {
    "damaged vector": Broken(
        damaged_vector,
        1,
        ("the deletion vector at {value} has another checksum than its content",),
        make=table_with_vectors,
    ),
    "two vectors for one file": Broken(
        two_vectors,
        6,
        ("two deletion vectors name {value}: ", "Hint: Rewrite the data file"),
        "refused",
        table_with_vectors,
    ),
    "malformed property": Broken(
        malformed_property,
        6,
        ("property self-optimizing.target-size has the malformed value '{value}'", "Hint: Fix it"),
        "refused",
    ),
    "unknown group": Broken(
        unknown_group, 3, ("group '{value}' of table", "[AMORO-3005]", "Hint: Set the table's property", ": default.")
    ),
    "switched off": Broken(
        switched_off, 6, ("optimizing {value} is switched off by amoro table disable", "amoro table enable {value}")
    ),
    "missing data file": Broken(
        missing_data_file,
        1,
        ("{value} does not exist (", "restore it", "[AMORO-1002]", "Hint: See: amoro process show"),
    ),
    "other format wanted": Broken(
        other_format,
        6,
        (
            "write.format.default is '{value}', and only Parquet is written",
            "Hint: Set the table's property self-optimizing.write-format to parquet",
        ),
        "refused",
    ),
    "full disk": Broken(
        full_disk, 1, ("no space left for {value}/", "free some space", "[AMORO-1003]"), make=large_table
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_table_that_cannot_be_optimized_stays_as_it_is_and_is_optimized_once_it_is_mended(
    shared: Installation, coordinator: Process, broken: Broken
) -> None:
    table = broken.make(shared.catalog)
    with contextmanager(broken.trouble)(shared, table) as value:
        head = table.refresh().metadata.current_snapshot_id
        outcome = shared.run("optimize", name_of(table), "--type", "full", "--wait")
        assert (outcome.status, outcome.stdout) == (broken.status, "")
        for text in broken.says:
            assert text.format(value=value) in " ".join(outcome.said)
        assert table.refresh().metadata.current_snapshot_id == head
        shown = shared.ask("table", "show", name_of(table))
        assert (shown["status"], shown["process_id"]) == (broken.leaves, None)

    before = look(table)
    done = shared.run("optimize", name_of(table), "--type", "full", "--wait")
    assert done.status == 0, done.stderr
    assert_optimized_once(table, before)
    assert_nothing_is_left(table)
    assert shared.ask("table", "show", name_of(table))["status"] == "idle"


# --- What is wrong with the process that is started -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unfit:
    """A process that can't start; `{home}`, `{port}`, `{address}` and `{directory}` are the installation's."""

    arguments: tuple[str, ...]
    status: int
    says: tuple[str, ...]
    settings: str = ""


UNFIT = {
    "unknown key in the settings": Unfit(
        ("up", "--home", "{directory}/a", "--port", "0", "--config", "{directory}/settings.yaml"),
        2,
        (
            "{directory}/settings.yaml has the unknown key 'heartbeat-intervall'",
            "Hint: Did you mean heartbeat-interval?",
        ),
        "heartbeat-intervall: 5s\n",
    ),
    "malformed value in the settings": Unfit(
        ("up", "--home", "{directory}/b", "--port", "0", "--config", "{directory}/settings.yaml"),
        2,
        ("{directory}/settings.yaml: heartbeat-timeout has the malformed value 'soon'", "[AMORO-2002]"),
        "heartbeat-timeout: soon\n",
    ),
    "number of workers that says neither none nor how many": Unfit(
        ("up", "--home", "{directory}/b", "--port", "0", "--config", "{directory}/settings.yaml"),
        2,
        (
            "{directory}/settings.yaml: planning-workers has the malformed value 0: ",
            "expected auto, none, or a number from 1 to 64 [AMORO-2002]",
            "Hint: Give it such a value, or leave it out for its default.",
        ),
        "planning-workers: 0\n",
    ),
    "state directory that cannot be made": Unfit(
        ("up", "--home", "{directory}/catalog.db/home", "--port", "0"),
        2,
        ("the state directory {directory}/catalog.db/home can't be used: Not a directory", "Hint: Make it writable"),
    ),
    "port that is taken": Unfit(
        ("up", "--home", "{directory}/c", "--port", "{port}"),
        2,
        ("127.0.0.1:{port} can't be listened on", "[AMORO-2003]", "Hint: Stop what listens there"),
    ),
    "wrong enrolment token": Unfit(
        ("optimizer", "run", "--address", "{address}", "--token-file", "{home}/admin.token"),
        4,
        ("the enrolment token is wrong", "[AMORO-4001]", "Hint: Give the enrolment token"),
    ),
    "unknown group of an optimizer": Unfit(
        ("optimizer", "run", "--address", "{address}", "--group", "nope", "-hb", "500"),
        3,
        ("optimizer group 'nope' does not exist", "[AMORO-3005]", "Known groups: default."),
    ),
    "heartbeats that come too late": Unfit(
        ("optimizer", "run", "--address", "{address}"),
        2,
        (
            "heartbeat interval 10 s is not below the coordinator's timeout of 6 s",
            "[AMORO-2002]",
            "--heartbeat-interval",
        ),
    ),
}


@pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT.keys())
def test_a_process_that_cannot_start_says_what_is_wrong_and_the_way_out(
    shared: Installation, coordinator: Process, unfit: Unfit
) -> None:
    address = address_of(coordinator)
    known = {
        "home": str(shared.home),
        "directory": str(shared.directory),
        "address": address,
        "port": address.rpartition(":")[2],
    }
    (shared.directory / "settings.yaml").write_text(unfit.settings)
    outcome = shared.run(*(part.format(**known) for part in unfit.arguments))
    assert (outcome.status, outcome.stdout) == (unfit.status, "")
    assert re.search(r"^[IWEF]\d{4} ", outcome.stderr, re.MULTILINE) is None  # a line of gRPC's own log
    for text in unfit.says:
        assert text.format(**known) in " ".join(outcome.said)
    assert len(shared.ask("optimizer", "list")["optimizers"]) == 1


def _with_property(table: Table, key: str, value: str) -> Iterator[str]:
    with table.transaction() as change:
        change.set_properties({key: value})
    yield value
    with table.transaction() as change:
        change.remove_properties(key)
