"""The regular expressions of the code, and how many steps a backtracking engine needs for them on hostile texts.

The steps are counted by a small engine of our own over the parse tree of the standard library. So a pattern that needs
time in proportion to the square of a text's length is found without a clock.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ROOT = Path(__file__).parents[2]
FUNCTIONS = frozenset({"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"})
REPEATS = (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT)
CHARACTERS = frozenset({c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN})
SINGLE = CHARACTERS | {c.AT}
ANCHORED = frozenset({"match", "fullmatch"})
SHORT, LONG = 48, 192
FEW = 4  # in place of higher bounds of repeats
GROWTH = 6  # of the steps for a text of four times the length; in proportion to its square they grow by 16
MARGIN = 500  # steps that do not grow
MOST_STEPS = 20_000


@dataclass(frozen=True)
class Use:
    """A place in the code where a pattern is given to `re`."""

    file: str
    line: int
    source: str  # the expression
    pattern: str | None  # None: it is only known when the code runs
    flags: int = 0
    methods: frozenset[str] = field(default_factory=frozenset)  # by which it is used; empty: unknown


def uses_in_code() -> list[Use]:
    """Return all uses in gymq/ and workers/, without their tests."""
    files = [*(ROOT / "gymq").rglob("*.py"), *(ROOT / "workers").rglob("*.py")]
    return [use for file in sorted(files) if "tests" not in file.parts for use in uses_in(file)]


def uses_in(file: Path) -> list[Use]:
    text = file.read_text()
    if "import re" not in text:
        return []
    tree = ast.parse(text)
    known = _constants(tree)
    names = {id(node.value): node.targets[0] for node in ast.walk(tree) if isinstance(node, ast.Assign)}
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[_, *_]):
                if method not in FUNCTIONS:
                    continue
            case _:
                continue
        methods = frozenset({method})
        if method == "compile":
            target = names.get(id(node))
            methods = _methods(tree, target.id) if isinstance(target, ast.Name) else frozenset()
        flags = 0
        for argument in [*node.args[1:], *(keyword.value for keyword in node.keywords)]:
            for flag in re.findall(r"re\.([A-Z]+)", ast.unparse(argument)):
                flags |= getattr(re, flag)
        pattern = _value(node.args[0], known)
        found.append(
            Use(str(file.relative_to(ROOT)), node.lineno, ast.unparse(node.args[0]), pattern, int(flags), methods)
        )
    return found


def _constants(tree: ast.Module) -> dict[str, str]:
    known: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = _value(node.value, known)
            if value is not None:
                known[node.targets[0].id] = value
            if isinstance(node.value, ast.Tuple):
                words = [_value(item, known) for item in node.value.elts]
                if None not in words:
                    known[f"|.join({node.targets[0].id})"] = "|".join(map(str, words))
    return known


def _value(node: ast.expr, known: dict[str, str]) -> str | None:
    """Return the text of an expression, if it says what it is."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(text)):
            return text.decode("latin-1")
        case ast.Name(id=name):
            return known.get(name)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(between)), attr="join"), args=[ast.Name(id=name)]
        ):
            return known.get(f"{between}.join({name})")
        case ast.JoinedStr(values=values):
            parts = [_value(part.value if isinstance(part, ast.FormattedValue) else part, known) for part in values]
            return None if None in parts else "".join(map(str, parts))
    return None


def _methods(tree: ast.Module, name: str) -> frozenset[str]:
    calls = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    }
    return frozenset(calls & FUNCTIONS)


class TooManySteps(Exception):
    """The engine was stopped."""


