"""Values on the command line: `3`, `true`, `null`, `[a, b]`, `{a: 1}`, `'quoted, text'`, `${other.key}`.

The grammar is that of Hydra overrides without sweeps and function calls. It differs from YAML on purpose: `{a:1}` needs
no blank, `yes` and `010` are text, `1e-4` is a number. Hydra's own parser cannot be installed beside the rest:
hydra-core 1.3 needs antlr4-python3-runtime 4.9 and omegaconf before 2.4, math-verify is pinned to the runtime 4.13.
"""

import re
from typing import Any

from gymq.config.errors import ConfigError

_INT = re.compile(r"[+-]?(0|[1-9](_?\d)*)")
_FLOAT = re.compile(
    r"[+-]?((\d(_?\d)*\.(\d(_?\d)*)?|\.\d(_?\d)*)(e[+-]?\d(_?\d)*)?|\d(_?\d)*e[+-]?\d(_?\d)*|inf|nan)", re.IGNORECASE
)
_CALL = re.compile(r"[A-Za-z_]\w*\(.*\)", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")
_QUOTED = {quote: re.compile(rf"{quote}((?:[^\\{quote}]|\\.)*){quote}", re.DOTALL) for quote in "'\""}
_BEFORE_QUOTE = {quote: re.compile(rf"(\\+)({quote}|\Z)") for quote in "'\""}
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def parse_value(text: str) -> Any:
    """Parse the right side of an override.

    Returns:
        None, bool, int, float, str, or lists and dicts of them. Interpolations stay text.

    Raises:
        ConfigError: the text is malformed; the message lacks the name of the override.
    """
    parser = _Parser(text.strip())
    if not parser.text:
        return ""
    try:
        value = parser.value("")
    except RecursionError:
        raise ConfigError("the value is nested too deeply") from None
    except ValueError:
        raise ConfigError("the number has too many digits") from None
    if parser.position < len(parser.text):
        rest = parser.text[parser.position :]
        if rest.startswith(","):
            raise ConfigError("the value has a comma: write a list as [a,b], or put the text in quotes")
        raise ConfigError(f"{rest!r} follows a complete value; put text in quotes")
    return value


def _typed(text: str) -> Any:
    """Convert unquoted text to the type that it looks like."""
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _CALL.fullmatch(text):
        raise ConfigError(f"{text} looks like a function call, which overrides do not support; put text in quotes")
    return _ESCAPED.sub(r"\1", text)


class _Parser:
    """Recursive descent over one value; `position` is the next character to read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def value(self, stops: str) -> Any:
        self._skip_blanks()
        match self._peek():
            case "[":
                return self._list()
            case "{":
                return self._mapping()
            case "'" | '"' as quote:
                return self._quoted(quote)
            case _:
                return _typed(self._unquoted("," + stops))

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _skip_blanks(self) -> None:
        while self._peek().isspace():
            self.position += 1

    def _take(self, expected: str, inside: str) -> str:
        """Step over one of the expected characters and return it."""
        self._skip_blanks()
        found = self._peek()
        if not found or found not in expected:
            wanted = " or ".join(repr(character) for character in expected)
            raise ConfigError(f"{wanted} is missing at {found!r} in the {inside}" if found else f"{wanted} is missing")
        self.position += 1
        return found

    def _list(self) -> list[Any]:
        self.position += 1
        items: list[Any] = []
        self._skip_blanks()
        if self._peek() == "]":
            self.position += 1
            return items
        while True:
            items.append(self.value("]"))
            if self._take(",]", "list") == "]":
                return items

    def _mapping(self) -> dict[Any, Any]:
        self.position += 1
        entries: dict[Any, Any] = {}
        self._skip_blanks()
        if self._peek() == "}":
            self.position += 1
            return entries
        while True:
            key = self.value(":}")
            if key is None or isinstance(key, list | dict):
                raise ConfigError("a key of a mapping must be text or a number")
            self._take(":", "mapping")
            entries[key] = self.value("}")
            if self._take(",}", "mapping") == "}":
                return entries

    def _quoted(self, quote: str) -> str:
        """Read quoted text; before a quote each pair of backslashes is one and an odd one escapes the quote."""
        match = _QUOTED[quote].match(self.text, self.position)
        if not match:
            raise ConfigError(f"the closing {quote} is missing")
        self.position = match.end()
        return _BEFORE_QUOTE[quote].sub(lambda found: "\\" * (len(found[1]) // 2) + found[2], match[1])

    def _unquoted(self, stops: str) -> str:
        """Read up to a stop character that is neither escaped nor inside `${...}`."""
        start, depth = self.position, 0
        while self.position < len(self.text):
            character = self._peek()
            if self.text.startswith("${", self.position):
                depth += 1
                self.position += 2
                continue
            if depth and character == "}":
                depth -= 1
            elif not depth and character in stops:
                break
            elif character == "\\":
                self.position += 1
            self.position += 1
        if depth:
            raise ConfigError("the closing } of ${ is missing")
        self.position = min(self.position, len(self.text))
        found = self.text[start : self.position].rstrip()
        if not found:
            raise ConfigError(f"a value is missing before {self._peek() or 'the end'!r}")
        return found
