"""Every rule, followed and not followed."""

import string
from typing import Any

import pytest
from gymq.workers.resources.ifbench.checking import RULES, check_all
from gymq.workers.resources.ifbench.custom import CAPITALS
from gymq.workers.resources.instruction_following import texts
from gymq.workers.resources.instruction_following.texts import ModelMissing

CITIES = "ID,Country,City,Year,Count" + "\n1,Peru,Lima,2001,4" * 7
PRODUCTS = "ProductID, Category,Brand,Price,Stock\n{}" + "\n1,a,b,2,3" * 13
GRADES = '"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"' + '\n"1"\t"a"\t"b"\t"2"\t"3"' * 3
QUESTIONS = "".join(
    f"Question {number}. {'x' * number}\n" + "".join(f"{letter}. y\n" for letter in "ABCDE") for number in (1, 2, 3, 4)
)
COUNTRIES = "\n".join(["Zimbabwe"] * 40 + ["Peru"] * 12)
ALPHABET = " ".join(f"{letter}x is." for letter in string.ascii_lowercase)
KEYWORDS = {"keyword1": "sea", "keyword2": "bee ", "keyword3": "cat", "keyword4": "dog", "keyword5": "owl"}
COUNTED = "Sea" + "bee " * 2 + "cat" * 3 + "dog " * 5 + "OWL " * 7
SPAN = {"prompt_to_repeat": "the sea is blue and the cat", "n_start": 0, "n_end": 2}

