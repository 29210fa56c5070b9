"""Every instruction, followed and not followed."""

import os
import shutil
import subprocess
import sys
from typing import Any

import pytest
from gymq.workers.resources.instruction_following import texts
from gymq.workers.resources.instruction_following.instructions import INSTRUCTIONS, AsMeant, follows
from gymq.workers.resources.instruction_following.texts import sentences

AT_LEAST, LESS_THAN = "at least", "less than"

# name, arguments, texts that follow it, texts that do not
EXAMPLES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("keywords:existence", {"keywords": ["sea", "t.de"]}, ["Seaside tides"], ["the sea", ""]),
    (
        "keywords:frequency",
        {"keyword": " sea ", "frequency": 2, "relation": AT_LEAST},
        ["sea, Seas, SEA", "seasea"],
        ["sea", ""],
    ),
    (
        "keywords:word_count_different_numbers",
        {"keyword": "sea", "frequency": 2, "relation": LESS_THAN},
        ["sea", ""],
        ["sea sea"],
    ),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["sea", "tide"]},
        ["seaside tides", ""],
        ["the SEA", "tide-table"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "E", "let_frequency": 2, "let_relation": AT_LEAST},
        ["eE", "every tide"],
        ["e", ""],
    ),
    ("letters:letter_counting2", {"letter": "e", "let_frequency": 1, "let_relation": LESS_THAN}, ["", "abc"], ["E"]),
    ("keywords:word_once", {"keyword": "sea"}, ["Seaside"], ["sea sea", "tide"]),
    ("keywords:exclude_word_harder", {"keyword": "sea"}, ["sea", "the sea.", "the Sea is"], ["the sea is"]),
    ("keywords:no_adjacent_consecutive", {}, ["a cat", "b a", "", "one"], ["a bee", "A b", "x y z"]),
    ("keywords:palindrome", {}, ["my kayak", "a tide", "noon"], ["Noon tide", "noon. tide", ""]),
    (
        "keywords:keyword_specific_position",
        {"keyword": "sea", "n": 2, "m": 3},
        ["First. By the sea it is."],
        ["By the sea.", "First. By the Sea.", "First. Sea.", ""],
    ),
    ("keywords:start_end", {}, ["Sea, blue sea", "sea sea"], ["Sea, blue sea.", "sea", ""]),
    (
        "language:response_language",
        {"language": "de"},
        ["Das Meer ist heute sehr ruhig und blau.", "", "12345"],
        ["The sea is very calm and blue today."],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": AT_LEAST},
        ["Dr. Li sails. She swims.", "One! Two? Three."],
        ["Dr. Li sails.", ""],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["a *** b", "***\na\n***\nb\n***", "a***b"],
        ["a", "a *** *** b", "a *** b *** c", ""],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": LESS_THAN},
        ["two-one", "snake_case word", ""],
        ["it's one", "a b c"],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Sea"},
        ["First\n\nsea is blue", "First\n\n'\"SEA, blue"],
        ["First\n\nSeas", "Sea\n\nFirst", "a\n\nsea\n\nb", "a\n\n\n\nsea", "a\n\n\"'sea", ""],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["[a] [b]", "[][[c]"],
        ["[a", "[a\n] [b]", "] [a]", ""],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["Bye.\np. s. me", "P.S. x"],
        ["PS: x", "P.S", ""],
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["p.p. s x", "P.P.S."], ["P.S.", ""]),
    ("detectable_content:postscript", {"postscript_marker": "N.B."}, ["n.b.", "naby"], ["NB", ""]),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* a\n* b", "- a\n  * b", "*a\n-b\n**c**"],
        ["* a", "** a\n* b", "1. a", ""],
    ),
    (
        "detectable_format:constrained_response",
        {},
        ["My answer is no.", "Well: My answer is maybe."],
        ["my answer is no.", "My answer is no", ""],
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*a* and *b*", "**a** and *b*", "**a** **b**"],
        ["*a*", "* * *a*", "*a\n* *b*", "****", ""],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Part", "num_sections": 2},
        ["Part 1 a Part2 b", "xPart 1\nPart 12"],
        ["Part one Part two", "part 1 part 2", "Part 1", ""],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": 1}', ' ```json\n["a"]\n``` ', "```\n1\n```"],
        ["", "{'a': 1}", '```yaml\n{"a": 1}\n```', 'Here: {"a": 1}'],
    ),
    ("detectable_format:title", {}, ["<<Sea>>", "x <<a b>> y"], ["<Sea>", "<< >>", "<<<>>>", "<<a\n>>", "<<>>", ""]),
    ("detectable_format:square_brackets", {}, ["[a] [b]", ""], ["[a] b", "[a b]"]),
    ("detectable_format:bigram_wrapping", {}, ["<<a b>> <<c d>>", "<<a b>> c", ""], ["a b", "<<a b", "<<a>> <<b c"]),
    (
        "detectable_format:sentence_hyphens",
        {},
        ["It rains.-We stay.", "It rains.", ""],
        ["It rains. We stay.", "It rains. -We stay.", "It rains.- We stay."],
    ),
    (
        "combination:two_responses",
        {},
        ["a******b", "******\na\n******\nb\n******"],
        ["a", "a******a", "a******b******c", "a************b", ""],
    ),
    ("combination:repeat_prompt", {"prompt_to_repeat": " Why? "}, ["why? Because."], ["Because. Why?", ""]),
    ("copy:copy", {"prompt_to_repeat": " Why? "}, [" WHY? "], ["Why? Because.", ""]),
    ("copy:copying_simple", {"prompt_to_repeat": "Why?"}, ["why?"], ["why", ""]),
    (
        "copy:copying_multiple",
        {"prompt_to_repeat": "Why?", "N": 2},
        ["Why?\n******\nwhy?"],
        ["Why?", "Why?******Why?******", ""],
    ),
    (
        "new:copy_span_idx",
        {"prompt_to_repeat": "See the sea", "n_start": 0, "n_end": 7},
        ["see the", " SEE THE "],
        ["see th", "See the sea", ""],
    ),
    (
        "copy:repeat_phrase",
        {"phrase": "time flies when sailing", "small_n": 2},
        ["time runs when sailing, time flies while sailing", "time flies when sailing; time flew when sailing"],
        [
            "time runs when sailing",
            "time runs when sailing, time flies when sailing",
            "time runs while sailing, time runs when sailing",
            "time runs when sailing, time flies just when sailing",
            "",
        ],
    ),
    ("startend:end_checker", {"end_phrase": " The end. "}, ['"It was the END." ', "the end."], ["the end", ""]),
    ("startend:quotation", {}, [' "a" ', '""'], ['"', '"a', "'a'", ""]),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": AT_LEAST},
        ["NASA and ESA", "I AM"],
        ["Nasa", "NASA", ""],
    ),
    (
        "change_case:english_capital",
        {},
        ["THE SEA IS VERY CALM AND BLUE TODAY."],
        ["The sea is calm.", "DAS MEER IST HEUTE SEHR RUHIG UND BLAU.", "", "12"],
    ),
    (
        "change_case:english_lowercase",
        {},
        ["the sea is very calm and blue today."],
        ["The sea is calm.", "das meer ist heute sehr ruhig und blau.", ""],
    ),
    ("punctuation:no_comma", {}, ["a; b", ""], ["a, b"]),
    ("punctuation:punctuation_dot", {}, ["a!", ""], ["a.", "3.14"]),
    ("punctuation:punctuation_exclamation", {}, ["a.", ""], ["a!"]),
    ("paragraphs:paragraphs", {}, ["a *** b", "a***b***"], ["a", "a *** b *** c", "a *** *** b"]),
    ("paragraphs:paragraphs2", {}, ["a\n\nb", "\n\na\n\nb"], ["a\nb", "a\n\n\n\nb", "a\n\nb\n\nc", ""]),
    (
        "first_word:first_word_sent",
        {"first_word": "sea"},
        ["Sea is. SEA was!", ""],
        ["Sea is. It was.", "Sea, blue.", "Hm! !"],
    ),
    ("first_word:first_word_sent", {"first_word": ["sea"]}, ["Sea is."], ["Tide is."]),
    ("last_word:last_word_sent", {"last_word": "sea"}, ["The sea. My Sea!", ""], ["The sea. It."]),
    ("last_word:last_word_sent", {"last_word": ["sea"]}, ["The sea."], ["The tide."]),
    ("first_word:first_word_answer", {"first_word": "sea"}, [" SEA is"], ["Sea, blue", "The sea", ""]),
    ("last_word:last_word_answer", {"last_word": "sea"}, ["The Sea.", '"sea"!'], ["sea tide", "sea !", ""]),
    ("count:lowercase_counting", {"N": 2}, ["one two", "One Two Three 4x", ""], ["one two three"]),
    ("letters:letter_counting", {"N": 3, "relation": LESS_THAN}, ["a1b2", "éa", ""], ["abc"]),
    (
        "count:counting_composition",
        {"n_sent": 2, "n_words": 3},
        ["It rains. We stay.\n***\nIt rains! We stay!\n***\nIt rains. We stay."],
        [
            "It rains. We stay.\n***\nIt rains. We stay.",
            "It rains. We stay.\n***\nIt rains.\n***\nIt rains. We stay.",
            "It rains. We stay.\n***\nIt rains, now. We stay.\n***\nIt rains. We stay.",
            "***\nIt rains. We stay.\n***\nIt rains. We stay.\n***\nIt rains. We stay.",
            "",
        ],
    ),
    ("count:count_unique", {}, ["One, two.", "sea Sea", ""], ["sea sea", "One. Two."]),
    (
        "count:count_increment_word",
        {"keyword1": "sea", "keyword2": "tide"},
        ["Sea tide Tides"],
        ["sea tide", "sea sea tide tide", "tide tide", ""],
    ),
]


