"""The page for analysts and curators, and the JSON API beside it; no script and no style but from its own files."""

from dpsql.server.web.application import application

__all__ = ["application"]
