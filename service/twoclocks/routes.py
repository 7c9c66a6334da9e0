"""The routes of the wire under /api/v1, with liveness and readiness beside them.

Handlers that touch the store are plain functions: the framework runs them in threads. Those that wait
(the long poll, the event stream) are coroutines and hold no thread while they do.
"""

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from twoclocks.store import Pulse, Store, csv_lines
from twoclocks.watch import Watch
from twoclocks.wire import (
    API_PREFIX,
    LARGEST,
    MAX_GENERATION,
    Ack,
    Clocks,
    Directive,
    DirectiveRecord,
    Family,
    Finish,
    Forecast,
    IngestReply,
    Problem,
    RunList,
    RunName,
    RunSpec,
    RunState,
    RunSummary,
    StepBatch,
    StepColumns,
)

LONGEST_WAIT = 60.0
HEARTBEAT_SECONDS = 15.0
ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)

Count = Annotated[int, Query(ge=0, le=LARGEST)]
Run = Annotated[RunName, Path(description="the run's name")]


class StrictRequest(Request):
    """A request whose JSON is read by pydantic's parser: it takes NaN, and no half surrogate pair or bomb."""

    async def json(self) -> Any:
        """The parsed body; a JSONDecodeError says what is wrong with it."""
        try:
            return ANYTHING.validate_json(await self.body())
        except ValidationError as error:
            raise json.JSONDecodeError(str(error.errors()[0]["ctx"]["error"]), "", 0) from None


