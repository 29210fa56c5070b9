"""Rules that are checked by what they say where the published checks read something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gymq.workers.resources.ifbench import counts, custom, formats, sequences, words
from gymq.workers.resources.ifbench.counts import CONJUNCTIONS, KEYWORD_COUNTS, NAMES, PRONOUNS
from gymq.workers.resources.ifbench.texts import OUTER, Rule, bare_words, runs, trimmed
from gymq.workers.resources.instruction_following.as_meant import word_pattern
from gymq.workers.resources.instruction_following.texts import sentences

_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_BULLET = re.compile(r"\s*+([*-])\s+\S")
_CLOSING = OUTER.translate(str.maketrans("", "", ".?!")) + "\u201d\u2019"  # what may stand behind the end of a sentence
_MORE_PRONOUNS = """
this that these those who whom whose which what whoever whomever whatever whichever anybody anyone anything everybody
everyone everything nobody nothing somebody someone something each either neither both all some any none
"""
_MINOR_WORDS = CONJUNCTIONS.union(
    ("a", "an", "the", "as", "at", "by", "in", "of", "off", "on", "per", "to", "up", "via")
)


def pronouns(text: str, *, N: float) -> bool:
    """There are enough pronouns, also demonstrative, interrogative and indefinite ones, also in `they're`."""
    every = PRONOUNS.union(_MORE_PRONOUNS.split())
    return sum(word in every for word in re.findall(r"[^\W\d_]+", text.lower())) >= N


def keywords(text: str, *, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str) -> bool:
    """Five keywords occur 1, 2, 3, 5 and 7 times as words of their own, in any case."""
    given = (keyword1, keyword2, keyword3, keyword4, keyword5)
    return [len(word_pattern(keyword).findall(text)) for keyword in given] == list(KEYWORD_COUNTS)


def two_statements_for_a_question(text: str) -> bool:
    """There are twice as many statements as questions, of which there is one at least."""
    ends = _ends(text)
    return ends.count(".") == 2 * ends.count("?") > 0


def balanced_sentences(text: str) -> bool:
    """There are as many statements as questions and as exclamations, and one of each at least."""
    ends = _ends(text)
    return ends.count(".") == ends.count("?") == ends.count("!") > 0


def equally_long_sentences(text: str) -> bool:
    """There are three sentences with as many characters each, and no word in two of them."""
    words = [{*bare_words(sentence)} for sentence in sentences(text)]
    return counts.equally_long_sentences(text) and sum(map(len, words)) == len(set().union(*words))


def sub_bullets(text: str) -> bool:
    """There are bullets, denoted by stars, and each has a sub-bullet, denoted by a dash."""
    marks = [found[1] for found in map(_BULLET.match, text.split("\n")) if found]
    return "*" in marks and marks[-1] == "-" and "**" not in "".join(marks) and marks[0] == "*"


def sentences_then_bullets(text: str) -> bool:
    """There are two sentences that end with a full stop, then two bullets; blank lines do not count."""
    lines = [line for line in text.split("\n") if line.strip()]
    starts = [number for number, line in enumerate(lines) if (found := _BULLET.match(line)) and found[1] == "*"]
    return len(starts) >= 2 and _ends("\n".join(lines[: starts[0]])).count(".") >= 2


def growing_indents(text: str) -> bool:
    """There are lines, each indented by more blanks than the one before; blank lines do not count."""
    lines = [line for line in text.split("\n") if line.strip()]
    return len(lines) > 1 and formats.growing_indents("\n".join(lines))


def title_case(text: str) -> bool:
    """Every word begins with a capital, but for minor ones, such as `of`, behind the first."""
    words = _WORD.findall(text)
    lower = [
        number for number, word in enumerate(words) if word[0].islower() and (word.islower() or word[1:].isupper())
    ]
    return bool(words) and all(number > 0 and words[number] in _MINOR_WORDS for number in lower)


def countries_backwards(text: str) -> bool:
    """A country in every line, from Zimbabwe backwards, none of them twice."""
    lines = [line for line in map(trimmed, text.split("\n")) if line]
    return len(lines) == len(set(lines)) and custom.countries_backwards(text)


def only_first_word_changed(text: str, *, prompt_to_repeat: str) -> bool:
    """The first word is another one, and all words after it are the same."""
    words, wanted = text.split(), prompt_to_repeat.split()
    return words[0] != wanted[0] and words[1:] == wanted[1:]


def words_of_prompt(text: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The text is a stretch of the prompt, counted in words from 0, with the one at the end."""
    end = n_end + 1 if n_end != -1 else len(prompt_to_repeat.split())
    return sequences.words_of_prompt(text, prompt_to_repeat=prompt_to_repeat, n_start=n_start, n_end=end)


