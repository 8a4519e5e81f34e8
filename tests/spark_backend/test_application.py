"""What must be installed for Spark, who pays for it, and what is said where it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkConf

from amoro_core import errors
from amoro_core.errors import AmoroError, InvalidSettings
from amoro_optimizer.backends.spark.driver import failure_of, not_run
from amoro_optimizer.backends.spark.shuffle import FIXED, MOST_CLUSTERED, max_cluster_bytes, open_context
from tests.acceptance.processes import PATIENCE_S

ROOT = Path(__file__).parents[2]
RUN = ("optimizer", "run", "--backend", "spark", "--address", "127.0.0.1:1", "--token-file", "token")


def python(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (directory / "token").write_text("secret")
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        encoding="utf-8",
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": str(ROOT), **environment},
        timeout=PATIENCE_S,
        check=False,
    )


def test_everything_else_loads_without_pyspark(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "import amoro_core.__main__, amoro_core.bootstrap.launcher, amoro_optimizer.work_kinds"
    )
    done = python(tmp_path, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_pyspark_the_extra_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None\nfrom amoro_core.__main__ import main\nmain()"
    done = python(tmp_path, "-c", code, *RUN)
    assert done.returncode == 2
    assert done.stderr == (
        "Error: PySpark is not installed [AMORO-2002]\n"
        "Hint: Install it with: pip install 'amoro[spark]'; it needs Java 17 too.\n"
    )


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({"PATH": ""}, "there is none on the PATH"),
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME=/nowhere has no bin/java"),
    ],
    ids=["nothing on the PATH", "wrong JAVA_HOME"],
)
def test_without_java_it_says_what_to_install(tmp_path: Path, environment: dict[str, str], missing: str) -> None:
    done = python(tmp_path, "-m", "amoro_core", *RUN, **environment)
    assert done.returncode == 2
    assert f"Error: Spark needs Java, and {missing} [AMORO-2002]\n" in done.stderr
    assert "Hint: Install JDK 17" in done.stderr


@pytest.mark.parametrize("key", FIXED)
def test_settings_that_would_have_spark_repeat_or_copy_work_are_refused(key: str) -> None:
    with pytest.raises(InvalidSettings, match=rf"^an optimizer on Spark needs {key}={FIXED[key]}$"):
        open_context("local[1]", {key: "7"})


@pytest.mark.parametrize(
    ("master", "told", "size"),
    [
        ("spark://host:7077", None, 64 * 2**30),
        ("local[2]", "0", 0),
        ("yarn", "512", 512),
        ("yarn", "3k", 3 * 2**10),
        ("local[*]", "10GB", 10 * 2**30),
        ("yarn", "1t", 2**40),
    ],
)
def test_the_largest_group_is_that_of_the_setting_else_a_fixed_one_on_clusters(
    master: str, told: str | None, size: int
) -> None:
    conf = SparkConf(loadDefaults=False).setMaster(master)
    assert max_cluster_bytes(conf if told is None else conf.set(MOST_CLUSTERED, told)) == size


@pytest.mark.parametrize("master", ["local[2]", "local"])
def test_a_local_application_clusters_what_its_fullest_disk_has_room_for(
    master: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conf = SparkConf(loadDefaults=False).setMaster(master)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    assert 0 < max_cluster_bytes(conf) <= shutil.disk_usage(tmp_path).total // 3
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/proc")  # which has no room
    assert max_cluster_bytes(conf) == 0


def test_a_malformed_size_of_groups_is_refused_before_spark_starts() -> None:
    with pytest.raises(InvalidSettings, match=r"^spark.amoro.maxClusterBytes has the malformed value 'much'$"):
        open_context("local[1]", {MOST_CLUSTERED: "much"})


ABORTED = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
LOST = "Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.7 executor 0): "
MISSING = "ModuleNotFoundError: No module named 'amoro_optimizer'"
LACKING = "executors need amoro: see `amoro optimizer package`"
SAID = {
    # As Spark 4.0 says it: no daemon of Python workers starts, a worker raises, a worker dies.
    "no daemon": (
        f"{LOST}org.apache.spark.SparkException: \nError from python worker:\n  /usr/bin/python3: Error while finding "
        f"module specification for 'amoro_optimizer.backends.spark.daemon' ({MISSING})\nPYTHONPATH was:\n  /spark\n"
        "org.apache.spark.SparkException: EOFException occurred while reading\n\tat org.apache.Core.run",
        f"{LOST}org.apache.spark.SparkException: {MISSING}",
        LACKING,
    ),
    "a traceback": (
        f"{LOST}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f'  File "worker.py", line 1, in main\n    process()\n{MISSING}\n\n\tat org.apache.Core.run',
        f"{LOST}org.apache.spark.api.python.PythonException: Traceback (most recent call last): {MISSING}",
        LACKING,
    ),
    "a dead worker": (
        f"{LOST}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n"
        "\tat org.apache.Core.run\nCaused by: java.io.EOFException: ended",
        f"{LOST}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "the executor's log says more",
    ),
    "nothing": ("", "Exception", "the executor's log says more"),
}


@pytest.mark.parametrize(("text", "told", "hint"), SAID.values(), ids=SAID)
def test_of_what_spark_says_of_a_task_the_line_is_told_that_helps(text: str, told: str, hint: str) -> None:
    said = not_run(Exception(ABORTED + text if text else ""))
    assert (said.message, said.hint) == (f"Spark could not run the task: {told}", hint)


def test_an_error_comes_back_as_the_class_of_its_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AmoroError)]
    made = [failure_of(kind.code, "it broke") for kind in kinds]
    assert [(type(error), error.message) for error in made] == [(kind, "it broke") for kind in kinds]
