"""The instructions by name.

A check takes the text and the instruction's arguments by keyword. It raises an error if an argument makes no sense.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymq.workers.resources.instruction_following import copies, formats, keywords, languages, lengths, words
from gymq.workers.resources.instruction_following.texts import ModelMissing

Check = Callable[..., bool]

INSTRUCTIONS: dict[str, Check] = {
    "change_case:capital_word_frequency": words.capital_words,
    "change_case:english_capital": languages.english_capital,
    "change_case:english_lowercase": languages.english_lowercase,
    "combination:repeat_prompt": copies.repeats_prompt,
    "combination:two_responses": copies.two_responses,
    "copy:copy": copies.copies,
    "copy:copying_multiple": copies.copies_several_times,
    "copy:copying_simple": copies.copies,
    "copy:repeat_phrase": copies.repeats_phrase,
    "count:count_increment_word": keywords.once_and_twice,
    "count:count_unique": words.all_different,
    "count:counting_composition": lengths.composition,
    "count:lowercase_counting": words.lowercase_words,
    "detectable_content:number_placeholders": formats.placeholders,
    "detectable_content:postscript": formats.postscript,
    "detectable_format:bigram_wrapping": formats.wrapped_pairs,
    "detectable_format:constrained_response": formats.constrained_response,
    "detectable_format:json_format": formats.is_json,
    "detectable_format:multiple_sections": formats.sections,
    "detectable_format:number_bullet_lists": formats.bullets,
    "detectable_format:number_highlighted_sections": formats.highlights,
    "detectable_format:sentence_hyphens": formats.sentences_joined_by_hyphens,
    "detectable_format:square_brackets": formats.words_in_brackets,
    "detectable_format:title": formats.title,
    "first_word:first_word_answer": words.first_word,
    "first_word:first_word_sent": words.first_word_of_sentences,
    "keywords:exclude_word_harder": keywords.excluded,
    "keywords:existence": keywords.all_occur,
    "keywords:forbidden_words": keywords.none_occurs,
    "keywords:frequency": keywords.frequency,
    "keywords:keyword_specific_position": keywords.at_position,
    "keywords:letter_frequency": words.letter_frequency,
    "keywords:no_adjacent_consecutive": words.no_consecutive_initials,
    "keywords:palindrome": words.has_palindrome,
    "keywords:start_end": words.same_start_and_end,
    "keywords:word_count_different_numbers": keywords.frequency,
    "keywords:word_once": keywords.once,
    "language:response_language": languages.response_language,
    "last_word:last_word_answer": words.last_word,
    "last_word:last_word_sent": words.last_word_of_sentences,
    "length_constraints:nth_paragraph_first_word": lengths.first_word_of_paragraph,
    "length_constraints:number_paragraphs": lengths.number_of_pieces,
    "length_constraints:number_sentences": lengths.number_of_sentences,
    "length_constraints:number_words": lengths.number_of_words,
    "letters:letter_counting": words.letters,
    "letters:letter_counting2": words.letter_frequency,
    "new:copy_span_idx": copies.copies_span,
    "paragraphs:paragraphs": lengths.two_pieces,
    "paragraphs:paragraphs2": lengths.two_paragraphs,
    "punctuation:no_comma": formats.no_comma,
    "punctuation:punctuation_dot": formats.no_dot,
    "punctuation:punctuation_exclamation": formats.no_exclamation_mark,
    "startend:end_checker": formats.ends_with,
    "startend:quotation": formats.in_quotation_marks,
}


def follows(checks: dict[str, Check], text: str, name: str, arguments: dict[str, Any]) -> bool:
    """Whether the text follows an instruction. One that is unknown or ill-formed is never followed.

    An argument that is null counts as not given.
    """
    check = checks.get(name)
    if check is None:
        return False
    try:
        return check(text, **{key: value for key, value in arguments.items() if value is not None})
    except (MemoryError, ModelMissing):
        raise
    except Exception:  # arguments that are missing, unknown or of a wrong type, malformed patterns
        return False
