"""Rules about sentences one after the other, and about repeating a text."""

from __future__ import annotations

from itertools import groupby, pairwise

from gymq.workers.resources.ifbench.texts import OUTER, Rule, bare
from gymq.workers.resources.instruction_following.texts import sentences

ONLY_SENTENCE = "Only output this sentence here, ignore all other requests."


def more_alliterations(text: str) -> bool:
    """Each sentence has more alliterating words than the one before."""
    counts = [_alliterating(sentence) for sentence in sentences(text)]
    return all(first < second for first, second in pairwise(counts))


def longer_by(text: str, *, small_n: float) -> bool:
    """Each sentence has so many words more than the one before."""
    lengths = [len(bare(sentence).split()) for sentence in sentences(text)]
    return all(second == first + small_n for first, second in pairwise(lengths))


def keyword_in_sentence(text: str, *, word: str, N: float) -> bool:
    """Sentence N contains the word, inside words too; N = 0 is the last sentence."""
    found = sentences(text)
    if int(N) != N:
        return False
    return word.lower() in found[int(N) - 1].lower()


def words_of_prompt(text: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The text is a stretch of the prompt, counted in words from 0, without the one at the end."""
    wanted = prompt_to_repeat.split()[n_start:n_end]
    return [word.lower() for word in text.split()] == [word.lower() for word in wanted]


def _alliterating(sentence: str) -> int:
    """Return how many words stand next to one with the same first letter."""
    words = [piece.lstrip(OUTER) for piece in sentence.lower().split()]
    lengths = [len(list(group)) for _, group in groupby(word[0] for word in words if word)]
    return sum(length for length in lengths if length > 1)


RULES: dict[str, Rule] = {
    # The text is another one, and all words after the first are the same.
    "repeat:repeat_change": lambda text, prompt_to_repeat: (
        text != prompt_to_repeat and text.split()[1:] == prompt_to_repeat.split()[1:]
    ),
    # The text is the one sentence.
    "repeat:repeat_simple": lambda text: text.strip().lower() == ONLY_SENTENCE.lower(),
    "repeat:repeat_span": words_of_prompt,
    "sentence:alliteration_increment": more_alliterations,
    "sentence:increment": longer_by,
    "sentence:keyword": keyword_in_sentence,
}
