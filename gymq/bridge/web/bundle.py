"""The page as one script: browsers load no modules for a page that is opened as a file."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter

from gymq.bridge.web.site import PAGE, STORED, Site

ENTRY = "app.js"
_SERVED = "api.js"  # what the page asks where it is served; `STORED` asks files beside it

_IMPORT = re.compile(r'^import (\{[^}\n]*\}) from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:const|function|class)) (\w+)", re.MULTILINE)

# `frame-ancestors` has no effect in a page, and a page from a file has no origin that `connect-src` could allow.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types gymq-data"
)


def script(site: Site) -> str:
    """Return all modules of the page in one script, with those that others import before them."""
    modules: dict[str, str] = {}
    uses: dict[str, set[str]] = {}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name in modules:
            continue
        modules[name] = site.text(STORED if name == _SERVED else name)
        uses[name] = {match[2] for match in _IMPORT.finditer(modules[name])}
        waiting += uses[name]
    parts = [_function(name, modules[name]) for name in TopologicalSorter(uses).static_order()]
    return "".join(['"use strict";\n(() => {\nconst modules = {};\n', *parts, "})();\n"])


def page(site: Site) -> str:
    """Return the page that loads the script."""
    html = site.text(PAGE).replace('<script type="module" src="app.js">', '<script src="viewer.js" defer>')
    return html.replace("<title>", f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<title>', 1)


def _function(name: str, source: str) -> str:
    """Return a module as a function that is called at once and whose result is what the module exports."""
    names = [match[2] for match in _EXPORT.finditer(source)]
    body = _EXPORT.sub(lambda match: f"{match[1]} {match[2]}", _IMPORT.sub(_taken, source))
    return f"modules[{name!r}] = (() => {{\n{body}return {{ {', '.join(names)} }};\n}})();\n"


def _taken(match: re.Match[str]) -> str:
    names = match[1].replace(" as ", ": ")
    return f"const {names} = modules[{match[2]!r}];\n"