class Engine:
    """A backtracking engine that counts its steps."""

    def __init__(self, pattern: str, flags: int) -> None:
        parsed = parser.parse(pattern, flags)
        self.items = list(parsed)
        flags = int(parsed.state.flags)
        self.ignores_case, self.is_multiline, self.has_dotall = (
            bool(flags & flag) for flag in (re.IGNORECASE, re.MULTILINE, re.DOTALL)
        )
        self.limit = self.steps = 0
        self._kept: dict[tuple[int, str], list[Any]] = {}

    def run(self, text: str, methods: frozenset[str], limit: int) -> int:
        """Return the steps for one text: from its beginning only, or match after match.

        Raises:
            TooManySteps: more than the limit.
        """
        self.limit, self.steps = limit, 0
        self._groups: dict[int, str] = {}
        whole = methods == {"fullmatch"}
        position = 0
        while position <= len(text):
            ends = self._sequence(self.items, text, position)
            end = next((end for end in ends if not whole or end == len(text)), None)
            if methods and methods <= ANCHORED:
                break
            position = position + 1 if end is None or end == position else end
        return self.steps

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise TooManySteps

    def _sequence(self, items: list[Any], text: str, position: int, index: int = 0) -> Iterator[int]:
        # What matches in one way only needs no iterator.
        while index < len(items) and items[index][0] in SINGLE:
            self._step()
            kind, value = items[index]
            if kind is c.AT:
                if not self._stands_at(value, text, position):
                    return
            elif position < len(text) and self._accepts(kind, value, text[position]):
                position += 1
            else:
                return
            index += 1
        if index == len(items):
            yield position
            return
        kind, value = items[index]
        for end in self._node(kind, value, text, position):
            yield from self._sequence(items, text, end, index + 1)

    def _node(self, kind: Any, value: Any, text: str, position: int) -> Iterator[int]:
        self._step()
        if kind is c.BRANCH:
            for items in self._branches(value, text[position : position + 1]):
                yield from self._sequence(items, text, position)
        elif kind is c.SUBPATTERN:
            for end in self._sequence(value[3].data, text, position):
                if value[0] is not None:
                    self._groups[value[0]] = text[position:end]
                yield end
        elif kind is c.ATOMIC_GROUP:
            yield from self._first(self._sequence(value.data, text, position))
        elif kind in REPEATS:
            low, high, body = value
            if high is not c.MAXREPEAT:
                high = min(high, max(low, FEW))  # what a bound allows does not grow with the text
            ends = self._repeat(body.data, low, high, kind is c.MIN_REPEAT, text, position)
            yield from self._first(ends) if kind is c.POSSESSIVE_REPEAT else ends
        elif kind is c.GROUPREF:
            if text.startswith(self._groups.get(value, "\0"), position):
                yield position + len(self._groups[value])
        elif kind in (c.ASSERT, c.ASSERT_NOT):
            direction, body = value
            # What looks back has one length, says `re`.
            start = position if direction > 0 else position - body.getwidth()[0]
            holds = start >= 0 and next(self._sequence(body.data, text, start), None) is not None
            if holds is (kind is c.ASSERT):
                yield position
        else:
            raise NotImplementedError(kind)

    def _branches(self, value: Any, character: str) -> list[Any]:
        """Return the branches that are worth looking at before a character: few of many words are."""
        key = id(value), character
        if key not in self._kept:
            self._kept[key] = [branch.data for branch in value[1] if self._may_begin(branch.data, character)]
        return self._kept[key]

    def _may_begin(self, branch: list[Any], character: str) -> bool:
        kind, value = branch[0] if branch else (None, None)
        return kind is not c.LITERAL or (character != "" and self._accepts(kind, value, character))

    @staticmethod
    def _first(ends: Iterator[int]) -> Iterator[int]:
        for end in ends:
            yield end
            return

    def _repeat(self, body: list[Any], low: int, high: int, lazy: bool, text: str, position: int) -> Iterator[int]:
        # A stack of open iterators in place of recursion: texts are longer than Python's stack is deep.
        stack = [(position, self._sequence(body, text, position))]
        if lazy and low == 0:
            yield position
        while stack:
            _, ends = stack[-1]
            self._step()
            end = next(ends, None) if len(stack) <= high else None
            if end is None or end == stack[-1][0]:
                at, _ = stack.pop()
                if not lazy and len(stack) >= low:
                    yield at
                continue
            if lazy and len(stack) >= low:
                yield end
            stack.append((end, self._sequence(body, text, end)))

    def _accepts(self, kind: Any, value: Any, character: str) -> bool:
        if kind is c.ANY:
            return character != "\n" or self.has_dotall
        same = {character, character.lower(), character.upper()} if self.ignores_case else {character}
        if kind is c.LITERAL:
            return chr(value) in same
        if kind is c.NOT_LITERAL:
            return chr(value) not in same
        negated = value[0][0] is c.NEGATE
        return negated is not any(self._is_in(entry, inner, one) for entry, inner in value[negated:] for one in same)

    @staticmethod
    def _is_in(kind: Any, value: Any, character: str) -> bool:
        if kind is c.LITERAL:
            return chr(value) == character
        if kind is c.RANGE:
            return bool(value[0] <= ord(character) <= value[1])
        negated = "NOT" in str(value)
        name = str(value).removeprefix("CATEGORY_").removeprefix("NOT_")
        shorthand = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[name]
        return negated is not bool(re.fullmatch(shorthand, character))

    def _stands_at(self, place: Any, text: str, position: int) -> bool:
        before, after = text[max(position - 1, 0) : position], text[position : position + 1]
        name = str(place)
        if name == "AT_BEGINNING":
            return not before or (self.is_multiline and before == "\n")
        if name == "AT_BEGINNING_STRING":
            return not before
        if name == "AT_END":
            return not after or text[position:] == "\n" or (self.is_multiline and after == "\n")
        if name == "AT_END_STRING":
            return not after
        at_boundary = _is_word(before) != _is_word(after)
        return at_boundary is (name == "AT_BOUNDARY")


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def hostile_parts(engine: Engine) -> list[tuple[str, str]]:
    """Return beginnings of texts, and what to repeat after them: what the pattern's parts match, and characters."""
    characters = sorted({*"a0A \n\t_-.;", *_literals(engine.items)})
    found: dict[tuple[str, str], None] = {}
    for items in _sequences(engine.items):
        words = [_witness(engine, [item], characters) for item in items]
        for index, word in enumerate(words):
            before, after = "".join(words[:index]), "".join(words[index:])
            for part in (word, before + word, after):
                found["", part] = found[before, part] = None
            if items[index][0] in REPEATS:
                found |= dict.fromkeys((before, character) for character in characters)
        found |= dict.fromkeys(("", character) for character in characters)
    return [(start, part) for start, part in found if part]


