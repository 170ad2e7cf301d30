"""Return of freed memory to the system: the C library would keep much of it for later.

Only glibc has these functions; elsewhere nothing is done.
"""

from __future__ import annotations

import asyncio
import ctypes

from dpsql.server.memory_quota import MemoryQuota

__all__ = ["trim_memory"]

_PERIOD = 1.0  # seconds
_WORTHWHILE = 8 << 20  # bytes that were given back
_THRESHOLD, _LARGE = -3, 256 * 1024  # the option of glibc, and bytes of an allocation that is returned once it is freed


async def trim_memory(quota: MemoryQuota) -> None:
    """Trim the memory of the process, in a thread, whenever clients have given back much of it."""
    try:
        library = ctypes.CDLL(None)
        trim = library.malloc_trim
        library.mallopt(_THRESHOLD, _LARGE)
    except (OSError, AttributeError, TypeError):
        return
    while True:
        await asyncio.sleep(_PERIOD)
        if quota.given_back >= _WORTHWHILE:
            quota.given_back = 0
            await asyncio.to_thread(trim, 0)
