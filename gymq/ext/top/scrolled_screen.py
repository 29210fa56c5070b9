"""A display that fills the terminal: keys scroll it, and `q` ends it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import termios
import tty
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.text import Text

_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_LINES = {"k": -1, "\x1b[A": -1, "\x1bOA": -1, "j": 1, "\x1b[B": 1, "\x1bOB": 1, "\r": 1, "\n": 1}
_PAGES = {"b": -1, "\x1b[5~": -1, " ": 1, "f": 1, "\x1b[6~": 1}
_TO_TOP = ("g", "\x1b[H", "\x1bOH", "\x1b[1~")
_TO_END = ("G", "\x1b[F", "\x1bOF", "\x1b[4~")


class ScrolledScreen:
    """Shows something of any height; use it with `with`, which leaves the terminal as it was.

    Without a terminal as standard input there are no keys.
    """

    def __init__(self, quit_: Callable[[], object]) -> None:
        """Prepare a screen.

        Args:
            quit_: called when `q` is pressed.
        """
        self._quit = quit_
        self._live = Live(screen=True, auto_refresh=False)
        self._shown: RenderableType = ""
        self._first = 0  # line at the top
        self._num_lines = 0
        self._has_keys = sys.stdin is not None and sys.stdin.isatty()
        self._at_end = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._has_keys:
                keyboard = sys.stdin.fileno()
                stack.callback(termios.tcsetattr, keyboard, termios.TCSADRAIN, termios.tcgetattr(keyboard))
                tty.setcbreak(keyboard)
                asyncio.get_running_loop().add_reader(keyboard, self._read, keyboard)
                stack.callback(asyncio.get_running_loop().remove_reader, keyboard)
            stack.enter_context(self._live)
            self._at_end = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._at_end.close()

    def show(self, renderable: RenderableType) -> None:
        """Show something in place of what was shown before, at the same line."""
        self._shown = renderable
        self._draw()

    @property
    def _room(self) -> int:
        return max(1, self._live.console.height - 1)

    def _draw(self) -> None:
        console = self._live.console
        lines = console.render_lines(self._shown, console.options.update(height=None), pad=False)
        self._num_lines = len(lines)
        self._first = max(0, min(self._first, self._num_lines - self._room))
        shown = lines[self._first : self._first + self._room]
        shown += [[]] * (self._room - len(shown))
        foot = Text(self._keys(), "dim", no_wrap=True, overflow="crop", end="")
        self._live.update(Group(SegmentLines(shown, new_lines=True), foot), refresh=True)

    def _keys(self) -> str:
        if not self._has_keys:
            return "Ctrl-C quits"
        if self._num_lines <= self._room:
            return "q quits"
        last = min(self._first + self._room, self._num_lines)
        return f"lines {self._first + 1} to {last} of {self._num_lines}   ↑ ↓ PgUp PgDn scroll   q quits"

    def _read(self, keyboard: int) -> None:
        try:
            typed = os.read(keyboard, 1024)
        except OSError:  # the terminal is gone
            typed = b""
        if not typed:
            asyncio.get_running_loop().remove_reader(keyboard)
        for key in _KEY.findall(typed.decode("utf-8", "replace")):
            if key in ("q", "Q"):
                self._quit()
                return
            page = max(1, self._room - 1)
            self._first += _LINES.get(key, 0) + page * _PAGES.get(key, 0)
            if key in _TO_TOP:
                self._first = 0
            elif key in _TO_END:
                self._first = self._num_lines
            self._first = max(0, min(self._first, self._num_lines - self._room))
        self._draw()
