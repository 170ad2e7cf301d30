"""Return of freed memory to the system: the C library would keep much of it for later."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

from dpsql.server.wire.memory_quota import MemoryQuota

__all__ = ["trim_memory"]

_PERIOD = 1.0  # seconds
_WORTHWHILE = 8 << 20  # bytes that were given back


async def trim_memory(quota: MemoryQuota) -> None:
    """Trim the memory of the process, in a thread, whenever clients have given back much of it; never return."""
    trim = _find_trim()
    while trim is not None:
        await asyncio.sleep(_PERIOD)
        if quota.given_back >= _WORTHWHILE:
            quota.given_back = 0
            await asyncio.to_thread(trim, 0)


def _find_trim() -> Callable[[int], int] | None:
    """Return the function of the C library that gives back memory, or None if it has none, as on macOS and Alpine."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
