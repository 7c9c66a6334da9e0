"""The dashboard's routes: three pages, the fragments that keep them live, and the files they need.

All addresses are relative, so the dashboard works behind any path prefix. Pages carry a Content-Security-
Policy that allows our own files only. Handlers read the store and block: the framework runs them in
threads.
"""

import hashlib
import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from twoclocks import __version__
from twoclocks.wire import RunSummary
from twoclocks_dashboard import assets, facts, logbook, numbers, series, verdict
from twoclocks_dashboard.dials import failure, progress
from twoclocks_dashboard.figures import SMALL, metric_names, run_figures
from twoclocks_dashboard.palette import palette
from twoclocks_dashboard.rows import rows
from twoclocks_dashboard.source import Fault, Source
from twoclocks_dashboard.spark import Sparks
from twoclocks_dashboard.strip import strip
from twoclocks_dashboard.words import METRIC_UNITS, describe

POINTS = 1_500
MOST_RUNS = 500
POLICY = (
    "default-src 'none'; script-src 'self'; style-src {style}; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
PLAIN, CHARTS = "'self'", "'self' 'unsafe-inline'"
"""Sources of style: plotly writes style attributes as it draws, so pages with charts must allow them."""
Name = Annotated[str, Path(max_length=128)]


def router(store: Source, clock: Callable[[], float]) -> APIRouter:
    """The pages over `store`; `clock` gives Unix seconds."""
    environment = _environment()
    sparks = Sparks()

    def page(
        name: str, request: Request, base: str, status: int = 200, style: str = PLAIN, **values: Any
    ) -> HTMLResponse:
        def file(asset: str) -> str:
            return assets.address(base, asset)

        html = environment.get_template(name).render(base=base, file=file, request=request, **values)
        headers = {
            "Content-Security-Policy": POLICY.format(style=style),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
        }
        return HTMLResponse(html, status_code=status, headers=headers)

    class Page(APIRoute):
        """A route whose errors are pages too, for those that carry a status and a sentence."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            """The usual handler, with the fault's page in place of a problem document."""
            handler = super().get_route_handler()

            async def shown(request: Request) -> Response:
                try:
                    return await handler(request)
                except Exception as error:
                    if isinstance(error, Fault) and "text/html" in request.headers.get("accept", ""):
                        depth = (
                            request.scope["path"].removeprefix(request.scope.get("root_path", "")).count("/")
                        )
                        return page(
                            "fault.html", request, "../" * (depth - 1) or "./", error.status, fault=error
                        )
                    raise

            return shown

    routes = APIRouter(route_class=Page, include_in_schema=False)

    def listed() -> dict[str, Any]:
        now = clock()
        found = store.runs(now, limit=MOST_RUNS)
        return {"rows": rows(store, found.runs, sparks, now), "total": found.total, "now": now}

    @routes.get("/")
    def runs_page(request: Request) -> Response:
        """Every run, the most urgent first."""
        return page("runs.html", request, "./", address=home(request), **listed())

    @routes.get("/fragments/runs")
    def runs_fragment(request: Request) -> Response:
        """The list alone, for the page that polls it; 304 where nothing has changed."""
        values = listed()
        html = (
            environment.get_template("list.html").render(base="./", address=home(request), **values).encode()
        )
        version = hashlib.sha256(html).hexdigest()[:16]
        headers = {"ETag": f'W/"{version}"', "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if assets.unchanged(request, version):
            return Response(status_code=304, headers=headers)
        return assets.packed(request, html, None, "text/html; charset=utf-8", headers)

    @routes.get("/runs/{run}")
    def run_page(request: Request, run: Name) -> Response:
        """One run: what is believed of it and why, both clocks, the charts, the directive log."""
        summary = store.run(run, clock())
        columns = store.steps(run, max_points=POINTS)
        parts = _parts(environment, summary, series.pace(columns), store, clock(), home(request))
        return page("run.html", request, "../", style=CHARTS, run=summary, parts=parts)

    @routes.get("/runs/{run}/figures")
    def run_data(
        request: Request,
        run: Name,
        theme: Annotated[str, Query(pattern="^(light|dark)$")] = "light",
        everything: Annotated[bool, Query(alias="all")] = False,
    ) -> Response:
        """The charts and the page's changing parts as JSON; 304 where the run has not changed."""
        summary = store.run(run, clock())
        judged = verdict.judge(summary, clock())
        said = (__version__, summary.created_at, summary.revision, judged, theme, everything)
        version = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
        headers = {"ETag": f'W/"{version}"', "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if assets.unchanged(request, version):
            return Response(status_code=304, headers=headers)
        columns = store.steps(run, max_points=POINTS)
        figures = run_figures(summary, columns, store.forecasts(run), palette(theme), everything=everything)
        names = metric_names(columns)
        document = {
            "revision": summary.revision,
            "state": summary.state.value,
            "title": f"{judged.word}: {summary.run} · Two Clocks",
            "parts": _parts(environment, summary, series.pace(columns), store, clock(), home(request)),
            "figures": figures,
            "metrics": [
                {
                    "id": f"metric:{name}",
                    "name": name,
                    "unit": METRIC_UNITS.get(name, ""),
                    "help": describe(name),
                }
                for name in (names if everything else names[:SMALL])
            ],
            "hidden": 0 if everything else max(len(names) - SMALL, 0),
        }
        body = json.dumps(document, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode()
        return assets.packed(request, body, None, "application/json", headers)

    @routes.get("/families")
    def families_page(request: Request) -> Response:
        """Thresholds learned so far, with the runs behind them and their censoring."""
        found = [(family, strip(family)) for family in store.families()]
        return page("families.html", request, "./", families=found)

    @routes.get("/assets/{name}")
    async def asset(
        request: Request, name: Name, version: Annotated[str | None, Query(alias="v", max_length=64)] = None
    ) -> Response:
        """Styles, scripts, the logo, and plotly out of its package."""
        try:
            return assets.respond(request, name, version)
        except KeyError:
            raise HTTPException(404, f"no such file {name!r}; it is not part of the dashboard") from None

    return routes


def home(request: Request) -> str:
    """The service's address as the browser knows it."""
    return str(request.base_url).rstrip("/")


def _parts(
    environment: Environment, run: RunSummary, pace: float | None, store: Source, now: float, address: str
) -> dict[str, str]:
    """The run page's changing parts as HTML, by name."""
    values = {
        "run": run,
        "address": address,
        "verdict": verdict.judge(run, now),
        "roads": facts.roads(run),
        "glance": facts.glance(run, pace),
        "failure": failure(run),
        "progress": progress(run),
        "failure_facts": facts.failure_facts(run, pace),
        "progress_facts": facts.progress_facts(run, pace),
        "log": logbook.log(run, store.directives(run.run)),
        "groups": logbook.configuration(run),
    }
    names = ("verdict", "clocks", "log", "facts")
    return {name: environment.get_template(f"parts/{name}.html").render(**values) for name in names}


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("twoclocks_dashboard"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": numbers.count,
        "about": numbers.about,
        "value": numbers.value,
        "share": numbers.share,
        "scientific": numbers.scientific,
        "duration": numbers.duration,
        "sentence": verdict.sentence,
        "moment": numbers.moment,
    }
    return environment
