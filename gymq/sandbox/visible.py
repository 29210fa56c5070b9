"""Which files of this machine programs see: the system's and this Python's, without the code and data of workers."""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from gymq.authoring import Worker
from gymq.extensions import extensions

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_APPLICATIONS = ("/usr/src", "/usr/local/src")  # where images put what they serve
_PARTS_OF_PYTHON = ("bin", "lib", "lib32", "lib64", "libexec", "share", "etc", "ssl")
_NEVER_GIVEN = ("/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/.old", "/tmp/box", "/tmp/.shm")
_KINDS = ("agents", "models", "resources")
_SITE = ("site-packages", "dist-packages")


def view() -> list[tuple[str, bool]]:
    """Return absolute paths and whether each is shown; False: what is there is hidden. Outer paths come first.

    What a path says holds for everything below it that no later path says something else of.
    """
    return list(_view(frozenset(_modules_of_workers()), tuple(sys.path)))


def covers(place: str) -> bool:
    """Return whether something of the view, the system or the sandbox, lies at an absolute path, above or below it."""
    paths = [*_NEVER_GIVEN, *_SYSTEM, *(path for path, _ in view())]
    return any(Path(path).is_relative_to(place) or Path(place).is_relative_to(path) for path in paths)


@functools.lru_cache(maxsize=8)
def _view(modules: frozenset[str], search_path: tuple[str, ...]) -> tuple[tuple[str, bool], ...]:
    shown = [*_SYSTEM, *_SETTINGS, *glob.glob("/etc/java-*"), *_python(search_path)]
    hidden = {path for path in _APPLICATIONS if os.path.isdir(path)}
    for place in _code_of(modules, search_path):
        # Something may be seen at several places: a folder, and the same folder by way of a link.
        hidden |= {
            os.path.normpath(os.path.join(path, os.path.relpath(place, os.path.realpath(path))))
            for path in shown
            if Path(place).is_relative_to(os.path.realpath(path)) and not os.path.islink(path)
        }
    said = {**dict.fromkeys(shown, True), **dict.fromkeys(hidden, False)}
    kept: dict[str, bool] = {}
    for path in sorted(said, key=lambda path: path.count("/")):
        around = next((kept[str(folder)] for folder in Path(path).parents if str(folder) in kept), False)
        if said[path] != around:
            kept[path] = said[path]
    return tuple(kept.items())


def _python(search_path: Iterable[str]) -> list[str]:
    """Return what this Python consists of. Of an environment no more: its folder may be that of a project.

    Links are among it: an environment's python may lead to the real one over several others.
    """
    folders = [os.path.join(sys.base_prefix, part) for part in _PARTS_OF_PYTHON]
    folders += [os.path.join(sys.prefix, "pyvenv.cfg")]
    folders += [sysconfig.get_path(name) for name in ("scripts", "stdlib", "platstdlib", "purelib", "platlib")]
    folders += [path for path in search_path if os.path.basename(path) in _SITE]
    paths = {os.path.normpath(path) for folder in folders for path in (folder, os.path.realpath(folder))}
    link = Path(sys.executable)
    while link.is_symlink():
        paths.add(os.path.normpath(link))
        link = link.parent / link.readlink()
    return sorted(path for path in paths | {os.path.normpath(link)} if os.path.lexists(path))


def _modules_of_workers() -> Iterator[str]:
    """Return the modules of the workers that this process knows: its own, and those that packages here offer."""
    known: list[type[Worker]] = [Worker]
    for worker in known:
        yield worker.__module__
        known += worker.__subclasses__()
    yield from _offered()


@functools.cache  # asked for each program
def _offered() -> list[str]:
    return [entry.module for kind in _KINDS for entry in extensions(kind)]


def _code_of(modules: Iterable[str], search_path: Iterable[str]) -> set[str]:
    """Return the real paths of the packages that hold modules, each with what lies beside it unless it is installed."""
    places: set[str] = set()
    for package in {module.partition(".")[0] for module in modules}:
        found = _places_of(package)
        # Another copy, which an import would not find first.
        found += [os.path.join(folder, package) for folder in search_path if os.path.basename(folder) in _SITE]
        for place in filter(os.path.exists, found):
            places |= {os.path.realpath(place), _surroundings(os.path.realpath(place))}
    return places


def _places_of(package: str) -> list[str]:
    """Return the folders of a package, or the file of a module; nothing if the name is unknown."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return list(spec.submodule_search_locations)
    return [spec.origin] if spec.has_location and spec.origin is not None else []


def _surroundings(place: str) -> str:
    """Return the folder in which a package or module lies if that is a project; the place itself if it is installed."""
    folder = os.path.dirname(place)
    general = {"/", "/opt", "/usr/local", *_SYSTEM, sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib")}
    is_installed = os.path.basename(folder) in _SITE or folder in map(os.path.realpath, general)
    return place if is_installed else folder
