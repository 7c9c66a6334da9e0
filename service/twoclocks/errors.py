"""One error tree, one handler, one shape: every error of the service is an RFC 9457 problem document.

    TwoClocksError
    |-- StartError              the service cannot start: one line for stderr, exit code 2
    `-- ServiceError            becomes a problem response
        |-- NotFoundError       404  no such run, directive or route
        |-- ConflictError       409  contradicts what is stored; the stored one is shown
        `-- UnavailableError    503  the database does not answer; nothing was stored, send it again

The store raises these; only this module and the routes know what a status code is. `detail` is one sentence
that names what is wrong and what to do; it never carries a stack, a query or a secret.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from twoclocks.wire import FamilyName, Problem, RunName

PROBLEM_JSON = "application/problem+json"
log = logging.getLogger("twoclocks")


class TwoClocksError(Exception):
    """The root of the tree."""


class StartError(TwoClocksError):
    """The service cannot start; the message is the one line that says why and what to do."""


class ServiceError(TwoClocksError):
    """An error with a problem document. `extensions` are further members of that document."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    kind: ClassVar[str] = "about:blank"
    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, detail: str, **extensions: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extensions = extensions


class NotFoundError(ServiceError):
    """No such run, directive or route."""

    status = 404
    title = "Not found"
    kind = "urn:twoclocks:not-found"


class ConflictError(ServiceError):
    """The request contradicts what is stored."""

    status = 409
    title = "Conflicts with what is stored"
    kind = "urn:twoclocks:conflict"


class UnavailableError(ServiceError):
    """The database does not answer; nothing of the request was stored."""

    status = 503
    title = "Temporarily unavailable"
    kind = "urn:twoclocks:unavailable"
    headers: ClassVar[dict[str, str]] = {"Retry-After": "1"}


PROBLEM_SCHEMA = {"$ref": "#/components/schemas/Problem"}
HTTP_PROBLEMS: dict[int, tuple[str, str]] = {
    400: ("urn:twoclocks:bad-request", "Bad request"),
    404: ("urn:twoclocks:not-found", "Not found"),
    405: ("urn:twoclocks:method-not-allowed", "Method not allowed"),
    413: ("urn:twoclocks:too-large", "Body too large"),
    422: ("urn:twoclocks:invalid", "Invalid request"),
}


def _pattern(name: Any) -> str:
    return str(get_args(name)[1].metadata[0].pattern)


NAMES = {
    _pattern(RunName): (". _ -", 128),
    _pattern(FamilyName): (". _ - : = | , + space", 256),
}
"""What the wire's patterns for names allow, in words: the other characters, and how many in all."""


def problem_response(
    request: Request,
    status: int,
    kind: str,
    title: str,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    """The one shape of every error; NaN in an extension travels as the wire's strings."""
    problem = Problem(type=kind, title=title, status=status, detail=detail, instance=request.url.path, **more)
    return Response(problem.model_dump_json(), status_code=status, media_type=PROBLEM_JSON, headers=headers)


def install_handlers(app: FastAPI, count: Callable[[str], None]) -> None:
    """Give every exception of `app` the one shape; `count(kind)` is told of those that are our fault."""

    async def service_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        if isinstance(error, UnavailableError):
            count("unavailable")
            log.warning("%s %s: %s", request.method, request.url.path, error.detail)
        return problem_response(
            request,
            error.status,
            error.kind,
            error.title,
            error.detail,
            headers=error.headers,
            **error.extensions,
        )

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind, title = HTTP_PROBLEMS.get(error.status_code, ("about:blank", str(error.detail)))
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = _allowed(request)
        detail = _http_detail(request, error)
        return problem_response(request, error.status_code, kind, title, detail, headers=headers)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"loc": [str(part) for part in item["loc"]], "msg": item["msg"], "type": item["type"]}
            for item in error.errors()[:20]
        ]
        detail = _invalid_detail(request, error.errors())
        return problem_response(request, 422, *HTTP_PROBLEMS[422], detail, errors=errors)

    async def internal(request: Request, error: Exception) -> Response:
        count("internal")
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem_response(
            request,
            500,
            "urn:twoclocks:internal",
            "Internal error",
            "the service failed at this request and logged why; nothing of it was stored",
        )

    _document_problems(app)
    app.add_exception_handler(ServiceError, service_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, internal)


def _document_problems(app: FastAPI) -> None:
    """Let the OpenAPI document say of every error what is true of it: a Problem, of the type for problems."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            for operations in made()["paths"].values():
                for operation in operations.values():
                    for status, response in operation["responses"].items():
                        if status >= "400":
                            response["content"] = {PROBLEM_JSON: {"schema": PROBLEM_SCHEMA}}
        return made()

    app.openapi = openapi  # type: ignore[method-assign]


def _allowed(request: Request) -> str:
    """Every method of the path: the router itself names only those of the first route that fits it."""
    methods: set[str] = set()
    for template, operations in request.app.openapi()["paths"].items():
        if compile_path(template)[0].match(request.url.path):
            methods |= {name.upper() for name in operations}
    return ", ".join(sorted(methods)) or "GET"


def _http_detail(request: Request, error: HTTPException) -> str:
    match error.status_code:
        case 404 if error.detail == "Not Found":
            return f"no route {request.url.path}; /docs lists them all"
        case 405:
            return f"{request.method} is not for {request.url.path}; use {_allowed(request)}"
        case _:
            return str(error.detail)


def _invalid_detail(request: Request, errors: Sequence[Any]) -> str:
    first = errors[0]
    place = [str(part) for part in first["loc"]]
    kind = first["type"]
    if kind == "json_invalid":
        return f"the body is not JSON: {first.get('ctx', {}).get('error', 'it cannot be parsed')}"
    if place == ["body"] and isinstance(first.get("input"), bytes):
        return "the body must be JSON; send it with the header Content-Type: application/json"
    if place == ["body"] and kind == "missing":
        return "this route needs a JSON body; `{}` may do"
    where, name = place[0], ".".join(place[1:]) or place[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where} field {name!r}: {_advice(kind, first)}{more}"


def _advice(kind: str, item: dict[str, Any]) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    match kind:
        case "missing":
            return "is required; add it"
        case "extra_forbidden":
            return "is not known; remove it or check its spelling"
        case "string_pattern_mismatch" if item.get("ctx", {}).get("pattern") in NAMES:
            marks, most = NAMES[item["ctx"]["pattern"]]
            return f"use letters, digits and {marks}, a letter or digit first, at most {most} characters"
        case _:
            shown = repr(item.get("input"))
            short = shown if len(shown) <= 60 else shown[:57] + "..."
            return f"{message[:1].lower()}{message[1:]}, got {short}"
