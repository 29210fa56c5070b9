"""Rules about the form of a text."""

from __future__ import annotations

import re
import string
from itertools import pairwise

from gymq.workers.resources.ifbench.texts import Rule, bare, trimmed
from gymq.workers.resources.instruction_following.texts import sentences, tokens

CLOSING = {")": "(", "]": "[", "}": "{"}
BRACKET_DEPTH = 5
QUOTE_DEPTH = 3
TEMPLATE = ("My Answer:", "My Conclusion:", "Future Outlook:")


def nested_brackets(text: str) -> bool:
    """Brackets of which five are open at once, the innermost closed rightly."""
    opened: list[str] = []
    deep = False
    for mark in text:
        if mark in CLOSING.values():
            opened.append(mark)
            deep = deep or len(opened) >= BRACKET_DEPTH
        elif mark in CLOSING:
            if opened and opened[-1] == CLOSING[mark]:
                opened.pop()
                if deep:
                    return True
            else:
                opened, deep = [], False
    return False


def nested_quotes(text: str) -> bool:
    """Quotations in quotations, three levels deep, closed again."""
    opened: list[str] = []
    deepest = 0
    for mark in text:
        if mark not in "\"'":
            continue
        if opened and opened[-1] == mark:
            opened.pop()
            if deepest - len(opened) >= QUOTE_DEPTH:
                return True
        else:
            opened.append(mark)
            deepest = max(deepest, len(opened))
    return False


def one_option(text: str, *, options: str) -> bool:
    """The text is one of the options."""
    divider = next((one for one in ("/", "or", ",") if one in options), ",")
    choices = [choice.strip() for choice in options.split(divider)]
    if re.match(r"\W*[aA]\W*[bB]\W*[cC]\W*", options):
        return text in choices
    return trimmed(text).lower() in [trimmed(choice).lower() for choice in choices]


def a_word_a_line(text: str) -> bool:
    """There are as many lines as words."""
    text = bare(text).strip()
    return sum(bool(line) for line in text.split("\n")) == len(text.split())


def emoji_after_sentences(text: str) -> bool:
    """Every sentence ends with an emoji, or the next one begins with it."""
    found = [bare(sentence).strip() for sentence in sentences(text)]
    for sentence, after in zip(found, [*found[1:], ""], strict=True):
        if not sentence:
            return False
        if not any(map(_is_emoji, sentence[-2:])) and not _is_emoji(after[:1]):
            return False
    return True


def growing_indents(text: str) -> bool:
    """Every line is indented by more blanks than the one before."""
    lines = text.split("\n")
    position = 0
    while position < len(lines):
        if not lines[position].strip():
            lines.remove(lines[position])
        position += 1
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    return all(first < second for first, second in pairwise(indents))


def explained_quotes(text: str) -> bool:
    """No quotation follows another one or ends the text."""
    text = text.replace("\u201c", '"').replace("\u201d", '"').replace("'\"'", "")
    text = "".join(text.split())
    if '""' in text:
        return False
    return text.strip(string.digits + string.punctuation.replace('"', ""))[-1] != '"'


def thesis_in_italics(text: str) -> bool:
    """A thesis in italics, and something after it."""
    start = _first_of(text, "<i>", "<em>")
    if start < 0:
        return False
    text = text[start:]
    end = _first_of(text, "</i>", "</em>")
    return end >= 0 and bool(text[3:end].strip()) and bool(text[end + 4 :].strip())


def sentences_then_bullets(text: str) -> bool:
    """Two sentences, then two bullets, and nothing else. A blank line ends the sentences."""
    lines = [line.strip() for line in text.split("\n")]
    first = next(number for number, line in enumerate(lines) if not line or line.startswith("*"))
    bullets = lines[first:] if lines[first] else lines[first + 1 :]
    num_sentences = sum(len(sentences(line)) for line in lines[:first])
    return num_sentences >= 2 and len(bullets) >= 2 and all(line.startswith("*") for line in bullets)


def _first_of(text: str, *marks: str) -> int:
    return next((text.index(mark) for mark in marks if mark in text), -1)


def _is_emoji(character: str) -> bool:
    import emoji

    return emoji.is_emoji(character)


RULES: dict[str, Rule] = {
    "format:emoji": emoji_after_sentences,
    "format:line_indent": growing_indents,
    "format:list": lambda text, sep: text.count(sep) >= 2,
    "format:newline": a_word_a_line,
    "format:no_bullets_bullets": sentences_then_bullets,
    "format:no_whitespace": lambda text: not any(map(str.isspace, text)),
    "format:options": one_option,
    "format:output_template": lambda text: all(heading in text for heading in TEMPLATE),
    "format:parentheses": nested_brackets,
    "format:quote_unquote": explained_quotes,
    "format:quotes": nested_quotes,
    # Every bullet has a sub-bullet.
    "format:sub-bullets": lambda text: all("-" in bullet for bullet in text.split("*")[1:]),
    "format:thesis": thesis_in_italics,
    # No token is in lower case, but for one-letter ones.
    "format:title_case": lambda text: (
        not any(token[0].islower() and (token[1:].islower() or token[1:].isupper()) for token in tokens(text))
    ),
}