class StrictRoute(APIRoute):
    """A route that hands its handler a StrictRequest."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The usual handler behind the stricter request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def api_router(
    store: Store, clock: Callable[[], float], watch: Watch, count: Callable[[IngestReply], None]
) -> APIRouter:
    """Every route under /api/v1, over this store; `count` is told of each reply to a batch."""
    problems: dict[int | str, dict[str, Any]] = {
        status: {"model": Problem, "description": text}
        for status, text in ((404, "no such run"), (422, "invalid"), (503, "the database does not answer"))
    }
    conflict: dict[int | str, dict[str, Any]] = {
        409: {"model": Problem, "description": "contradicts what is stored"}
    }
    too_large: dict[int | str, dict[str, Any]] = {
        413: {"model": Problem, "description": "the body is too large"}
    }
    router = APIRouter(prefix=API_PREFIX, route_class=StrictRoute, responses=problems)

    @router.put("/runs/{run}", response_model=RunSummary, responses=too_large, tags=["runs"])
    def put_run(run: Run, spec: RunSpec) -> Response:
        """Create the run, or resume it under a newer attempt. Idempotent; `{}` will do."""
        return _json(store.put_run(run, spec, clock()))

    @router.get("/runs", response_model=RunList, tags=["runs"])
    def get_runs(
        project: Annotated[RunName | None, Query()] = None,
        state: Annotated[RunState | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
        offset: Count = 0,
    ) -> Response:
        """Runs, the newest first; `total` counts all that match."""
        return _json(store.runs(clock(), project=project, state=state, limit=limit, offset=offset))

    @router.get("/runs/{run}", response_model=RunSummary, tags=["runs"])
    def get_run(run: Run) -> Response:
        """The run as it stands, with both clocks and the directive that holds."""
        return _json(store.run(run, clock()))

    @router.post(
        "/runs/{run}/steps", response_model=IngestReply, responses={**conflict, **too_large}, tags=["reports"]
    )
    def post_steps(run: Run, batch: StepBatch) -> Response:
        """Store a batch of reports, all or nothing. Replays are recognised; an undeclared run begins here."""
        reply = store.ingest(run, batch, clock())
        count(reply)
        return _json(reply)

    @router.get(
        "/runs/{run}/steps",
        response_model=StepColumns,
        responses={200: {"content": {"text/csv": {}}, "description": "columns, or CSV"}},
        tags=["reports"],
    )
    def get_steps(
        request: Request,
        run: Run,
        from_step: Annotated[int | None, Query(alias="from", ge=0, le=LARGEST)] = None,
        to_step: Annotated[int | None, Query(alias="to", ge=0, le=LARGEST)] = None,
        attempt: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
        max_points: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
        format: Annotated[Literal["json", "csv"] | None, Query(description="json or csv")] = None,
    ) -> Response:
        """The run's reports as columns: those on the live path, or all of one attempt."""
        columns = store.steps(run, from_step, to_step, attempt, max_points)
        as_csv = "text/csv" in request.headers.get("accept", "") if format is None else format == "csv"
        if as_csv:
            disposition = {"Content-Disposition": f'attachment; filename="{run}.csv"'}
            return StreamingResponse(csv_lines(columns), media_type="text/csv", headers=disposition)
        return _json(columns)

    @router.get("/runs/{run}/clocks", response_model=Clocks, tags=["clocks"])
    def get_clocks(run: Run) -> Response:
        """Both clocks: the failure clock's forecast and the progress clock."""
        return _json(store.clocks(run))

    @router.get("/runs/{run}/forecasts", response_model=list[Forecast], tags=["clocks"])
    def get_forecasts(run: Run) -> Response:
        """Every forecast ever made of the run, oldest first."""
        return _json_list(store.forecasts(run))

    @router.get(
        "/runs/{run}/directive",
        response_model=Directive,
        responses={304: {"description": "still the same generation"}},
        tags=["directives"],
    )
    async def get_directive(
        run: Run,
        wait: Annotated[
            float, Query(ge=0, le=LONGEST_WAIT, description="seconds to wait for a newer one")
        ] = 0.0,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """The directive that holds. With If-None-Match of the known one, waits for a newer or answers 304."""
        directive = await run_in_threadpool(store.directive, run)
        if _matches(if_none_match, directive) and wait:
            known = directive.generation
            if await watch.until(run, lambda pulse: pulse.generation != known, wait):
                directive = await run_in_threadpool(store.directive, run)
        headers = {"ETag": _etag(directive), "Cache-Control": "no-cache"}
        if _matches(if_none_match, directive):
            return Response(status_code=304, headers=headers)
        return _json(directive, headers)

    @router.get("/runs/{run}/directives", response_model=list[DirectiveRecord], tags=["directives"])
    def get_directives(run: Run) -> Response:
        """Every directive of the run with its acks and its compliance, oldest first."""
        return _json_list(store.directives(run))

    @router.put(
        "/runs/{run}/directive/{generation}/ack",
        response_model=DirectiveRecord,
        responses={**conflict, **too_large},
        tags=["directives"],
    )
    def put_ack(run: Run, generation: Annotated[int, Path(ge=0, le=MAX_GENERATION)], ack: Ack) -> Response:
        """Say what became of a directive. Idempotent; an answer is not changed."""
        return _json(store.ack(run, generation, ack, clock()))

    @router.post("/runs/{run}/finish", response_model=RunSummary, responses=too_large, tags=["runs"])
    def post_finish(run: Run, finish: Finish) -> Response:
        """End the run: finished, failed or stopped."""
        return _json(store.finish(run, finish, clock()))

    @router.get("/runs/{run}/events", response_class=StreamingResponse, tags=["runs"])
    async def get_events(run: Run, last_event_id: Annotated[str | None, Header()] = None) -> Response:
        """Server-sent events `run`: the summary now and after every change; the id is the revision."""
        await run_in_threadpool(
            store.revision, run
        )  # a run that does not exist is a 404, not an empty stream
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        events = _events(store, clock, watch, run, last_event_id)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    @router.get("/families", response_model=list[Family], tags=["clocks"])
    def get_families() -> Response:
        """Every family with the threshold learned so far and the runs behind it."""
        return _json_list(store.families())

    return router


def health_router(store: Store) -> APIRouter:
    """Liveness and readiness."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/readyz", responses={503: {"model": Problem}})
    def readyz() -> dict[str, str]:
        """The database answers too."""
        store.ping()
        return {"status": "ready"}

    return router


async def _events(
    store: Store, clock: Callable[[], float], watch: Watch, run: str, last_event_id: str | None
) -> AsyncIterator[str]:
    """The stream: `retry`, then an event for each change, and a comment where nothing changes for a while."""
    yield "retry: 2000\n\n"
    seen: tuple[int, RunState] | None = None
    if last_event_id is not None and last_event_id.isdecimal():
        seen = (int(last_event_id), RunState.RUNNING)

    def news(pulse: Pulse) -> bool:
        return (
            seen is None
            or pulse.revision != seen[0]
            or (pulse.state is RunState.LOST) != (seen[1] is RunState.LOST)
        )

    while not watch.stopped:
        if await watch.until(run, news, HEARTBEAT_SECONDS) is None:
            yield ": nothing new\n\n"
            continue
        summary = await run_in_threadpool(store.run, run, clock())
        seen = (summary.revision, summary.state)
        yield f"id: {summary.revision}\nevent: run\ndata: {summary.model_dump_json()}\n\n"


def _json(document: BaseModel, headers: dict[str, str] | None = None) -> Response:
    # The model writes its own JSON: NaN becomes the wire's string, which no other encoder would do.
    return Response(document.model_dump_json(), media_type="application/json", headers=headers)


def _json_list(documents: Any) -> Response:
    return Response(
        f"[{','.join(item.model_dump_json() for item in documents)}]", media_type="application/json"
    )


def _etag(directive: Directive) -> str:
    return f'"{directive.generation}"'


def _matches(if_none_match: str | None, directive: Directive) -> bool:
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or _etag(directive) in tags