def _sequences(items: list[Any]) -> Iterator[list[Any]]:
    yield items
    for kind, value in items:
        if kind is c.BRANCH:
            for branch in value[1]:
                yield from _sequences(list(branch))
        elif kind is c.SUBPATTERN:
            yield from _sequences(list(value[3]))
        elif kind is c.ATOMIC_GROUP:
            yield from _sequences(list(value))
        elif kind in REPEATS:
            yield from _sequences(list(value[2]))


def _literals(items: list[Any]) -> Iterator[str]:
    for sequence in _sequences(items):
        for kind, value in sequence:
            if kind in (c.LITERAL, c.NOT_LITERAL):
                yield chr(value)
            elif kind is c.IN:
                yield from (chr(v) for k, v in value if k is c.LITERAL)
                yield from (chr(v[0]) for k, v in value if k is c.RANGE)


def _witness(engine: Engine, items: list[Any], characters: list[str]) -> str:
    """Return a text that a part of a pattern matches, repeats as seldom as they may but once at least."""
    word = ""
    for kind, value in items:
        if kind in CHARACTERS:
            word += next((one for one in characters if engine._accepts(kind, value, one)), "")
        elif kind is c.BRANCH:
            word += _witness(engine, list(value[1][0]), characters)
        elif kind is c.SUBPATTERN:
            word += _witness(engine, list(value[3]), characters)
        elif kind is c.ATOMIC_GROUP:
            word += _witness(engine, list(value), characters)
        elif kind in REPEATS:
            word += _witness(engine, list(value[2]), characters) * max(1, min(value[0], 10))
    return word


def hostile_text(pattern: str, flags: int, methods: frozenset[str]) -> str | None:
    """Return what makes a pattern slow: a beginning and what is repeated after it; None if nothing was found."""
    engine = Engine(pattern, flags)
    if not any(
        kind in REPEATS and value[1] is c.MAXREPEAT for items in _sequences(engine.items) for kind, value in items
    ):
        return None
    for start, part in hostile_parts(engine):
        short, long = (start + (part * length)[:length] + "\0" for length in (SHORT, LONG))
        try:
            steps = engine.run(short, methods, MOST_STEPS)
            engine.run(long, methods, GROWTH * steps + MARGIN)
        except TooManySteps:
            return f"{start!r}, and {part!r} again and again"
    return None
