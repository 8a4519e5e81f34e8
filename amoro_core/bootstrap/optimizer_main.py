"""An optimizer as a program of its own; nothing of the coordinator is loaded for it."""

import os
from collections.abc import Mapping
from dataclasses import replace

from amoro_cli.connection import OptimizerOptions, SparkOptions
from amoro_core.bootstrap.process import on_signals
from amoro_core.bootstrap.secrets import read_token
from amoro_core.errors import InvalidSettings, OptimizerError
from amoro_core.logger import get_logger
from amoro_core.model.group_config import RESOURCE_LABEL
from amoro_core.model.principals import given_token
from amoro_core.model.text_sanitizing import Secret
from amoro_optimizer.rewrite.spilling import resident_bytes
from amoro_optimizer.runner import OptimizerConfig, Runner
from amoro_optimizer.work_kinds import InProcess

log = get_logger("amoro.app")


def run(options: OptimizerOptions) -> None:
    """Run an optimizer until a signal ends it. Raises permanent errors of its registration."""
    if options.spark is not None:
        _on_spark(options, options.spark)
        return
    config = _config(options, options.threads or os.cpu_count() or 1, {"backend": "standalone"})
    runner = Runner(config, InProcess())
    # Resident memory stays below this base plus threads times the limit.
    log.info("optimizer.started", base_bytes=resident_bytes(), limit_bytes=config.memory_bytes, threads=config.threads)
    with on_signals(lambda again: runner.stop(at_once=again)):
        runner.run()


def _config(options: OptimizerOptions, threads: int, labels: Mapping[str, str]) -> OptimizerConfig:
    return OptimizerConfig(
        address=options.address,
        group=options.group,
        threads=threads,
        memory_bytes=options.memory_bytes,
        enrolment_token=_enrolment_token(options),
        heartbeat_interval_s=options.heartbeat_interval.total_seconds(),
        labels={"pid": str(os.getpid()), **labels}
        | ({RESOURCE_LABEL: options.resource_id} if options.resource_id else {}),
        trust=options.trust,
    )


def _enrolment_token(options: OptimizerOptions) -> Secret:
    """The token of the given file, else the environment's, else the state directory's."""
    given = given_token(options.token_file, os.environ.get("AMORO_TOKEN", ""), "enrolment")
    return given or read_token(options.home / "enrolment.token")


def _on_spark(options: OptimizerOptions, spark: SparkOptions) -> None:
    """Run an optimizer in a Spark application until a signal ends it. Raises OptimizerError when that ends first."""
    try:
        # Spark needs to be installed only if requested.
        from amoro_optimizer.backends.spark.driver import spark_backend
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        raise InvalidSettings(
            "PySpark is not installed", hint="Install it with: pip install 'amoro[spark]'; it needs Java 17 too."
        ) from error
    config = _config(options, options.threads or 1, {"backend": "spark"})
    # Entered before our signal handlers: PySpark replaces SIGINT's when it starts.
    with spark_backend(spark.master, dict(spark.settings), spark.jars) as backend:
        labels = {**config.labels, "application": backend.application, "master": backend.master}
        config = replace(config, labels=labels, threads=options.threads or max(1, backend.slots))
        runner = Runner(config, backend, None if options.threads else lambda: backend.slots)
        backend.on_loss = lambda: runner.stop(at_once=True)
        with on_signals(lambda again: runner.stop(at_once=again)):
            runner.run()
        if backend.loss:
            raise OptimizerError(f"the Spark application {backend.application} has ended: {backend.loss}")