# name, arguments, texts that follow it, texts that do not
EXAMPLES: list[tuple[str, Any, list[str], list[str]]] = [
    ("count:word_count_range", {"min_words": 2, "max_words": 3.0}, ["a b", "a_1, b c"], ["a", "a b c d"]),
    ("count:unique_word_count", {"N": 3.0}, ["a B c a.", "a b -"], ["a A a. b"]),
    ("count:conjunctions", {"small_n": 2}, ["and, or", "And and"], ["and and", "android"]),
    ("count:person_names", {"N": 2}, ["Emma, Liam", "Ariane Miami"], ["emma Liam", "Emma Emma"]),
    ("count:numbers", {"N": 2.0}, ["3 4", "3.5 and v2"], ["3.5", "1 2 3"]),
    ("count:numbers", {"N": 0}, ["none"], ["1"]),
    ("count:punctuation", {}, ["?! . , ! ? ; :", "\u203d . , ! ? ; :", "?!?! . , ; :"], ["?! . , ; :", ". , ! ? ; :"]),
    ("count:pronouns", {"N": 2}, ["He/she", "I, ME"], ["he", "the hers-she"]),
    ("count:keywords_multiple", KEYWORDS, [COUNTED], [COUNTED + "sea", "sea"]),
    ("count:words_japanese", {"N": 2}, ["a \u304b", "a 12 b ...", "a \u6f22."], ["a b", "\u304b a"]),
    ("count:words_japanese", {"N": 0}, [], ["\u304b"]),
    ("ratio:stop_words", {"percentage": 50}, ["the sea", "sea"], ["the of sea", "..."]),
    ("ratio:sentence_type", {}, ["Sea. Sky. Who?", "So!"], ["Sea. Who?", "Who?"]),
    ("ratio:sentence_balance", {}, ["Sea. Who? So!", "no end"], ["Sea. Who?"]),
    ("ratio:sentence_words", {}, ["ab. cd. ef."], ["ab. cd. efg.", "ab. cd."]),
    ("ratio:overlap", {"reference_text": "abcde", "percentage": 50}, ["abcx", "xabc"], ["abcd", "ab", "xyz"]),
    ("words:alphabet", {}, ["y zoo apple", "B, c"], ["b d", "1 2", "...", "\u00e9 f"]),
    ("words:vowel", {}, ["a e I", "\n a \n", "xyz"], ["a e i o", "a\nb"]),
    ("words:consonants", {}, ["stop RHYTHM"], ["a stop", "s-top", "sea"]),
    ("words:palindrome", {}, ["Level, " * 10, "12321 " * 10], ["level " * 9, "noon " * 10]),
    ("words:prime_lengths", {}, ["an owl hello", "...", "se-a, abc."], ["a", "seas", "a" * 101]),
    ("words:repeats", {"small_n": 1}, ["a b", "..."], ["a A.", "a b a"]),
    ("words:odd_even_syllables", {}, ["a table", "table a"], ["a cat", "table banana table table"]),
    ("words:last_first", {}, ["I see. See it! It is", "x"], ["I see. Look.", "Sea. Sea.", "... x."]),
    ("words:paragraph_last_first", {}, ["a b A.\n\n- c", "...\na"], ["a b", "a\na b"]),
    ("words:no_consecutive", {}, ["a b a", "..."], ["a 'apple", "sea SKY"]),
    ("words:keywords_specific_position", {"keyword": "sea ", "n": 2, "m": 3}, ["So. My own sea."], ["So. Sea.", "sea"]),
    ("words:keywords_specific_position", {"keyword": "sea", "n": -1, "m": -1}, ["My sea. So."], ["So. My sea.", "sea"]),
    ("words:keywords_specific_position", {"keyword": "sea", "n": 1.0, "m": 1}, [], ["sea"]),
    ("words:keywords_specific_position", {"keyword": "sea", "n": 0, "m": 1}, [], ["sea"]),
    (
        "words:words_position",
        {"keyword": "sea"},
        ["a sea b sea c", "the sea.", "a sea b"],
        ["sea", "a sea", "a Sea b Sea c"],
    ),
    (
        "sentence:alliteration_increment",
        {},
        ["The cat. Sea sky. Big - bad bees.", "x"],
        ["Sea sky. Cat cow.", "So. It."],
    ),
    ("sentence:increment", {"small_n": 1.0}, ["So. It is. A-b is so.", "a"], ["So. It.", "So. It is so."]),
    ("sentence:keyword", {"word": "sea", "N": 2.0}, ["So. The SEASIDE."], ["sea. So.", "sea"]),
    ("sentence:keyword", {"word": "sea", "N": 0}, ["So. sea"], ["sea. So."]),
    ("format:parentheses", {}, ["([{([])}])", "x(((((y)", "]((((()"], ["(((((", "((((]))))", "(((())))"]),
    ("format:quotes", {}, ['"\'"x"\'"', '"a \'b "c" d\' e"'], ['"\'"', "\"'\"'\"'", 'don\'t "x"']),
    ("format:options", {"options": "yes/no or so"}, ["Yes.", "*No or so*"], ["so", "no\n", "perhaps"]),
    ("format:options", {"options": "a) b) c)"}, ["a) b) c)"], ["A", "a"]),
    ("format:options", {"options": "A, B, C"}, ["B"], ["b", "B.", " B"]),
    ("format:options", {"options": "red, green"}, ["Green!"], ["blue"]),
    ("format:newline", {}, ["a\nb", "a.\n!\nb", "a\n\nb"], ["a b", "a\n \nb"]),
    (
        "format:emoji",
        {},
        ["Sea \U0001f600.", "Sea. \U0001f600 Sky \u2764.", "Sea \u2764\ufe0f!"],
        ["Sea.", "Sea. Sky \U0001f600."],
    ),
    ("format:line_indent", {}, ["a\n b\n  c", "a"], ["a\nb", "a\n\n\n b", "a\n\tb"]),
    ("format:quote_unquote", {}, ['"a" so', "\u201ca\u201d b", "a '\"'"], ['"a" "b" c', '"a".', "12"]),
    ("format:list", {"sep": "..."}, ["a ... b ...", "......"], ["a ... b"]),
    ("format:thesis", {}, ["<i>a</i>b", "<em></em>", "</i><i>a</i>b"], ["x<i> </i>y", "<i>a</i> ", "a"]),
    ("format:sub-bullets", {}, ["* a\n - b", "x", "* a - b * c-"], ["* a\n- b\n* c"]),
    (
        "format:no_bullets_bullets",
        {},
        ["Sea. Sky.\n* a\n* b", "Sea.\nSky.\n *a\n**b", "Sea. Sky.\n\n* a\n* b"],
        ["Sea. Sky.\n* a", "Sea.\n* a\n* b", "Sea. Sky.\n* a\n* b\n", "Sea.\n\nSky.\n* a\n* b", "Sea. Sky."],
    ),
    ("format:title_case", {}, ["The Sea", "a Sea", "iPhone"], ["the Sea", "tHE Sea"]),
    ("format:output_template", {}, ["My Answer: My Conclusion: Future Outlook:"], ["My Answer: My Conclusion:"]),
    ("format:no_whitespace", {}, ["a-b"], ["a b", "a\u00a0b"]),
    ("custom:multiples", {"N": 3}, ["14, 21 28\n35 42 49."], ["14 21 28 35 42", "014 21 28 35 42 49"]),
    (
        "custom:mcq_count_length",
        None,
        [QUESTIONS, QUESTIONS.replace(". y", ") y").replace("1.", "1:")],
        ["x " + QUESTIONS, QUESTIONS.replace("xxx", "x"), QUESTIONS.replace("E. y", "F. y"), QUESTIONS[:-40]],
    ),
    ("custom:reverse_newline", None, [COUNTRIES, "so\n" + COUNTRIES.replace("Peru", "* Per\u00fa.")], [COUNTRIES[:-5]]),
    ("custom:word_reverse", None, ["the Eagle, bald"], ["bald eagle"]),
    ("custom:character_reverse", None, ["x Elgae Dlab"], ["elgaedlab"]),
    ("custom:sentence_alphabet", None, [ALPHABET], [ALPHABET + " Ax.", ALPHABET[:-7]]),
    (
        "custom:european_capitals_sort",
        None,
        [", ".join(CAPITALS), ",".join(CAPITALS) + ",\n"],
        [", ".join(CAPITALS[1:])],
    ),
    ("custom:csv_city", None, [CITIES, CITIES + "\n"], [CITIES + "\n\n", CITIES.replace(",Count", ""), CITIES + "\na"]),
    (
        "custom:csv_special_character",
        None,
        [PRODUCTS.format('1,"a!b",b,2,3'), PRODUCTS.format('1,"a,b",b,2,3')],
        [PRODUCTS.format(row) for row in ('1,"a b",b,2,3', "1,a!b,b,2,3", '1,"a!b",b,2', '1,"a!",b,2,3\n1,a,b,2,3')],
    ),
    (
        "custom:csv_quotes",
        None,
        [GRADES, GRADES.replace("\t", "\t ").replace('\t "3', '\t"3'), GRADES.replace('"a"', '"a\tc"')],
        [GRADES.replace('"Score"', "Score"), GRADES.replace('"b"', "b"), GRADES + '\n"1"', GRADES.replace("\t", ",")],
    ),
    (
        "custom:date_format_list",
        None,
        ["1769-08-15, 1821-05-05", "1800-00-00", "1800-02-29"],
        [
            "1800-02-30",
            "1800-04-31",
            "1800-13-01",
            "1768-01-01",
            "1822-01-01",
            "1800-1-01",
            "1800-01-01,",
            "18001-01-01",
        ],
    ),
    ("repeat:repeat_change", {"prompt_to_repeat": "the sea is"}, ["a sea  is"], ["the sea is", "a sea was"]),
    ("repeat:repeat_change", {"prompt_to_repeat": ""}, [], ["a"]),
    ("repeat:repeat_simple", {}, [" only output this sentence here, ignore all other requests.\n"], ["Only output"]),
    ("repeat:repeat_span", SPAN, ["THE  sea"], ["the", "sea is"]),
    ("repeat:repeat_span", SPAN | {"n_start": -3, "n_end": -1}, ["and the"], ["the cat"]),
    ("repeat:repeat_span", SPAN | {"n_start": 0.0}, [], ["the sea"]),
    ("repeat:repeat_span", SPAN | {"n_end": 0}, [], ["the sea"]),
]


