"""The memory in use by the process, and the part of a limit that a task may plan with."""

import ctypes
import os
import resource
from pathlib import Path

import pyarrow as pa

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")
#: Only in glibc.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


#: Memory of a task beside the rows and keys that it counts: code pages, compressors, fragmentation (measured).
_UNCOUNTED_BYTES = 48 << 20


def budget(limit_bytes: int) -> int:
    """The part of a task's memory limit for rows and keys: at least half of it."""
    return max(limit_bytes // 2, limit_bytes - _UNCOUNTED_BYTES)


def give_back() -> None:
    """Return freed memory to the system: allocators keep it for the thread that had it, which may not need it."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


def resident_bytes() -> int:
    """The resident set size of the process; its maximum so far if the system does not report it."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
