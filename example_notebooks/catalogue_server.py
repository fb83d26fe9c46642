"""An MCP server over stdin and stdout: what a supplier of loggers sells; the supplier is made up.

Started by ``02_tools_and_secrets.ipynb``; needs the package ``mcp``.
"""

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("catalogue")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def loggers() -> list[dict[str, str | int]]:
    """List the loggers with their weight in grams and their price in dollars."""
    return [
        {"name": "Minnow", "grams": 60, "dollars": 1_980},
        {"name": "Herring", "grams": 90, "dollars": 1_610},
        {"name": "Cod", "grams": 120, "dollars": 1_450},
        {"name": "Tuna", "grams": 150, "dollars": 1_240},
    ]


if __name__ == "__main__":
    server.run("stdio")