@pytest.mark.parametrize(("name", "arguments", "texts", "others"), EXAMPLES)
def test_texts_that_follow_a_rule_and_texts_that_do_not(name, arguments, texts, others):
    for text in texts:
        assert check_all("published", [(name, arguments)], text)[0] == [True], text
    for text in others:
        assert check_all("published", [(name, arguments)], text)[0] == [False], text


def test_every_rule_has_an_example():
    assert {name for name, *_ in EXAMPLES} | {"words:start_verb"} == set(RULES)
    assert len(RULES) == 58


def test_a_verb_at_the_beginning_is_what_the_tagger_says(monkeypatch):
    monkeypatch.setattr(texts._nltk(), "pos_tag", lambda words: [(words[0], "VBZ" if words[0] == "Runs" else "NN")])
    assert check_all("published", [("words:start_verb", {})], "Runs far.")[0] == [True]
    assert check_all("published", [("words:start_verb", {})], "Far runs.")[0] == [False]


def test_a_rule_whose_model_is_missing_has_no_verdict(monkeypatch):
    def not_found(words: list[str]) -> None:
        raise LookupError("\n***\n  Resource tagger not found.\n***")

    monkeypatch.setattr(texts._nltk(), "pos_tag", not_found)
    with pytest.raises(ModelMissing, match="Resource tagger not found"):
        check_all("published", [("words:start_verb", {})], "Run.")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("count:numbers", {}),
        ("count:numbers", None),
        ("count:numbers", {"N": None}),
        ("count:numbers", {"N": "0"}),
        ("count:numbers", {"N": -1}),
        ("count:numbers", {"N": False}),
        ("count:numbers", {"N": 0, "keyword": "x"}),
        ("count:numbers", []),
        ("count:numbers", "N"),
        ("format:no_whitespace", {"N": 1}),
        ("sentence:keyword", {"word": "", "N": 1}),
        ("sentence:keyword", {"word": "x", "N": 0.5}),
        ("format:unknown", {}),
    ],
)
def test_arguments_with_which_no_text_follows_a_rule(name, arguments):
    assert check_all("published", [(name, arguments)], "x") == ([False], [False])


