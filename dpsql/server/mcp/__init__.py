"""Model Context Protocol: tools with which a language model asks as an analyst, over HTTP and standard streams."""

from dpsql.server.mcp.server import McpServer, serve_mcp
from dpsql.server.mcp.stdio import run_stdio

__all__ = ["McpServer", "run_stdio", "serve_mcp"]
