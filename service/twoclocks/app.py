"""The service put together: `create_app(settings)` builds everything, `serve(settings)` runs it.

This module, `cli` and `demo` are the only ones that join rooms. Nothing is built at import.
"""

import logging
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from twoclocks import __version__
from twoclocks.config import Settings
from twoclocks.errors import StartError, install_handlers
from twoclocks.metrics import ServiceMetrics, metrics_router
from twoclocks.middleware import BodyLimit, RequestCounter
from twoclocks.routes import api_router, health_router
from twoclocks.store import Store, migrate
from twoclocks.watch import Watch
from twoclocks_dashboard import router as dashboard_router

GRACE_SECONDS = 2
log = logging.getLogger("twoclocks")


def create_app(settings: Settings | None = None, clock: Callable[[], float] = time.time) -> FastAPI:
    """The application over the settings' database, its schema brought up to date or checked.

    Several may live in one process. Raises StartError where the database cannot be used.
    """
    settings = settings or Settings()
    store = Store(settings.database_url)
    automatic = settings.migrate_at_start if settings.migrate_at_start is not None else store.is_sqlite
    if automatic:
        migrate.upgrade(settings.database_url)
    else:
        migrate.require_head(settings.database_url)
    watch = Watch(store, clock)
    metrics = ServiceMetrics(store, clock)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        watch.stop()
        store.close()

    app = FastAPIOffline(
        title="Two Clocks",
        version=__version__,
        summary="Live collapse forecasting for GRPO training",
        lifespan=lifespan,
    )
    app.state.store, app.state.watch = store, watch
    app.include_router(api_router(store, clock, watch, metrics.ingested))
    app.include_router(health_router(store))
    app.include_router(metrics_router(metrics))
    app.include_router(dashboard_router(store, clock))
    install_handlers(app, metrics.failed)
    app.add_middleware(BodyLimit, largest=settings.max_body_bytes)
    app.add_middleware(RequestCounter, metrics=metrics)
    return app


class Server(uvicorn.Server):
    """uvicorn, sending waiters home before it waits for connections, and ending with 0 when asked to end."""

    def __init__(self, app: FastAPI, settings: Settings, announce: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="on",
                ws="none",
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._watch: Watch = app.state.watch
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so once requests are answered."""
        await super().startup(sockets=sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End open long polls and event streams first; requests under way are finished."""
        self._watch.stop()
        await super().shutdown(sockets=sockets)

    def handle_exit(self, sig: int, frame: object) -> None:
        """Ask for the end once; a second signal does not wait for connections."""
        del sig, frame
        self.force_exit = self.should_exit
        self.should_exit = True


def serve(settings: Settings) -> int:
    """Run the service until SIGINT or SIGTERM. Returns the exit code: 0, or 2 with one line on stderr."""
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for chatty in ("alembic", "sqlalchemy", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        listener = bind(settings.host, settings.port)
        try:
            app = create_app(settings)
        except StartError:
            listener.close()
            raise
    except StartError as error:
        print(f"twoclocks: {error}", file=sys.stderr)
        return 2
    url = address(listener, settings.host)
    Server(app, settings, lambda: print(f"Two Clocks is at {url}", flush=True)).run(sockets=[listener])
    return 0


@contextmanager
def running(settings: Settings, clock: Callable[[], float] = time.time) -> Iterator[str]:
    """The service in a thread of this process while the block lasts; yields its address, or StartError."""
    listener = bind(settings.host, settings.port)
    ready = threading.Event()
    try:
        server = Server(create_app(settings, clock), settings, ready.set)
    except StartError:
        listener.close()
        raise
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="twoclocks-service")
    thread.start()
    try:
        while thread.is_alive() and not ready.wait(0.05):
            pass
        yield address(listener, settings.host)
    finally:
        server.should_exit = True
        thread.join()


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address and not yet listening; StartError where it cannot be had."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError:
        raise StartError(f"no such address {host!r}; set TWOCLOCKS_HOST to one of this machine's") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
        listener.listen(2_048)
    except OSError as error:
        listener.close()
        raise StartError(
            f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}; "
            "choose another with --port or TWOCLOCKS_PORT"
        ) from None
    return listener


def address(listener: socket.socket, host: str) -> str:
    """The URL to open in a browser."""
    port = listener.getsockname()[1]
    shown = (
        "127.0.0.1"
        if host in {"0.0.0.0", ""}
        else "[::1]"
        if host == "::"
        else f"[{host}]"
        if ":" in host
        else host
    )
    return f"http://{shown}:{port}"
