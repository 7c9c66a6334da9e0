"""What happens around every request: it is counted, and a body past the limit is not read."""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import HTTPException

from twoclocks.metrics import ServiceMetrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class BodyLimit:
    """Refuse a body of more than `largest` bytes with 413, by its declared length or while it arrives."""

    def __init__(self, app: App, largest: int) -> None:
        self.app, self.largest = app, largest

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Hand on the request with a counting `receive`."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        taken = int(declared) if declared.isdigit() and int(declared) > self.largest else 0

        async def counted() -> Message:
            nonlocal taken
            if taken <= self.largest:
                message = await receive()
                taken += len(message.get("body", b""))
                if taken <= self.largest:
                    return message
            raise HTTPException(
                413,
                f"the body is larger than {self.largest:,} bytes; send fewer reports in a batch",
                {"Connection": "close"},
            )

        await self.app(scope, counted, send)


class RequestCounter:
    """Count requests by method, route and status, and time all but event streams."""

    def __init__(self, app: App, metrics: ServiceMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Hand on the request and note how it ended."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500
        streaming = False

        async def noted(message: Message) -> None:
            nonlocal status, streaming
            if message["type"] == "http.response.start":
                status = message["status"]
                streaming = (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            route = getattr(
                scope.get("route"), "path", "unknown"
            )  # never the raw path: it has no end of values
            self.metrics.requests.labels(scope["method"], route, str(status)).inc()
            if not streaming:
                self.metrics.seconds.labels(route).observe(time.perf_counter() - begun)
