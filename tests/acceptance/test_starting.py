"""The first minutes of somebody who has a working pyiceberg and nothing of ours; and what a program imports.

What it does not need costs its users a second, or a hundred megabytes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.acceptance.processes import ROOT, Installation, address_of, amoro, apart, bare_environment, configure
from tests.acceptance.tables import assert_optimized_once, look, messy_table, name_of, small_table
from tests.engine import writer


def run_apart(home: Path, cwd: Path, *arguments: str) -> str:
    """What a command in a process of its own says, of somebody with that home; fails unless it succeeds."""
    done = apart(arguments, {**bare_environment(), "HOME": str(home), "PYTHONPATH": str(ROOT)}, cwd)
    assert done.status == 0, done.stderr
    return done.stdout


def test_two_commands_lead_from_pyicebergs_own_configuration_to_a_receipt_and_its_proof(tmp_path: Path) -> None:
    catalog = writer.make_catalog(tmp_path / "lake")
    table = messy_table(catalog)
    configure(tmp_path, catalog)
    before = look(table)
    short = name_of(table).removeprefix("cat.")  # the only catalog need not be named
    receipt = run_apart(tmp_path, tmp_path, "optimize", short, "--type", "full")
    after = assert_optimized_once(table, before)
    assert f"committed snapshot {after.snapshot_id}" in receipt
    assert "  rows     59 = 59 ✓" in receipt
    assert "none was lost, added or changed" in run_apart(tmp_path, tmp_path, "verify", short)
    assert {path.stem for path in (tmp_path / ".amoro").glob("*.token")} == {"admin", "enrolment"}
    catalog.close()


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"catalog: [\n", 2, "{file} can't be read: Found ugly disallowed JSONesque flow mapping"),
        (b"\xff\xfe", 2, "{file} can't be read: expected UTF-8, found byte 0xff at 0 [AMORO-2002]"),
        (b"- a\n", 2, "{file} does not hold settings by key [AMORO-2002]"),
        (b"# nothing yet\n", 0, ""),
    ],
)
def test_a_configuration_of_pyicebergs_that_is_malformed_is_told_by_its_name(
    tmp_path: Path, content: bytes, status: int, says: str
) -> None:
    file = tmp_path / ".pyiceberg.yaml"
    file.write_bytes(content)
    done = amoro(("catalog", "list"), {"HOME": str(tmp_path)}, tmp_path)
    assert (done.status, says.format(file=file) in done.stderr) == (status, True), done.stderr


def test_a_configuration_of_pyicebergs_in_the_current_directory_is_anybodys_and_not_looked_at(tmp_path: Path) -> None:
    """By itself pyiceberg reads it as it is imported."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".pyiceberg.yaml").write_bytes(b"catalog: [\n")
    run_apart(tmp_path, elsewhere, "catalog", "list")


def test_doctor_looks_where_a_state_directory_would_be_made(tmp_path: Path) -> None:
    done = amoro(("doctor", "--home", str(tmp_path / "a/b/c"), "-o", "json"), {"HOME": str(tmp_path)}, tmp_path)
    checks = {check["name"]: check["ok"] for check in done.document["findings"]}
    assert (checks["state directory"], checks["disk"], done.stderr) == (True, True, "")
    assert not (tmp_path / "a").exists()


#: `amoro`, which ends with a line of the packages of others and of our own parts that were imported.
PROGRAM = """
import atexit, json, sys
def told():
    parts = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("amoro_")}
    parts |= {name for name in sys.modules if name.startswith("amoro_core.formats.")}
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} | parts)), file=sys.stderr)
atexit.register(told)
from amoro_core.__main__ import main
sys.exit(main())
"""
#: What takes a second or a hundred megabytes: of others, which come with what we need of them, and of ours.
PAGES = {"amoro_core.web", "jinja2", "starlette", "uvicorn"}
FORMATS = {f"amoro_core.formats.{name}" for name in ("directories", "hudi", "paimon")}
NEVER = {"IPython", "boto3", "duckdb", "fsspec", "pandas", "pyspark", *FORMATS}
OURS = ("bootstrap.coordinator_app", "planning", "rpc", "services")
COORDINATOR = {*(f"amoro_core.{name}" for name in OURS), "sqlite_utils"}
ENGINE = {"amoro_core.iceberg", "amoro_optimizer", "numpy", "pyarrow", "pyiceberg", "strictyaml", "structlog"}
BESIDE = PAGES | NEVER | COORDINATOR | ENGINE


def imported(output: str) -> set[str]:
    """What the last line tells."""
    return set(json.loads(output.splitlines()[-1]))


@pytest.mark.parametrize(
    ("words", "status", "needless"),
    [
        ("--help", 0, BESIDE | {"pydantic"}),
        ("table list", 0, BESIDE),
        ("optimize {table}", 0, BESIDE),
        ("up --port 0", 5, BESIDE - {"sqlite_utils", "numpy", "pandas", "pyarrow"}),  # refused before all is loaded
    ],
)
def test_a_command_beside_a_coordinator_imports_what_it_needs(
    site: Installation, words: str, status: int, needless: set[str]
) -> None:
    table = name_of(small_table(site.catalog))
    done = site.run_apart(*words.format(table=table).split(), program=(sys.executable, "-c", PROGRAM))
    assert done.status == status, done.stderr
    assert imported(done.stderr) & needless == set()


def test_numpy_starts_no_threads_and_no_plugin_of_pydantic_is_loaded(tmp_path: Path) -> None:
    about = tmp_path / "some_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pydantic]\nsome = some_plugin:plugin\n")
    (tmp_path / "some_plugin.py").write_text("plugin = None\nprint('a plugin of pydantic was loaded')\n")
    program = """
import os
from amoro_core.bootstrap.launcher import amoro
amoro()
import numpy
print(len(os.listdir("/proc/self/task")))
import pydantic
class Model(pydantic.BaseModel):
    value: int
"""
    decided = ("OPENBLAS_NUM_THREADS", "PYDANTIC_DISABLE_PLUGINS")
    environment = {key: value for key, value in os.environ.items() if key not in decided}
    path = os.pathsep.join(filter(None, (str(tmp_path), environment.get("PYTHONPATH"))))
    done = apart(("--help",), {**environment, "PYTHONPATH": path}, ROOT, (sys.executable, "-c", program))
    assert done.stdout.splitlines()[-1] == "1"  # thread, and not what the plugin prints


