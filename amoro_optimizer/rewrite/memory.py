"""The memory in use by the process, and the part of a limit that a task may plan with."""

import ctypes
import os
import resource

import pyarrow as pa

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = "/proc/self/statm"
#: Only in glibc; the numbers are those of its malloc.h.
_TRIM, _SET = (getattr(ctypes.CDLL(None), name, None) for name in ("malloc_trim", "mallopt"))
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MOST_HEAPS = -1, -3, -8
#: Blocks up to this size are taken from what was freed, of which so much is kept: a file fetched into new pages costs
#: the system half as much again as to read it.
_REUSED_BYTES, _KEPT_BYTES = 4 << 20, 16 << 20


#: Memory of a task beside the rows and keys that it counts: code pages, compressors, fragmentation (measured).
_UNCOUNTED_BYTES = 48 << 20


def budget(limit_bytes: int) -> int:
    """The part of a task's memory limit for rows and keys: at least half of it."""
    return max(limit_bytes // 2, limit_bytes - _UNCOUNTED_BYTES)


def share_heaps() -> None:
    """Let threads that begin from now on share as many heaps as there are cores.

    Otherwise each has its own, up to eight for each core, and every one of them keeps `_KEPT_BYTES` of what was freed.
    """
    if _SET is not None:
        _SET(_MOST_HEAPS, os.cpu_count() or 1)


def reuse_freed() -> None:
    """Let freed memory be used again, instead of returning it to the system for each small file, Arrow's and others."""
    choose_pool()
    if _SET is not None:
        _SET(_MMAP_THRESHOLD, _REUSED_BYTES)
        _SET(_TRIM_THRESHOLD, _KEPT_BYTES)


def choose_pool() -> None:
    """Let Arrow take its memory from jemalloc where it has that, unless the environment names another pool.

    A rewrite has a lower peak than with Arrow's default, and takes no more CPU; clustering takes a sixth less
    (`tests/bench/README.md`). What reads and writes Parquet goes by the environment alone, as it was when Arrow was
    loaded: `amoro` names jemalloc there.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def give_back() -> None:
    """Return freed memory to the system: allocators keep it for the thread that had it, which may not need it."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


def resident_bytes() -> int:
    """The resident set size of the process; its maximum so far if the system does not report it."""
    try:
        place = os.open(_STATM, os.O_RDONLY)
        try:
            return int(os.read(place, 100).split()[1]) * _PAGE_BYTES
        finally:
            os.close(place)
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