@pytest.mark.parametrize(
    ("name", "arguments", "text", "followed"),
    [
        (name, arguments, text, followed)
        for name, arguments, good, bad in EXAMPLES
        for followed, texts in ((True, good), (False, bad))
        for text in texts
    ],
)
def test_an_instruction(name, arguments, text, followed):
    assert follows(INSTRUCTIONS, text, name, arguments) is followed


def test_every_instruction_has_examples():
    assert {name for name, *_ in EXAMPLES} == set(INSTRUCTIONS)


@pytest.mark.parametrize(("name", "arguments"), [(name, arguments) for name, arguments, *_ in EXAMPLES if arguments])
def test_without_one_of_its_arguments_an_instruction_is_not_followed(name, arguments):
    texts = [text for other, _, good, bad in EXAMPLES if other == name for text in good + bad]
    for missing in arguments:
        rest = {key: value for key, value in arguments.items() if key != missing}
        assert not any(follows(INSTRUCTIONS, text, name, rest) for text in texts)
        assert not any(follows(INSTRUCTIONS, text, name, rest | {missing: None}) for text in texts)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("made:up", {}),
        ("punctuation:no_comma", {"text": "x"}),
        ("punctuation:no_comma", {"other": 1}),
        ("keywords:existence", {"keywords": []}),
        ("keywords:existence", {"keywords": ["("]}),
        ("keywords:existence", {"keywords": 5}),
        ("keywords:forbidden_words", {"forbidden_words": []}),
        ("keywords:forbidden_words", {"forbidden_words": ["("]}),
        ("keywords:frequency", {"keyword": "", "frequency": 0, "relation": AT_LEAST}),
        ("keywords:frequency", {"keyword": "a", "frequency": -1, "relation": AT_LEAST}),
        ("keywords:frequency", {"keyword": "a", "frequency": 0, "relation": "at most"}),
        ("keywords:frequency", {"keyword": "a", "frequency": "0", "relation": AT_LEAST}),
        ("keywords:letter_frequency", {"letter": "!", "let_frequency": 0, "let_relation": AT_LEAST}),
        ("keywords:letter_frequency", {"letter": "ab", "let_frequency": 0, "let_relation": AT_LEAST}),
        ("keywords:keyword_specific_position", {"keyword": "a", "n": 0, "m": 1}),
        ("keywords:keyword_specific_position", {"keyword": "a", "n": 1, "m": -1}),
        ("language:response_language", {"language": "xx"}),
        ("length_constraints:number_words", {"num_words": -1, "relation": AT_LEAST}),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 1, "nth_paragraph": 2, "first_word": "a"}),
        ("combination:repeat_prompt", {"prompt_to_repeat": ""}),
        ("new:copy_span_idx", {"prompt_to_repeat": "", "n_start": 0, "n_end": 1}),
        ("copy:repeat_phrase", {"phrase": "a b c", "small_n": 0}),
        ("count:counting_composition", {"n_sent": 0, "n_words": 1}),
    ],
)
def test_an_instruction_that_makes_no_sense_is_not_followed(name, arguments):
    assert not any(follows(INSTRUCTIONS, text, name, arguments) for text in ("", "a", "a b c", "***\n***"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is. Is it? Yes!", ["It is.", "Is it?", "Yes!"]),
        ("Mr. Li met Dr. Wu at 3.14 p.m. today.", ["Mr. Li met Dr. Wu at 3.14 p.m. today."]),
        ("See x.com and e.g. y.org.", ["See x.com and e.g. y.org."]),
        ("In the U.S.A. He waits.", ["In the U.S.A.", "He waits."]),
        ("At Sea Inc. they wait. At Sea Inc. They wait.", ["At Sea Inc. they wait.", "At Sea Inc", "They wait."]),
        ("Wait... what? Plan B. is fine.", ["Wait...", "what?", "Plan B. is fine."]),
        ('He said "go." Then "no!" Why', ['He said "go".', 'Then "no"!', "Why"]),
        ("Line one\nline two.", ["Line one line two."]),
        ("Really?!", ["Really?", "!"]),
        ("", []),
    ],
)
def test_sentences_by_rules(text, found):
    assert sentences(text) == found


