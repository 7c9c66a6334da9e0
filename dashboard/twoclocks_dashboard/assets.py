"""Static files: our own few, and plotly.min.js out of the plotly package, so that no other host is asked.

An address that carries the content's hash (`?v=`) may be kept for ever; without it the ETag decides. Files
are read once, compressed once, and served from memory.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from fastapi import Request, Response

TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
OWN = ("style.css", "theme.js", "live.js", "run.js", "runs.js", "logo.svg", "favicon.svg")
PLOTLY = "plotly.min.js"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file's bytes as they are and compressed, its type, and the hash that names this version of it."""

    plain: bytes
    packed: bytes
    media_type: str
    version: str


@lru_cache(maxsize=len(OWN) + 1)
def asset(name: str) -> Asset:
    """The asset of that name. Raises KeyError for any other name; a path is never looked up."""
    if name == PLOTLY:
        plain = files("plotly").joinpath("package_data", PLOTLY).read_bytes()
    elif name in OWN:
        plain = files("twoclocks_dashboard").joinpath("static", name).read_bytes()
    else:
        raise KeyError(name)
    packed = gzip.compress(plain, 6, mtime=0)
    media_type = f"{TYPES[name.rsplit('.', 1)[1]]}; charset=utf-8"
    return Asset(plain, packed, media_type, hashlib.sha256(plain).hexdigest()[:16])


def address(base: str, name: str) -> str:
    """The asset's address from a page whose way to the root is `base`, with the version in it."""
    return f"{base}assets/{name}?v={asset(name).version}"


def respond(request: Request, name: str, version: str | None) -> Response:
    """Answer a request for an asset; raises KeyError where there is none of that name."""
    found = asset(name)
    lasting = "public, max-age=31536000, immutable" if version == found.version else "no-cache"
    headers = {"ETag": f'"{found.version}"', "Cache-Control": lasting, "Vary": "Accept-Encoding"}
    if unchanged(request, found.version):
        return Response(status_code=304, headers=headers)
    return packed(request, found.plain, found.packed, found.media_type, headers)


def unchanged(request: Request, version: str) -> bool:
    """Whether the browser already has this version."""
    known = request.headers.get("if-none-match", "")
    return f'"{version}"' in {tag.strip().removeprefix("W/") for tag in known.split(",")}


def packed(
    request: Request, plain: bytes, small: bytes | None, media_type: str, headers: dict[str, str]
) -> Response:
    """The body, compressed where the browser takes that; `small` is the compressed one if it is at hand."""
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(plain, media_type=media_type, headers=headers)
    body = small if small is not None else gzip.compress(plain, 4)
    return Response(body, media_type=media_type, headers={**headers, "Content-Encoding": "gzip"})
