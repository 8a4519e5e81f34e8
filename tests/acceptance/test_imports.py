"""What is imported: what a program does not need costs its users a second, or a hundred megabytes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.acceptance.processes import Installation, address_of, install
from tests.engine import writer
from tests.engine.builders import SCHEMA, row

#: `amoro`, which ends with a line of the packages of others and of our own parts that were imported.
PROGRAM = """
import atexit, json, sys
def told():
    found = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
    parts = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith(("amoro_core.", "amoro_opt"))}
    print(json.dumps(sorted(found | parts | ({"pyarrow.orc"} & set(sys.modules)))), file=sys.stderr)
atexit.register(told)
from amoro_core.__main__ import main
sys.exit(main())
"""
HELP = """
    amoro_cli amoro_core amoro_core.__main__ amoro_core.command amoro_core.documents amoro_core.errors
    amoro_core.importing amoro_core.model amoro_core.protocol amoro_core.records amoro_core.store annotated_doc
    shellingham typer
"""
#: typer brings pydantic; gRPC imports tools of its own where they are installed.
CLIENT = f"""{HELP}
    annotated_types cython_runtime google grpc grpc_channelz grpc_health grpc_reflection grpc_status grpc_tools pydantic
    pydantic_core typing_extensions typing_inspection
"""
#: strictyaml brings dateutil and six, pyiceberg the others.
OPTIMIZER = f"""{CLIENT}
    amoro_core.alone amoro_core.events amoro_core.extensions amoro_core.failpoints amoro_core.files amoro_core.iceberg
    amoro_core.logs amoro_core.maintaining amoro_core.positions amoro_core.signals amoro_core.tokens amoro_optimizer
    cachetools cloudpickle colorama dateutil greenlet mmh3 numpy pyarrow pyiceberg pyroaring
    six strictyaml structlog thrift zlib_ng zstandard
"""

#: The packages of others, where an Iceberg catalog is a file of SQLite: strictyaml brings dateutil and six,
#: sqlite-utils click, pluggy and sqlite_fts4, pydantic-settings dotenv.
ALONE = f"""{CLIENT}
    cachetools click cloudpickle colorama dateutil dotenv greenlet mmh3 numpy pluggy pyarrow pydantic_settings pyiceberg
    pyroaring six sqlite_fts4 sqlite_utils strictyaml structlog thrift yaml zlib_ng zstandard
"""
#: Parts of ours that only pages need.
PAGES = {"amoro_core.dashboard", "amoro_core.web"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = install(tmp_path_factory.mktemp("imports"))
    table = writer.make_table(made.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    made.up()
    yield made
    made.close()


def run(installation: Installation, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        cwd=installation.directory,
        env=installation.environment,
        timeout=120,
        check=True,
    )


def beyond(line: str, allowed: str) -> set[str]:
    """What the last line tells and is not allowed; names with an underscore belong to the installation."""
    told: list[str] = json.loads(line)
    return {name for name in told if not name.startswith("_") and not name.startswith("amoro_optimizer.")} - set(
        allowed.split()
    )


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [(("--help",), HELP), (("table", "list"), CLIENT), (("optimize", "cat.db.t"), CLIENT)],
    ids=["help", "list", "optimize"],
)
def test_a_command_beside_a_coordinator_imports_what_it_needs(
    shared: Installation, arguments: tuple[str, ...], allowed: str
) -> None:
    done = run(shared, *arguments)
    assert beyond(done.stderr.splitlines()[-1], allowed) == set()


def test_a_command_that_works_by_itself_imports_what_its_catalog_needs(tmp_path: Path) -> None:
    installation = install(tmp_path)
    table = writer.make_table(installation.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    done = run(installation, "optimize", "cat.db.t", "--type", "full")
    assert len(table.refresh().inspect.data_files()) == 1
    installation.close()
    told = done.stderr.splitlines()[-1]
    assert {"pyiceberg", "amoro_optimizer"} <= set(json.loads(told))
    assert {name for name in beyond(told, ALONE) if name in PAGES or not name.startswith("amoro_")} == set()


def test_numpy_starts_no_threads_of_linear_algebra() -> None:
    program = """
import os, sys
from amoro_core.command import amoro
amoro()
import numpy
print(len(os.listdir("/proc/self/task")))
"""
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines()[-1] == "1"


def test_no_plugin_of_pydantic_is_loaded(tmp_path: Path) -> None:
    about = tmp_path / "some_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pydantic]\nsome = some_plugin:plugin\n")
    (tmp_path / "some_plugin.py").write_text("plugin = None\nprint('a plugin of pydantic was loaded')\n")
    program = """
from amoro_core.command import amoro
amoro()
import pydantic
class Model(pydantic.BaseModel):
    value: int
"""
    environment = {key: value for key, value in os.environ.items() if key != "PYDANTIC_DISABLE_PLUGINS"}
    path = os.pathsep.join(filter(None, (str(tmp_path), environment.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"],
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": path},
        check=True,
    )
    assert "a plugin of pydantic was loaded" not in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only there a pool is named")
@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this Arrow has no jemalloc")
@pytest.mark.parametrize(("named", "expected"), [({}, "jemalloc"), ({"ARROW_DEFAULT_MEMORY_POOL": "system"}, "system")])
def test_all_of_arrow_takes_its_memory_from_the_pool_that_a_rewrite_has(named: dict[str, str], expected: str) -> None:
    """Its readers and writers of Parquet go by the environment alone, as it is when Arrow is loaded."""
    program = """
from amoro_core.command import amoro
amoro()
import pyarrow
pyarrow.jemalloc_memory_pool().print_stats()
print(pyarrow.default_memory_pool().backend_name)
"""
    environment = {key: value for key, value in os.environ.items() if key != "ARROW_DEFAULT_MEMORY_POOL"} | named
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines()[-1] == expected
    # Freed pages are soon given back, whoever takes them.
    assert {"opt.dirty_decay_ms: 1000", "opt.muzzy_decay_ms: 0"} <= {
        line.partition("(")[0].strip() for line in done.stderr.splitlines()
    }


def test_an_optimizer_of_its_own_imports_nothing_of_the_coordinator(shared: Installation) -> None:
    arguments = ("--address", address_of(shared.processes[0]), "--threads", "1", "--heartbeat-interval", "500ms")
    process = shared.start("optimizer", "run", *arguments, program=(sys.executable, "-c", PROGRAM))
    process.wait_for("optimizer.registered")
    assert process.terminate() == 0
    assert beyond(process.output.splitlines()[-1], OPTIMIZER) == set()
