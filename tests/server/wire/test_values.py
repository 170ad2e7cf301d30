"""Values as clients send them."""

from __future__ import annotations

from datetime import date, datetime

import pytest

from dpsql.errors import UsageError
from dpsql.server.wire.parameters import decode_value
from dpsql.server.wire.rows import OIDS


@pytest.mark.parametrize("zone", ["", " +00", "+00", "-03:30", "+0530", "Z"])
def test_the_zone_of_a_type_that_has_none_is_ignored(zone: str) -> None:
    for oid in (0, OIDS["date"]):
        assert decode_value(f"2026-02-03{zone}".encode(), oid, code=0, name="DATE") == date(2026, 2, 3)
    moment = datetime(2026, 2, 3, 4, 5, 6, 500_000)  # noqa: DTZ001 - as the language's
    for oid in (0, OIDS["timestamp"]):
        assert decode_value(f"2026-02-03 04:05:06.5{zone}".encode(), oid, code=0, name="TIMESTAMP") == moment


@pytest.mark.parametrize(
    "text", ["2026-02-03 +", "2026-02-03 +00 +00", "2026-02 +00", "+00", "2026-02-03 04:05:06.5 CET"]
)
def test_what_is_no_zone_does_not_read(text: str) -> None:
    with pytest.raises(UsageError):
        decode_value(text.encode(), 0, code=0, name="TIMESTAMP")
