"""Rules that are checked by what they say where the published checks read something else."""

from __future__ import annotations

import re
from collections.abc import Callable

from gymq.workers.resources.ifbench import counts, sequences
from gymq.workers.resources.ifbench.counts import KEYWORD_COUNTS, NAMES
from gymq.workers.resources.ifbench.texts import bare_words
from gymq.workers.resources.instruction_following.as_meant import word_pattern
from gymq.workers.resources.instruction_following.texts import sentences

_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_BULLET = re.compile(r"\s*+([*-])\s+\S")


def keywords(text: str, *, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str) -> bool:
    """Five keywords occur 1, 2, 3, 5 and 7 times as words of their own, in any case."""
    given = (keyword1, keyword2, keyword3, keyword4, keyword5)
    return [len(word_pattern(keyword).findall(text)) for keyword in given] == list(KEYWORD_COUNTS)


def person_names(text: str, *, N: float) -> bool:
    """Enough of the names occur as words of their own."""
    return len({*NAMES}.intersection(re.findall(r"\w+", text))) >= N


def two_statements_for_a_question(text: str) -> bool:
    """There are twice as many statements as questions, of which there is one at least."""
    return counts.two_statements_for_a_question(text) and _has_sentence(text, "?")


def balanced_sentences(text: str) -> bool:
    """There are as many statements as questions and as exclamations, and one of each at least."""
    return counts.balanced_sentences(text) and _has_sentence(text, "?")


def equally_long_sentences(text: str) -> bool:
    """There are three sentences with as many characters each, and no word in two of them."""
    words = [{*bare_words(sentence)} for sentence in sentences(text)]
    return counts.equally_long_sentences(text) and sum(map(len, words)) == len(set().union(*words))


def sub_bullets(text: str) -> bool:
    """There are bullets, denoted by stars, and each has a sub-bullet, denoted by a dash."""
    marks = [found[1] for found in map(_BULLET.match, text.split("\n")) if found]
    return "*" in marks and marks[-1] == "-" and "**" not in "".join(marks) and marks[0] == "*"


def keyword_in_a_sentence(text: str, *, word: str, N: float) -> bool:
    """Sentence N contains the word as one of its own; N = 0 is the last sentence."""
    return int(N) == N and bool(word_pattern(word).search(sentences(text)[int(N) - 1]))


def words_of_prompt(text: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The text is a stretch of the prompt, counted in words from 0, with the one at the end."""
    end = n_end + 1 if n_end != -1 else len(prompt_to_repeat.split())
    return sequences.words_of_prompt(text, prompt_to_repeat=prompt_to_repeat, n_start=n_start, n_end=end)


def keyword_at_position(text: str, *, keyword: str, n: int, m: int) -> bool:
    """The keyword is word m of sentence n. Negative numbers count from the end: -1 is the second to last."""
    return bool(_WORD.findall(sentences(text)[n - 1])[m - 1] == keyword.strip())


def keyword_at_both_ends(text: str, *, keyword: str) -> bool:
    """The keyword is the second word and the second to last."""
    words = _WORD.findall(text)
    return bool(words[1] == words[-2] == keyword.strip())


AS_MEANT: dict[str, Callable[..., bool]] = {
    "count:keywords_multiple": keywords,
    "count:person_names": person_names,
    "format:sub-bullets": sub_bullets,
    "ratio:sentence_balance": balanced_sentences,
    "ratio:sentence_type": two_statements_for_a_question,
    "ratio:sentence_words": equally_long_sentences,
    "repeat:repeat_span": words_of_prompt,
    "sentence:keyword": keyword_in_a_sentence,
    "words:keywords_specific_position": keyword_at_position,
    "words:words_position": keyword_at_both_ends,
}


def _has_sentence(text: str, mark: str) -> bool:
    return any(sentence.endswith(mark) for sentence in sentences(text))
