"""A later prompt begins with the tokens of the earlier turns, or is the template's if that would be wrong.

Tokens of the tests are characters: `.` ends a turn.
"""

from __future__ import annotations

from typing import Any

from gymq.workers.models.local_vllm_model.continuation import continued_prompt

END = ord(".")


def tokens(text: str) -> list[int]:
    return [ord(character) for character in text]


def decode(ids: Any) -> str:
    # Two tokens that mean one text, as a tokenizer knows several ways to write one.
    return "".join("ab" if token == 1 else chr(token) for token in ids)


def sampled(prompt: list[int], generated: list[int]) -> dict[str, Any]:
    return {"role": "assistant", "prompt_token_ids": prompt, "generation_token_ids": generated}


def prompt_of(messages: list[dict[str, Any]], rendered: str, so_far: str) -> list[int] | None:
    return continued_prompt(messages, tokens(rendered), tokens(so_far), ends_of_turn={END}, decode=decode)


USER = {"role": "user"}


def test_without_sampled_turns_the_template_decides():
    assert prompt_of([USER], "U:hi.A:", "U:hi.") is None


def test_what_was_sampled_stays_as_it_was_sampled():
    reply = sampled(tokens("U:hi.A:"), [1, ord("c"), END])  # one token for "ab"
    assert prompt_of([USER, reply, USER], "U:hi.A:abc.U:go.A:", "U:hi.A:abc.") == [
        *tokens("U:hi.A:"),
        1,
        *tokens("c.U:go.A:"),
    ]


def test_a_reply_that_was_cut_off_is_closed_as_the_template_closes_it():
    reply = sampled(tokens("U:hi.A:"), [1])
    assert prompt_of([USER, reply, USER], "U:hi.A:ab.U:go.A:", "U:hi.A:ab.") == [
        *tokens("U:hi.A:"),
        1,
        *tokens(".U:go.A:"),
    ]


def test_a_template_that_drops_the_reasoning_of_earlier_turns_does_not_break_the_chain():
    first = sampled(tokens("U:hi.A:"), tokens("hm,yes."))
    second = sampled(tokens("U:hi.A:hm,yes.U:go.A:"), tokens("no."))
    rendered = "U:hi.A:yes.U:go.A:no.U:so.A:"
    got = prompt_of([USER, first, USER, second, USER], rendered, "U:hi.A:yes.U:go.A:no.")
    assert got == tokens("U:hi.A:hm,yes.U:go.A:no.U:so.A:")


def test_an_edited_history_is_rendered_again():
    reply = sampled(tokens("U:hi.A:"), tokens("yes."))
    assert prompt_of([USER, reply, USER], "U:HI.A:yes.U:go.A:", "U:HI.A:yes.") is None


def test_a_history_with_a_turn_left_out_is_rendered_again():
    reply = sampled(tokens("U:hi.T:x.A:"), tokens("yes."))
    assert prompt_of([USER, reply, USER], "U:hi.A:yes.U:go.A:", "U:hi.A:yes.") is None


def test_a_template_that_ends_no_turns_is_trusted_with_the_whole_prompt():
    reply = sampled(tokens("U:hi A:"), tokens("yes"))
    assert prompt_of([USER, reply, USER], "U:hi A:yes U:go A:", "U:hi A:yes") is None


def test_a_history_tokenized_differently_but_with_the_same_text_is_the_same():
    reply = sampled([*tokens("U:"), 1, *tokens(".A:")], tokens("yes."))
    assert prompt_of([USER, reply, USER], "U:ab.A:yes.U:go.A:", "U:ab.A:yes.") == [
        *tokens("U:"),
        1,
        *tokens(".A:yes.U:go.A:"),
    ]
