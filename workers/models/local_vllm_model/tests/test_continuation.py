"""A later prompt begins with the tokens of the earlier turns, or is the template's if that would be wrong.

Tokens of the tests are characters: `.` ends a turn.
"""

from __future__ import annotations

from typing import Any

from gymq.workers.models.local_vllm_model.continuation import (
    MAX_SHAPES,
    Shapes,
    continued_prompt,
    prompt_after,
    shortened,
)

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


def after(reply: dict[str, Any], rendered: str, so_far: str) -> list[int] | None:
    return prompt_after(reply, tokens(rendered), tokens(so_far), ends_of_turn={END})


def test_a_reply_is_continued_by_what_the_template_says_after_it():
    reply = sampled(tokens("U:hi.A:"), [1, ord("c"), END])
    assert after(reply, "U:-.A:abc.U:more.A:", "U:-.A:abc.") == [
        *tokens("U:hi.A:"),
        1,
        *tokens("c."),
        *tokens("U:more.A:"),
    ]


def test_a_reply_that_was_cut_off_is_ended_first():
    reply = sampled(tokens("U:hi.A:"), tokens("ab"))
    assert after(reply, "U:-.A:ab.U:more.A:", "U:-.A:ab.") == tokens("U:hi.A:ab.U:more.A:")


def test_a_reply_with_the_end_of_a_turn_in_its_middle_is_continued_at_its_end():
    reply = sampled(tokens("U:hi.A:"), tokens("a.b."))
    assert after(reply, "U:-.A:a.b.U:more.A:", "U:-.A:a.b.") == tokens("U:hi.A:a.b.U:more.A:")


def test_a_template_that_does_not_end_turns_continues_nothing():
    assert after(sampled(tokens("U:hi A:"), tokens("ab")), "U:- A:ab U:more A:", "U:- A:ab") is None


def test_a_conversation_is_shortened_to_its_head_and_what_is_new():
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "One?"}
    reply, tool = {"role": "assistant", "content": "Two."}, {"role": "tool", "content": "3", "tool_call_id": "c"}
    shape, short, position = shortened([system, user, reply, user, reply, tool], 4)
    assert [(message["role"], message["content"]) for message in short] == [
        ("system", "-"),
        ("user", "-"),
        ("assistant", "Two."),
        ("tool", "3"),
    ]
    assert short[position] is reply
    assert shape == shortened([system, user, reply, tool], 2)[0]


def test_conversations_have_another_shape_where_a_template_may_differ():
    user, reply = {"role": "user", "content": "One?"}, {"role": "assistant", "content": "Two."}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    many: list[list[dict[str, Any]]] = [
        [user, reply, user],
        [{"role": "system", "content": "Be brief."}, user, reply, user],
        [user, call, user],
        [user, reply, user, user],
        [user, reply, {**user, "name": "Ann"}],
        [user, reply, {**user, "content": [{"type": "text", "text": "One?"}]}],
    ]
    assert len({shortened(one, 2 if one[0]["role"] == "system" else 1)[0] for one in many}) == len(many)


def test_so_many_shapes_are_remembered():
    shapes = Shapes()
    for number in range(MAX_SHAPES + 1):
        shapes.put(number, number % 2 == 0)
    assert (shapes.get(0), shapes.get(MAX_SHAPES)) == (None, True)