@pytest.mark.parametrize("piece", ["[", "<<", "*", "-", "\n", "```", "***", "******", ". ", "a.", '"', "a "])
def test_long_monotonous_texts_get_an_answer(piece):
    text = piece * 5_000
    for name, arguments, *_ in EXAMPLES:
        assert follows(INSTRUCTIONS, text, name, arguments) in (True, False)


def test_models_that_were_installed_with_links_are_read(tmp_path):
    """As uv does; NLTK refuses a file with several links."""
    installed, linked = texts.nltk_data(), tmp_path / "linked"
    assert installed is not None
    for name in (texts._PUNKT, "corpora/stopwords"):
        shutil.copytree(installed / name, tmp_path / name)
        shutil.copytree(tmp_path / name, linked / name, copy_function=os.link)
    program = (
        "import pathlib, sys; from gymq.workers.resources.instruction_following import texts;"
        "texts.nltk_data = lambda: pathlib.Path(sys.argv[1]);"
        "print(texts.tokens('One, two.'), len(texts.punkt_sentences('One. Two.')), 'the' in texts.stop_words())"
    )
    done = subprocess.run([sys.executable, "-c", program, str(linked)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['One', ',', 'two', '.'] 2 True\n", "")


AS_MEANT = [
    ("keywords:existence", {"keywords": ["C++", "a.b"]}, ["c++ and A.B"], ["Rice and cab, a+b", "C++ axb"]),
    ("keywords:existence", {"keywords": ["$20", "g(x)", "[note]"]}, ["$20 for g(x) [NOTE]"], ["$20", "g(x) $20 n"]),
    ("keywords:forbidden_words", {"forbidden_words": ["C++", ".net"]}, ["Vitamin C", "a net"], ["c++!", "use .NET"]),
    ("keywords:forbidden_words", {"forbidden_words": ["sea"]}, ["season"], ["The SEA."]),
    ("keywords:frequency", {"keyword": "a.", "frequency": 2, "relation": "at least"}, ["a. b A."], ["aa ab"]),
    ("keywords:word_once", {"keyword": "(x)"}, ["f(x)"], ["x", "(x) (x)"]),
    ("count:count_increment_word", {"keyword1": "?", "keyword2": "*"}, ["? * *"], ["a", "? *"]),
    ("detectable_content:postscript", {"postscript_marker": "N.B."}, ["so. n.b. this"], ["nxby"]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, ["p. s. this"], ["ps"]),
    ("detectable_format:multiple_sections", {"section_spliter": "(Part)", "num_sections": 1}, ["(Part) 1"], ["Part 1"]),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* a\n- b\n---\n* * *", "+ a\n  * b"],
        ["* a", "- a\n-7 b", "* a\n*b* c"],
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 1},
        ["- **a**\n**b**", "* *a*"],
        ["*a*", "-a", "- - -", "-"],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": 1}', "```json\n[]\n```", "null"],
        ["NaN", "[-Infinity]", '{"a": Infinity}'],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "gulls"},
        ["Sea.\n\n\n\nGulls cry.", "\n\nSea.\n\n \n\nGulls.\n\n"],
        ["\n\nGulls cry.\n\nNight.", "Gulls.\n\nSea.\n\nGulls."],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "gulls"},
        ["Sea.\n\n**Gulls** cry.", "Sea.\n\n\u201cGulls\u201d cry."],
        ["Sea.\n\n**The gulls** cry."],
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, ["[name]", "[ ] [x y]"], ["[]", "[ ] to do"]),
]


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), AS_MEANT, ids=lambda value: str(value)[:40])
def test_instructions_are_checked_by_what_they_say(name, arguments, good, bad):
    assert [text for text in good if not AsMeant().follows(text, name, arguments)] == []
    assert [text for text in bad if AsMeant().follows(text, name, arguments)] == []
