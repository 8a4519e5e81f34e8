"""What must be installed for Spark, who pays for it, and what is said where it is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from unittest.mock import MagicMock
from zipfile import ZipFile

import pytest
from pyspark import SparkConf

from amoro_core import errors
from amoro_core.errors import AmoroError, AttemptAbandoned, InvalidSettings
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.task_payload import PROCEDURE_HUDI, PROCEDURE_PAIMON, Work
from amoro_core.protocol.maintenance_pb2 import ProcedureWork
from amoro_optimizer.backends.spark import procedures
from amoro_optimizer.backends.spark.driver import failure_of, not_run, spark_backend
from amoro_optimizer.backends.spark.procedures import Jar, Procedures, settings_for
from amoro_optimizer.backends.spark.shuffle import FIXED, MOST_CLUSTERED, max_cluster_bytes, open_context
from amoro_optimizer.execution import Run
from tests.acceptance.processes import PATIENCE_S, ROOT

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


def test_without_pyspark_everything_else_loads_and_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "import amoro_core.__main__, amoro_core.bootstrap.launcher, amoro_optimizer.work_kinds\n"
        "amoro_core.__main__.main()"
    )
    done = python(tmp_path, "-c", code, *RUN)
    assert done.returncode == 2
    hint = "Hint: Install it with: pip install 'amoro[spark]'; it needs Java 17 too.\n"
    assert done.stderr == f"Error: PySpark is not installed [AMORO-2002]\n{hint}"


@pytest.mark.parametrize(
    ("environment", "missing"),
    [({"PATH": ""}, "there is none on the PATH"), ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME=/nowhere has no bin/java")],
    ids=["nothing on the PATH", "wrong JAVA_HOME"],
)
def test_without_java_it_says_what_to_install(tmp_path: Path, environment: dict[str, str], missing: str) -> None:
    done = python(tmp_path, "-m", "amoro_core", *RUN, **environment)
    assert done.returncode == 2
    assert f"Error: Spark needs Java, and {missing} [AMORO-2002]\n" in done.stderr
    assert "Hint: Install JDK 17" in done.stderr


def jar(place: Path, title: str, version: str) -> str:
    with ZipFile(place, "w") as made:
        made.writestr("META-INF/MANIFEST.MF", f"Implementation-Title: {title}\r\nImplementation-Version: {version}\r\n")
    return str(place)


def test_a_jar_is_known_by_its_manifest_and_gives_spark_what_its_engine_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hudi = jar(tmp_path / "a.jar", "hudi-spark3.5-bundle_2.12", "1.2.0")
    others = [jar(tmp_path / "b.jar", "Paimon : Bundle", "1.4.2"), jar(tmp_path / "c.jar", "hadoop-aws", "3.4")]
    settings, engines = settings_for([hudi, *others], "3.5.9")
    assert engines == [Jar(PROCEDURE_HUDI, "1.2.0"), Jar(PROCEDURE_PAIMON, "1.4.2")]
    assert settings["spark.jars"] == ",".join([hudi, *others])
    assert settings["spark.serializer"] == "org.apache.spark.serializer.KryoSerializer"
    assert settings_for([], "3.5.9") == ({}, [])
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # spark-submit has brought it, perhaps to the working directory
    monkeypatch.chdir(tmp_path)
    assert settings_for(["/elsewhere/b.jar"], "4.0.5") == ({}, [Jar(PROCEDURE_PAIMON, "1.4.2")])


HUDI_RANGE, PAIMON_RANGE = "Hudi from 1.2 to below 2.0", "Paimon from 0.9 to below 2.0"


@pytest.mark.parametrize(
    ("title", "version", "found", "needed"),
    [
        ("hudi-spark3.5-bundle_2.12", "1.1.1", "Hudi 1.1.1 for Spark 3.5", HUDI_RANGE),
        ("hudi-spark4.0-bundle_2.13", "1.2.0", "Hudi 1.2.0 for Spark 4.0", HUDI_RANGE),
        ("Paimon : Spark : 3.4", "0.9.0", "Paimon 0.9.0 for Spark 3.4", PAIMON_RANGE),
        ("Paimon : Bundle", "2.0-SNAPSHOT", "Paimon 2.0-SNAPSHOT", PAIMON_RANGE),
    ],
)
def test_a_jar_that_does_not_fit_is_an_error_that_names_it(
    tmp_path: Path, title: str, version: str, found: str, needed: str
) -> None:
    place = jar(tmp_path / "a.jar", title, version)
    words = f"the jar {place} has {found}: {needed} is needed, for Spark 3.5"
    with pytest.raises(InvalidSettings, match=re.escape(words)):
        settings_for([place], "3.5.9")


def test_a_jar_that_can_t_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"no jar")
    with pytest.raises(InvalidSettings, match=r"a\.jar can't be read: "):
        settings_for([str(tmp_path / "a.jar")], "3.5.9")
    with pytest.raises(InvalidSettings, match=r"nowhere\.jar can't be read: .*No such file"):
        spark_backend("local[1]", {}, ["/nowhere.jar"])


@pytest.mark.parametrize("why", ["cancelled", "silent"])
def test_a_procedure_that_must_not_go_on_has_its_jobs_cancelled_and_then_its_jvm_killed(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """By a clock that runs on while the machine sleeps."""
    clock, killed, jobs_cancelled, context = [100.0], threading.Event(), threading.Event(), MagicMock()
    context._jvm.java.lang.ProcessHandle.current().pid.return_value = 4711
    context.cancelJobsWithTag.side_effect = lambda tag: jobs_cancelled.set()
    monkeypatch.setattr(procedures, "steady_s", lambda: clock[0])
    monkeypatch.setattr(os, "kill", lambda pid, signal: killed.set() if (pid, signal) == (4711, SIGKILL) else None)

    def service(context: object, asked: object, is_stopped: Callable[[], bool]) -> object:
        assert not is_stopped()
        if why == "cancelled":
            cancelled.set()
        else:
            clock[0] = 160.5
        assert jobs_cancelled.wait(PATIENCE_S)
        assert (is_stopped(), killed.is_set()) == (True, False)
        clock[0] += 14.4
        assert not killed.wait(0.5)
        clock[0] += 1.0
        assert killed.wait(PATIENCE_S)
        raise RuntimeError("the JVM is gone")

    cancelled = threading.Event()
    monkeypatch.setattr(procedures, "_Hudi", service)
    run = Run(Attempt(TaskId("p", 1), 1), {}, 1, lambda *rows: None, cancelled.is_set, held_until_s=lambda: 160.0)
    work = Work(PROCEDURE_HUDI, ProcedureWork(format="hudi").SerializeToString())
    with pytest.raises(AttemptAbandoned):
        Procedures(context, [Jar(PROCEDURE_HUDI, "1.2.0")]).execute(work, run)
    called = [(name, arguments) for name, arguments, _ in context.method_calls if "Tag" in name]
    (first, tag), *between, last = called
    assert (first, {*between}, last) == ("addJobTag", {("cancelJobsWithTag", tag)}, ("removeJobTag", tag))


@pytest.mark.parametrize(
    ("key", "given", "words"),
    [
        (MOST_CLUSTERED, "much", "spark.amoro.maxClusterBytes has the malformed value 'much'"),
        *((key, "7", f"an optimizer on Spark needs {key}={value}") for key, value in FIXED.items()),
    ],
)
def test_settings_that_are_malformed_or_would_have_spark_repeat_or_copy_work_are_refused(
    key: str, given: str, words: str
) -> None:
    with pytest.raises(InvalidSettings, match=rf"^{words}$"):
        open_context("local[1]", {key: given})


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


ABORTED = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
LOST = "Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.7 executor 0): "
MISSING = "ModuleNotFoundError: No module named 'amoro_optimizer'"
LACKING = "executors need amoro: see `amoro optimizer package`"
SAID = {
    # As Spark 4.0 says it: no daemon of Python workers starts, a worker raises.
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