@pytest.mark.skipif(sys.platform != "linux", reason="only there a pool is named")
@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this Arrow has no jemalloc")
@pytest.mark.parametrize(("named", "expected"), [({}, "jemalloc"), ({"ARROW_DEFAULT_MEMORY_POOL": "system"}, "system")])
def test_all_of_arrow_takes_its_memory_from_the_pool_that_a_rewrite_has(named: dict[str, str], expected: str) -> None:
    """Its readers and writers of Parquet go by the environment alone, as it is when Arrow is loaded."""
    program = """
from amoro_core.bootstrap.launcher import amoro
amoro()
import pyarrow
pyarrow.jemalloc_memory_pool().print_stats()
print(pyarrow.default_memory_pool().backend_name)
"""
    environment = {key: value for key, value in os.environ.items() if key != "ARROW_DEFAULT_MEMORY_POOL"} | named
    done = apart(("--help",), environment, ROOT, (sys.executable, "-c", program))
    assert done.stdout.splitlines()[-1] == expected
    # Freed pages are soon given back, whoever takes them.
    told = {line.partition("(")[0].strip() for line in done.stderr.splitlines()}
    assert {"opt.dirty_decay_ms: 1000", "opt.muzzy_decay_ms: 0"} <= told


def test_an_optimizer_of_its_own_imports_nothing_of_the_coordinator(site: Installation) -> None:
    arguments = ("--address", address_of(site.processes[0]), "--threads", "1", "--heartbeat-interval", "500ms")
    process = site.start("optimizer", "run", *arguments, program=(sys.executable, "-c", PROGRAM))
    process.wait_for("optimizer.registered")
    assert process.terminate() == 0
    assert imported(process.output) & (PAGES | NEVER | COORDINATOR) == set()
