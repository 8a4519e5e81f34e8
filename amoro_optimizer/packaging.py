"""An archive for Spark's executors: our packages, their requirements, and the interpreter."""

import gzip
import importlib.metadata
import os
import platform
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from amoro_core.errors import InvalidArgument

#: Our own distribution; its packages are taken from where they are imported, so an editable installation works too.
_ROOT = "amoro"
_OWN_PACKAGES = ("amoro_core", "amoro_optimizer", "amoro_cli")
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
#: Parts of the standard library that no rewrite uses.
_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__", "test", "idlelib", "tkinter", "ensurepip", "lib2to3"}

_LAUNCHER = """#!/bin/sh
# The Python of this archive, wherever it was unpacked.
here=$(cd "$(dirname "$0")/.." && pwd -P)
export PYTHONPATH="$here/packages${PYTHONPATH:+:$PYTHONPATH}"
"""
_WITH_INTERPRETER = f"""export PYTHONHOME="$here/python"
export LD_LIBRARY_PATH="$here/python/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/python/bin/python{_VERSION}" "$@"
"""
_WITHOUT_INTERPRETER = f"""exec python{_VERSION} "$@"
"""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive that was made."""

    path: Path
    size_bytes: int
    python: str  # the version that it runs on, such as 3.11
    has_interpreter: bool
    distributions: tuple[tuple[str, str], ...]  # names and versions, sorted


def default_name() -> str:
    """A file name with the platform on which the archive runs."""
    return f"amoro-python{_VERSION}-{sys.platform}-{platform.machine()}.tar.gz"


def make_archive(path: Path, *, include: tuple[str, ...] = (), with_interpreter: bool = True) -> Archive:
    """Pack this installation, so that executors run the same code as the driver; unpacked, `bin/python` starts it.

    `include` names further installed distributions, such as a file system's. The same installation gives the same
    bytes. An existing archive is replaced at the end. Raises InvalidArgument for what can't be packed.
    """
    result = closure((_ROOT, *include))
    parts = path.with_name(f"{path.name}.part")
    try:
        # Level 6 would take three times as long for 3 % less.
        with (
            parts.open("wb") as raw,
            gzip.GzipFile("", "wb", compresslevel=3, fileobj=raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
        ):
            launcher = (_LAUNCHER + (_WITH_INTERPRETER if with_interpreter else _WITHOUT_INTERPRETER)).encode()
            for name in ("bin/python", "bin/python3"):
                _add_entry(archive, name, BytesIO(launcher), len(launcher), 0o755)
            # By which our code finds its own version.
            text = (result[_ROOT].read_text("METADATA") or "").encode()
            name = f"packages/{_ROOT}-{result[_ROOT].version}.dist-info/METADATA"
            _add_entry(archive, name, BytesIO(text), len(text), 0o644)
            for source, name in sorted(_contents(result, with_interpreter), key=lambda pair: pair[1]):
                _add(archive, source, name)
        parts.replace(path)
    except OSError as error:
        raise InvalidArgument(
            f"the archive {path} can't be written: {error.strerror or error}",
            hint="Name a file in a directory that is writable and has room.",
        ) from error
    finally:
        parts.unlink(missing_ok=True)
    versions = tuple(sorted((name, result[name].version) for name in result))
    return Archive(path, path.stat().st_size, _VERSION, with_interpreter, versions)


def closure(names: tuple[str, ...]) -> dict[str, importlib.metadata.Distribution]:
    """The distributions and all their requirements by canonical name. Raises InvalidArgument for a missing one."""
    result: dict[str, importlib.metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    wanted = [(_requirement(name), "the archive") for name in names]
    while wanted:
        requirement, by = wanted.pop()
        name = canonicalize_name(requirement.name)
        try:
            distribution = result.setdefault(name, importlib.metadata.distribution(name))
        except importlib.metadata.PackageNotFoundError as error:
            raise InvalidArgument(
                f"{requirement.name}, which {by} needs, is not installed here",
                hint=f"Install it with: pip install {requirement.name}",
            ) from error
        for extra in {"", *requirement.extras} - {extra for other, extra in seen if other == name}:
            seen.add((name, extra))
            for text in distribution.requires or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    wanted.append((needed, distribution.name))
    return result


def _requirement(name: str) -> Requirement:
    try:
        return Requirement(name)
    except InvalidRequirement as error:
        raise InvalidArgument(
            f"{name!r} is not the name of a distribution", hint="Name it as pip does, such as s3fs."
        ) from error


def _contents(
    packages: dict[str, importlib.metadata.Distribution], with_interpreter: bool
) -> Iterator[tuple[Path, str]]:
    """Files and their names in the archive."""
    for package in _OWN_PACKAGES:
        root = Path(sys.modules[__name__].__file__ or "").parent.parent / package
        yield from _below(root, f"packages/{package}", {"__pycache__"})
    for name, distribution in packages.items():
        if name != _ROOT:
            yield from _files_of(distribution)
    if with_interpreter:
        yield from _interpreter()


def _files_of(distribution: importlib.metadata.Distribution) -> Iterator[tuple[Path, str]]:
    """The files installed by the distribution, except its commands, whose first line names this machine's Python."""
    files = distribution.files
    if files is None or any(file.name.startswith("__editable__") for file in files):
        raise InvalidArgument(
            f"{distribution.name} does not say which files it has, or is installed from a work tree",
            hint=f"Install it as a wheel: pip install --force-reinstall --no-deps {distribution.name}",
        )
    for file in files:
        source = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
            yield source, f"packages/{file.as_posix()}"


def _interpreter() -> Iterator[tuple[Path, str]]:
    """The interpreter below this environment, with its standard library. Raises InvalidArgument."""
    base = Path(sys.base_prefix)
    if (base / "conda-meta").is_dir():
        raise InvalidArgument(
            "conda's Python can't be packed, as its libraries lie elsewhere",
            hint="Leave it out with --without-interpreter, or pack the environment with conda-pack.",
        )
    executable = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    yield executable, f"python/bin/python{_VERSION}"
    yield from _below(Path(sysconfig.get_path("stdlib")), f"python/lib/python{_VERSION}", _LEFT_OUT)
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        library = Path(sysconfig.get_config_var("LIBDIR") or base / "lib", sysconfig.get_config_var("INSTSONAME"))
        yield library, f"python/lib/{library.name}"


def _below(root: Path, name: str, left_out: set[str]) -> Iterator[tuple[Path, str]]:
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if name not in left_out and not name.startswith("config-")]
        for file in files:
            source = Path(directory, file)
            if source.is_file():  # a link may be dangling
                yield source, f"{name}/{source.relative_to(root).as_posix()}"


def _add(archive: tarfile.TarFile, source: Path, name: str) -> None:
    with source.open("rb") as opened:
        status = os.fstat(opened.fileno())
        _add_entry(archive, name, opened, status.st_size, 0o755 if status.st_mode & 0o100 else 0o644)


def _add_entry(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int, mode: int) -> None:
    """An entry without owner and time, so that they don't make two archives differ."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    archive.addfile(entry, content)
