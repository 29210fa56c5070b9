"""The files of the page, and the headers that keep a browser from running anything else.

What a model wrote is hostile. The page puts it into text nodes only; should that ever fail, the policy below still lets
the browser run nothing but the files of this folder, and send nothing anywhere.
"""

from __future__ import annotations

from importlib.resources import files

from aiohttp import web

from gymq.ext.http.errors import not_found

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

PAGE = "index.html"
STORED = "stored.js"
"""The module that takes the place of `api.js` in an exported page."""

_ENTRY = b'<script type="module"'
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Site:
    """The files, read once. They hold no data, so any client that reaches the bridge may have them."""

    def __init__(self) -> None:
        folder = files("gymq.ext.viewer") / "static"
        self._files = {
            file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES
        }
        self._page = self._files[PAGE].replace(_ENTRY, self._preloads() + _ENTRY)

    def names(self) -> list[str]:
        return sorted(self._files)

    def text(self, name: str) -> str:
        """Return one file."""
        return self._files[name].decode()

    def response(self, name: str) -> web.Response:
        """Return the response with one file.

        Raises:
            StatusError: 404; there is no such file.
        """
        body = self._page if name == PAGE else self._files.get(name)
        if body is None:
            raise not_found(f"the page has no file {name:.80}")
        content_type = _TYPES[name.rpartition(".")[2]]
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=HEADERS)

    def _preloads(self) -> bytes:
        """Return links by which a browser asks for all modules at once, not for each when another one imports it."""
        names = [name for name in self.names() if name.endswith(".js") and name != STORED]
        return "".join(f'<link rel="modulepreload" href="{name}">\n' for name in names).encode()
