"""A later prompt begins with the tokens of the earlier turns, or is the template's if that would be wrong.

Tokens of the tests are characters: `.` ends a turn, and so does `;`.
"""

from __future__ import annotations

from typing import Any

import pytest
from gymq.workers.models.vllm_model.continuation import (
    MAX_SHAPES,
    ReplyEnd,
    Shapes,
    ends_itself,
    is_unchanged,
    last_sampled,
    num_ends,
    shortened,
    silent,
    tokens_after,
)

END, SEMICOLON = ord("."), ord(";")


def tokens(text: str) -> list[int]:
    return [ord(character) for character in text]


def decode(ids: Any) -> str:
    # Two tokens that mean one text, as a tokenizer knows several ways to write one.
    return "".join("ab" if token == 1 else chr(token) for token in ids)


def sampled(prompt: list[int], generated: list[int]) -> dict[str, Any]:
    return {"role": "assistant", "prompt_token_ids": prompt, "generation_token_ids": generated}


def prompt_of(messages: list[dict[str, Any]], before: str, rendered: str, *, is_own: bool = True) -> list[int] | None:
    last = last_sampled(messages)
    assert last is not None
    if not is_unchanged(messages, tokens(before), tokens(rendered), ends_of_turn={END, SEMICOLON}, decode=decode):
        return None
    end = ReplyEnd(num_ends(tokens(before), {END, SEMICOLON}), is_own)
    new = tokens_after(messages[last], tokens(rendered), end, {END, SEMICOLON})
    reply = messages[last]
    return None if new is None else [*reply["prompt_token_ids"], *reply["generation_token_ids"], *new]


USER = {"role": "user"}


def test_without_sampled_turns_there_is_nothing_to_continue():
    assert last_sampled([USER]) is None


def test_what_was_sampled_stays_as_it_was_sampled():
    reply = sampled(tokens("U:hi.A:"), [1, ord("c"), END])  # one token for "ab"
    assert prompt_of([USER, reply, USER], "U:hi.A:", "U:hi.A:-.U:go.A:") == [
        *tokens("U:hi.A:"),
        1,
        *tokens("c.U:go.A:"),
    ]


def test_a_reply_that_was_cut_off_is_closed_as_the_template_closes_it():
    reply = sampled(tokens("U:hi.A:"), [1])
    assert prompt_of([USER, reply, USER], "U:hi.A:", "U:hi.A:-.U:go.A:") == [
        *tokens("U:hi.A:"),
        1,
        *tokens(".U:go.A:"),
    ]


def test_a_reply_that_ended_with_another_token_needs_no_second_end():
    reply = sampled(tokens("U:hi.A:"), tokens("yes;"))
    assert prompt_of([USER, reply, USER], "U:hi.A:", "U:hi.A:-.U:go.A:") == tokens("U:hi.A:yes;U:go.A:")


@pytest.mark.parametrize(("said", "whole"), [("yes.", "yes.go;"), ("yes;", "yes;.go;"), ("yes", "yes.go;")])
def test_the_role_of_the_next_message_that_ends_a_reply_is_there_once(said: str, whole: str):
    reply = sampled(tokens(".hi;"), tokens(said))  # `.` is the user, `;` the assistant
    assert prompt_of([USER, reply, USER], ".hi;", ".hi;-.go;", is_own=False) == tokens(f".hi;{whole}")


def test_a_template_that_drops_the_reasoning_of_earlier_turns_does_not_break_the_chain():
    first = sampled(tokens("U:hi.A:"), tokens("hm,yes."))
    second = sampled(tokens("U:hi.A:hm,yes.U:go.A:"), tokens("no."))
    got = prompt_of([USER, first, USER, second, USER], "U:hi.A:yes.U:go.A:", "U:hi.A:yes.U:go.A:-.U:so.A:")
    assert got == tokens("U:hi.A:hm,yes.U:go.A:no.U:so.A:")


