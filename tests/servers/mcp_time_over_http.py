"""The published time server (mcp-server-time) over streamable HTTP: ``… PORT``; prints when ready.

With ``Authorization: Bearer TOKEN`` required when the variable TOKEN is set.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import uvicorn
from mcp_server_time.server import create_server
from starlette.responses import PlainTextResponse


def guarded(app: Any, token: str) -> Any:
    async def checked(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and given != f"Bearer {token}":
            await PlainTextResponse("no", status_code=401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return checked


app: Any = create_server("UTC").streamable_http_app()
if os.environ.get("TOKEN"):
    app = guarded(app, os.environ["TOKEN"])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
