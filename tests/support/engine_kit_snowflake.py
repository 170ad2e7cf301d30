"""Kit of Snowflake's statements on fakesnow."""

from support.snowflake_kit import fakesnow_address

from dpsql.testing.kits.snowflake import create_kit

__all__ = ["KIT"]

_URL, _OPTIONS = fakesnow_address()
KIT = create_kit(_URL, options=_OPTIONS).sample(24)
