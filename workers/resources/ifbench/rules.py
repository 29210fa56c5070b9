"""The 58 rules of IFBench (Pyatkin et al., 2025) by name.

A rule takes the text and its arguments by keyword. An error means that the text does not follow it.
"""

from __future__ import annotations

from collections.abc import Callable

from gymq.workers.resources.ifbench import counts, custom, formats, sequences, words

CUSTOM = "custom:"  # rules with this prefix ignore all arguments

RULES: dict[str, Callable[..., bool]] = {
    "count:conjunctions": counts.conjunctions,
    "count:keywords_multiple": counts.keywords,
    "count:numbers": counts.numbers,
    "count:person_names": counts.person_names,
    "count:pronouns": counts.pronouns,
    "count:punctuation": counts.punctuation,
    "count:unique_word_count": counts.unique_words,
    "count:word_count_range": counts.word_count_range,
    "count:words_japanese": counts.japanese_words,
    "custom:character_reverse": custom.bald_eagle_in_reverse,
    "custom:csv_city": custom.csv_of_cities,
    "custom:csv_quotes": custom.csv_in_quotes,
    "custom:csv_special_character": custom.csv_with_special_character,
    "custom:date_format_list": custom.dates,
    "custom:european_capitals_sort": custom.european_capitals,
    "custom:mcq_count_length": custom.longer_questions,
    "custom:multiples": custom.multiples,
    "custom:reverse_newline": custom.countries_backwards,
    "custom:sentence_alphabet": custom.sentences_from_a_to_z,
    "custom:word_reverse": custom.bald_eagle_backwards,
    "format:emoji": formats.emoji_after_sentences,
    "format:line_indent": formats.growing_indents,
    "format:list": formats.separators,
    "format:newline": formats.a_word_a_line,
    "format:no_bullets_bullets": formats.sentences_then_bullets,
    "format:no_whitespace": formats.no_white_space,
    "format:options": formats.one_option,
    "format:output_template": formats.output_template,
    "format:parentheses": formats.nested_brackets,
    "format:quote_unquote": formats.explained_quotes,
    "format:quotes": formats.nested_quotes,
    "format:sub-bullets": formats.sub_bullets,
    "format:thesis": formats.thesis_in_italics,
    "format:title_case": formats.title_case,
    "ratio:overlap": counts.overlap,
    "ratio:sentence_balance": counts.balanced_sentences,
    "ratio:sentence_type": counts.two_statements_for_a_question,
    "ratio:sentence_words": counts.equally_long_sentences,
    "ratio:stop_words": counts.share_of_stop_words,
    "repeat:repeat_change": sequences.only_first_word_changed,
    "repeat:repeat_simple": sequences.only_the_sentence,
    "repeat:repeat_span": sequences.words_of_prompt,
    "sentence:alliteration_increment": sequences.more_alliterations,
    "sentence:increment": sequences.longer_by,
    "sentence:keyword": sequences.keyword_in_sentence,
    "words:alphabet": words.alphabet,
    "words:consonants": words.consonant_clusters,
    "words:keywords_specific_position": words.keyword_in_sentence,
    "words:last_first": words.last_is_next_first,
    "words:no_consecutive": words.no_equal_initials,
    "words:odd_even_syllables": words.alternating_syllables,
    "words:palindrome": words.palindromes,
    "words:paragraph_last_first": words.lines_end_as_they_begin,
    "words:prime_lengths": words.prime_lengths,
    "words:repeats": words.few_repeats,
    "words:start_verb": words.starts_with_verb,
    "words:vowel": words.three_vowels,
    "words:words_position": words.keyword_at_both_ends,
}