@pytest.mark.parametrize(
    ("text", "loose"),
    [
        ("*a*", True),
        ("x y\na", True),
        ("a\nx y", True),
        ("x y\na\nz z", True),
        ("x *y*\n*a*\nz", True),
        ("x y\n\n", False),
        ("a b", False),
        ("x y\n \n* *", False),
    ],
)
def test_the_loose_verdict_is_the_best_of_the_variants(text, loose):
    rules = [("repeat:repeat_span", {"prompt_to_repeat": "a", "n_start": 0, "n_end": 1})]
    assert check_all("published", rules, text) == ([False], [loose])


SPANNED = {"prompt_to_repeat": "red lamp on the old stone quay", "n_start": 2, "n_end": 4}
AFRICA = "\n".join(["Zimbabwe", *(f"Land {number}" for number in range(99, 48, -1))])
ANIMALS = {"keyword1": "ant", "keyword2": "owl", "keyword3": "bee", "keyword4": "fox", "keyword5": "eel"}
REST = " owl owl bee bee bee fox fox fox fox fox" + " eel" * 7

MEANT: list[tuple[str, Any, list[str], list[str]]] = [
    ("repeat:repeat_span", SPANNED, ["on the old", "On the OLD"], ["on the", "on the old stone"]),
    ("repeat:repeat_span", SPANNED | {"n_end": -1}, ["on the old stone quay"], ["on the old stone"]),
    (
        "words:words_position",
        {"keyword": "sea"},
        ["A sea, and the sea goes!", "the sea it."],
        ["the sea is the sea.", "sea"],
    ),
    ("words:words_position", {"keyword": "sea's"}, ["The sea's edge, the sea's end."], ["The sea, the sea's end."]),
    (
        "words:keywords_specific_position",
        {"keyword": "boat", "n": 1, "m": 4},
        ["Yes, the red boat left.", "\u201cYes\u201d \u2013 the red boat."],
        ["Yes, the boat left now."],
    ),
    (
        "words:words_position",
        {"keyword": "Sea"},
        ["The SEA, the sea shines!", '"The sea" is our sea - yes.'],
        ["The seas, the sea shines."],
    ),
    ("words:keywords_specific_position", {"keyword": "sea", "n": 2, "m": 2}, ["So. The Sea!"], ["So. The seas."]),
    ("ratio:sentence_type", {}, ['Sea. "Sky." **Who?**', "(Sea.) Sky. \u201cWho?\u201d"], ["Sea. Sky. So!"]),
    ("ratio:sentence_balance", {}, ['Sea. "Who?" (So!)'], ['Sea. "Who?" So.']),
    ("count:conjunctions", {"small_n": 2}, ["And so,", "for, *but*"], ["and And and,", "or or."]),
    ("count:unique_word_count", {"N": 3}, ["a b c", "a - b, c"], ["a b -", "a ... b !"]),
    (
        "count:pronouns",
        {"N": 2},
        ["They're who?", "Everyone knows this.", "It\u2019s mine.", "he/she"],
        ["The others", "whoso it", "it\u2019ll"],
    ),
    ("custom:reverse_newline", None, [AFRICA, "Here:\n\n" + AFRICA.replace("\n", "\n- ")], [COUNTRIES, AFRICA[:-9]]),
    (
        "custom:sentence_alphabet",
        None,
        [ALPHABET, '"' + ALPHABET.replace("bx is.", '"bx is."'), ALPHABET.replace("cx", "**cx**")],
        [ALPHABET.replace("cx", "dx"), ALPHABET[:-7]],
    ),
    ("format:line_indent", {}, ["a\n b\n  c", "a\n\n b", "a\n\n\n b\n\n\n\n  c"], ["a\n\nb", "a\n  b\n\n c"]),
    ("format:newline", {}, ["a\nb.", "a\n \nb", "- \na"], ["a b\n \nc", "a b", "..."]),
    (
        "format:no_bullets_bullets",
        {},
        ["Sea. Sky.\n* a\n* b", "Sea.\n\nSky.\n\n* a\n\n* b\n", "**Sea.** So.\n* a\n* b\nDone."],
        ["Sea. Sky.\n**a**\n**b**", "Sea! Sky?\n* a\n* b", "Sea.\n* a\n* b", "* a\n* b\nSea. Sky."],
    ),
    (
        "format:title_case",
        {},
        ["The Sea of Light", "Don't Go", "Well-Known NASA Facts", "The iPhone", "I Am a Cat"],
        ["the Sea", "The sea", "a Sea", "The cat's Sea", "tHE Sea", "..."],
    ),
    ("repeat:repeat_change", {"prompt_to_repeat": "the sea is"}, ["a sea is", "A  sea is"], [" the sea is", "a sea"]),
    ("ratio:sentence_type", {}, ["Sea. Sky. Who?"], ["Good morning!", "What a day! Hurrah!", "none", "Sea."]),
    ("ratio:sentence_balance", {}, ["Sea. Who? So!"], ["no end", "Sea. Who?"]),
    (
        "ratio:sentence_words",
        {},
        ["Dog. Cat. Owl.", "It sang. We rest. Go home."],
        ["Dog. Dog. Dog.", "The owl. The cat. The dog."],
    ),
    (
        "format:sub-bullets",
        {},
        ["**Plan**\n* a\n  - b\n* c\n - d\n - e"],
        ["* well-known", "none", "* a\n* b\n - c", "- a", "* a\n - b\n* c"],
    ),
    ("count:keywords_multiple", ANIMALS, ["An ant," + REST, "ANT." + REST], ["giant" + REST, "ant ants ant" + REST]),
    ("count:person_names", {"N": 2}, ["Leo met Grace.", "Leo's Grace"], ["Leopards near Graceland.", "Leo Leo"]),
    ("sentence:keyword", {"word": "ear", "N": 1}, ["My ear! It rests.", "EAR."], ["We learn. An ear."]),
    ("format:quote_unquote", {}, ['"Sea" is water.', "\u201cSea\u201d is water."], ["No quotation.", 'It is "sea"']),
    ("format:line_indent", {}, ["a\n b"], ["a", "a\n\n"]),
    ("sentence:increment", {"small_n": 1}, ["Go. Go on."], ["Go.", "Go. On."]),
    ("sentence:alliteration_increment", {}, ["Cats sit. Big bears run."], ["Cats sit.", "Big bears. Big boats."]),
    ("words:last_first", {}, ["I ran. Ran we?"], ["I ran.", "I ran. We ran."]),
]


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), MEANT, ids=lambda value: str(value)[:40])
def test_rules_are_checked_by_what_they_say(name, arguments, good, bad):
    assert [text for text in good if check_all("as meant", [(name, arguments)], text)[0] != [True]] == []
    assert [text for text in bad if check_all("as meant", [(name, arguments)], text)[0] != [False]] == []
