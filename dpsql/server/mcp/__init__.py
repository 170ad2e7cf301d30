"""Model Context Protocol: tools with which a language model asks as an analyst, over HTTP and standard streams."""

from dpsql.server.mcp.server import McpServer, run_stdio, serve_mcp

__all__ = ["McpServer", "run_stdio", "serve_mcp"]