def test_an_edited_history_is_rendered_again():
    reply = sampled(tokens("U:hi.A:"), tokens("yes."))
    assert prompt_of([USER, reply, USER], "U:HI.A:", "U:HI.A:-.U:go.A:") is None


def test_an_edited_history_without_ends_is_rendered_again():
    reply = sampled(tokens("U:hi A:"), tokens("yes."))
    assert prompt_of([USER, reply, USER], "U:HI A:", "U:HI A:-.U:go A:") is None


def test_a_history_with_a_turn_left_out_is_rendered_again():
    reply = sampled(tokens("U:hi.T:x.A:"), tokens("yes."))
    assert prompt_of([USER, reply, USER], "U:hi.A:", "U:hi.A:-.U:go.A:") is None


def test_a_later_message_of_the_system_that_is_moved_to_the_front_is_not_lost():
    reply = sampled(tokens("S:be.U:hi.A:"), tokens("yes."))
    messages = [{"role": "developer"}, USER, reply, {"role": "system"}, USER]
    assert prompt_of(messages, "S:be.U:hi.A:", "S:be,so.U:hi.A:-.U:go.A:") is None
    stays = prompt_of(messages, "S:be.U:hi.A:", "S:be.U:hi.A:-.S:so.U:go.A:")
    assert stays == tokens("S:be.U:hi.A:yes.S:so.U:go.A:")
    messages[2] = sampled(tokens("be hi"), tokens("yes."))
    assert prompt_of(messages, "be hi", "be so hi-.go") is None


def test_a_template_that_ends_no_turns_is_trusted_with_the_whole_prompt():
    reply = sampled(tokens("U:hi A:"), tokens("yes"))
    assert prompt_of([USER, reply, USER], "U:hi A:", "U:hi A:- U:go A:") is None


def test_a_history_tokenized_differently_but_with_the_same_text_is_the_same():
    reply = sampled([*tokens("U:"), 1, *tokens(".A:")], tokens("yes."))
    assert prompt_of([USER, reply, USER], "U:ab.A:", "U:ab.A:-.U:go.A:") == [
        *tokens("U:"),
        1,
        *tokens(".A:yes.U:go.A:"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "followed", "found"),
    [
        ("U:-.A:", "U:-.A:-.A:", "U:-.A:-.U:-.A:", True),
        ("U:-.A:", "U:-.A:-.;A:", "U:-.A:-.U:-.A:", True),  # a conversation has an end of its own
        (".-;", ".-;-;", ".-;-.-;", True),
        (".-A", ".-A-A", ".-A-.-A", False),  # roles end turns
        (".-A", ".-A-A", ".-A-S-A", None),  # but not that of the system
        ("U:-.A:", "U:-.A:-A:", "U:-.A:-.U:-.A:", False),  # the last reply has no end
        ("U:- A:", "U:- A:- A:", "U:- A:- U:- A:", None),
        ("U:-.A:", "U:-.A:- A:", "U:-.A:- U:-.A:", None),
    ],
)
def test_how_a_template_ends_replies(before: str, after: str, followed: str, found: bool | None):
    assert ends_itself(tokens(before), tokens(after), tokens(followed), {END, SEMICOLON}) is found


def test_a_silent_reply_has_the_form_of_the_reply_without_its_reasoning():
    call = {"id": "c", "type": "function", "function": {"name": "write", "arguments": '{"text": "<end>"}'}}
    quiet = [{**call, "function": {"name": "write", "arguments": "{}"}}]
    reply = {"role": "assistant", "content": None, "reasoning": "<end>", "tool_calls": [call]}
    assert silent(reply) == {"role": "assistant", "content": None, "tool_calls": quiet}
    assert silent({**reply, "content": "<end>"}) == {"role": "assistant", "content": "-", "tool_calls": quiet}
    assert silent({"role": "assistant", "content": "", "reasoning": "<end>"}) == {"role": "assistant", "content": "-"}


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
        shapes.put(number, ReplyEnd(number, True) if number else None)
    assert (0 in shapes, shapes.get(MAX_SHAPES)) == (False, ReplyEnd(MAX_SHAPES, True))
