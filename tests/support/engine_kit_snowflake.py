"""Kit of Snowflake's statements on fakesnow."""

from support.snowflake_kit import fakesnow_address

from dpsql.testing.warehouse_kits import create_snowflake

__all__ = ["KIT"]

_URL, _OPTIONS = fakesnow_address()
KIT = create_snowflake(_URL, options=_OPTIONS).sample(96)