def keyword_at_both_ends(text: str, *, keyword: str) -> bool:
    """The keyword is the second word and the second to last, in any case."""
    words = _WORD.findall(text.lower())
    return bool(words[1] == words[-2] == keyword.strip().lower())


def explained_quotes(text: str) -> bool:
    """There is a quotation, and none follows another one or ends the text."""
    return any(mark in text for mark in '"\u201c\u201d') and formats.explained_quotes(text)


def _of_sentences(check: Callable[..., bool]) -> Callable[..., bool]:
    """Return a check of each sentence by the one before, of which there are two at least."""

    def holds(text: str, **arguments: Any) -> bool:
        return len(sentences(text)) > 1 and check(text, **arguments)

    return holds


def _ends(text: str) -> list[str]:
    """Return the last mark of each sentence, without quotes, brackets and emphasis behind it."""
    return [sentence.rstrip(_CLOSING)[-1:] for sentence in sentences(text)]


AS_MEANT: dict[str, Rule] = {
    # There are enough different coordinating conjunctions, whatever their case and the marks around them.
    "count:conjunctions": lambda text, small_n: (
        len(CONJUNCTIONS.intersection(trimmed(piece).lower() for piece in text.split())) >= small_n
    ),
    "count:keywords_multiple": keywords,
    # Enough of the names occur as words of their own.
    "count:person_names": lambda text, N: len({*NAMES}.intersection(re.findall(r"\w+", text))) >= N,
    "count:pronouns": pronouns,
    # There are enough different words; marks are none.
    "count:unique_word_count": lambda text, N: len({trimmed(piece) for piece in text.lower().split()} - {""}) >= N,
    "custom:reverse_newline": countries_backwards,
    # Twenty-six sentences, whose first words have the initials in their order.
    "custom:sentence_alphabet": lambda text: custom.initials_from_a_to_z(
        sentence.lstrip(OUTER + "\u201c\u2018") for sentence in sentences(text)
    ),
    "format:line_indent": growing_indents,
    # No line has two words.
    "format:newline": lambda text: all(len(line.split()) <= 1 for line in text.split("\n")) and bool(runs(text)),
    "format:no_bullets_bullets": sentences_then_bullets,
    "format:quote_unquote": explained_quotes,
    "format:sub-bullets": sub_bullets,
    "format:title_case": title_case,
    "ratio:sentence_balance": balanced_sentences,
    "ratio:sentence_type": two_statements_for_a_question,
    "ratio:sentence_words": equally_long_sentences,
    "repeat:repeat_change": only_first_word_changed,
    "repeat:repeat_span": words_of_prompt,
    "sentence:alliteration_increment": _of_sentences(sequences.more_alliterations),
    "sentence:increment": _of_sentences(sequences.longer_by),
    # Sentence N contains the word as one of its own; N = 0 is the last sentence.
    "sentence:keyword": lambda text, word, N: (
        int(N) == N and bool(word_pattern(word).search(sentences(text)[int(N) - 1]))
    ),
    # The keyword is word m of sentence n. Negative numbers count from the end: -1 is the second to last.
    "words:keywords_specific_position": lambda text, keyword, n, m: bool(
        _WORD.findall(sentences(text)[n - 1])[m - 1].lower() == keyword.strip().lower()
    ),
    "words:last_first": _of_sentences(words.last_is_next_first),
    "words:words_position": keyword_at_both_ends,
}
