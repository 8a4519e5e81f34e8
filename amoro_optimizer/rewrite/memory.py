"""How much memory the process uses now, and how much of its limit a task may plan with."""

import ctypes
import os
import resource
from pathlib import Path

import pyarrow as pa

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")
#: glibc's alone.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


#: What a task takes beside the rows and keys that it counts: code pages, compressors, fragments (measured).
_UNCOUNTED_BYTES = 48 << 20


def budget(limit_bytes: int) -> int:
    """Of a task's memory limit what rows and keys may take, at least half of it."""
    return max(limit_bytes // 2, limit_bytes - _UNCOUNTED_BYTES)


def give_back() -> None:
    """Return what was freed to the system: allocators keep it for the thread that had it, which may not need it."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


def resident_bytes() -> int:
    """The resident set of the process; where the system does not tell it, the largest there ever was."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
