"""Captured model calls become chains that can be trained on, or are kept out of training."""

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.data.records import NotTrainable
from gymq.ext.gateway.chains import Chains, build_chains, project_response
from gymq.responses import InvalidRequest
from tests.responses.builders import captured

FIRST = captured("a", [1, 2], [3, 4])
SECOND = captured("b", [1, 2, 3, 4, 9], [5], created_at=2)


def chain_ids(built: Chains) -> dict[str, list[str]]:
    return {chain.chain_id: [link.call.model_call_id for link in chain.links] for chain in built.chains}


def response(*entries: dict[str, Any], builder: str = "prefix_merging") -> dict[str, Any]:
    return project_response(build_chains(entries, builder), model="m")


def test_nothing_captured_gives_no_chain_and_zero_notes() -> None:
    built = build_chains([])

    assert (built.chains, built.quarantined) == ([], [])
    assert built.notes == {
        "builder": "prefix_merging",
        "roots": 0,
        "chains": 0,
        "generated_tokens_captured": 0,
        "generated_tokens_delivered": 0,
        "delivered_fraction": 0.0,
        "unresolved_retries": [],
        "empty_generation_calls": [],
    }


def test_calls_without_generated_tokens_are_set_aside() -> None:
    built = build_chains([captured("z", [1], []), FIRST, captured("e", [1, 2], [])])

    assert chain_ids(built) == {"main": ["a"]}
    assert built.notes["empty_generation_calls"] == ["e", "z"]


def test_the_whole_prompt_can_be_the_parents_sequence() -> None:
    built = build_chains([FIRST, captured("b", [1, 2, 3, 4], [5])])

    assert [list(link.interstitial) for link in built.chains[0].links] == [[], []]
    assert chain_ids(built) == {"main": ["a", "b"]}


def test_the_longest_prefix_is_the_parent() -> None:
    built = build_chains([FIRST, SECOND, captured("c", [1, 2, 3, 4, 9, 5, 6], [7])])

    assert chain_ids(built) == {"main": ["a", "b", "c"]}


def test_a_prompt_inside_of_a_generation_is_no_continuation() -> None:
    assert build_chains([FIRST, captured("b", [1, 2, 3], [9])]).notes["roots"] == 2


def test_the_same_sequence_split_elsewhere_makes_the_parent_uncertain() -> None:
    built = build_chains([captured("a", [1], [2, 3]), captured("b", [1, 2], [3]), captured("c", [1, 2, 3, 4], [5])])

    assert built.quarantined == ["c"]
    assert chain_ids(built) == {"main": ["b"]}


def test_a_path_through_a_quarantined_call_is_dropped() -> None:
    twins = [captured("a1", [1], [2]), captured("a2", [1], [2])]
    built = build_chains([*twins, captured("b", [1, 2, 9], [4]), captured("c", [1, 2, 9, 4], [5])])

    assert chain_ids(built) == {}


def test_a_retry_of_uncertain_origin_stays_quarantined() -> None:
    twins = [captured("a1", [1], [2]), captured("a2", [1], [2])]
    built = build_chains([*twins, captured("b1", [1, 2, 9], [4]), captured("b2", [1, 2, 9], [5])])

    assert built.quarantined == ["a2", "b1", "b2"]
    assert chain_ids(built) == {}


def test_a_retry_that_nobody_continued_is_undecided_and_the_smallest_id_kept() -> None:
    built = build_chains([FIRST, captured("b2", [1, 2, 3, 4, 9], [6]), captured("b1", [1, 2, 3, 4, 9], [5])])

    assert built.quarantined == ["b2"]
    assert built.notes["unresolved_retries"] == ["b1", "b2"]
    assert chain_ids(built) == {"main": ["a", "b1"]}


def test_retries_that_were_both_continued_are_both_kept() -> None:
    built = build_chains(
        [captured("a1", [1], [2]), captured("a2", [1], [3]), captured("b1", [1, 2], [4]), captured("b2", [1, 3], [5])]
    )

    assert built.quarantined == []
    assert chain_ids(built) == {"main": ["a1", "b1"], "branch-0": ["a2", "b2"]}


def test_calls_of_different_parents_are_no_retries() -> None:
    built = build_chains([captured("a", [1], [2]), captured("b", [5], [6]), captured("c", [1, 2, 7], [3])])

    assert built.notes["unresolved_retries"] == []


def test_the_main_chain_starts_earliest() -> None:
    built = build_chains([captured("a", [1], [2], created_at=5), captured("z", [7, 7], [3], created_at=1)])

    assert chain_ids(built) == {"main": ["z"], "branch-0": ["a"]}


def test_roots_of_the_same_time_are_ordered_by_id() -> None:
    built = build_chains([captured("b", [1], [2]), captured("a", [7, 7], [3])])

    assert chain_ids(built) == {"main": ["a"], "branch-0": ["b"]}


def test_the_fraction_delivered_has_four_digits() -> None:
    built = build_chains([captured("a", [1], [2]), captured("b", [5, 6], [7, 8], created_at=9)])

    assert built.notes["delivered_fraction"] == 0.3333


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"generation_log_probs": [-0.5]}, "entries[1].generation_log_probs"),
        ({"token_item_index": 0}, "entries[1].token_item_index"),
        ({"token_item_index": -1, "output_items": [{"type": "message"}]}, "entries[1].token_item_index"),
        ({"schema_version": 2}, "entries[1].schema_version"),
        ({"model_call_id": None}, "entries[1].model_call_id"),
        ({"prompt_token_ids": None}, "entries[1].prompt_token_ids"),
        ({"prompt_token_ids": ["x"]}, "entries[1].prompt_token_ids[0]"),
        ({"created_at": "soon"}, "entries[1].created_at"),
        ({"rollout_id": "r1"}, "entries"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        build_chains([FIRST, {**captured("b", [1], [2, 3]), **change}])

    assert caught.value.path == path


def test_a_token_id_beyond_32_bits_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="32 bits"):
        build_chains([captured("a", [1 << 31], [1])])


def test_an_unknown_builder_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not a builder"):
        build_chains([FIRST], "guess")


def test_one_chain_for_each_request_if_asked() -> None:
    built = build_chains([SECOND, captured("e", [1], []), FIRST], "per_request")

    assert chain_ids(built) == {"req-0": ["e"], "req-1": ["a"], "req-2": ["b"]}
    assert built.notes == {"builder": "per_request", "chains": 3}


def test_one_request_alone_can_be_delivered() -> None:
    assert response(FIRST, builder="per_request")["usage"] == {"input_tokens": 2, "output_tokens": 2}


@pytest.mark.parametrize(
    ("entries", "builder"),
    [
        ([], "prefix_merging"),
        ([], "per_request"),
        ([captured("a", [1], [])], "prefix_merging"),
        ([captured("a", [1], [])], "per_request"),
        ([FIRST, SECOND], "per_request"),
    ],
)
def test_without_one_safe_chain_there_is_no_response(entries: list[dict[str, Any]], builder: str) -> None:
    with pytest.raises(NotTrainable):
        response(*entries, builder=builder)


def test_tokens_go_on_the_item_that_the_capture_names() -> None:
    items = [{"type": "reasoning", "summary": []}, {"type": "message"}]

    first, second = response({**FIRST, "output_items": items, "token_item_index": 0})["output"]

    assert first["generation_token_ids"] == [3, 4]
    assert second == {"type": "message"}


def test_tokens_go_on_every_item_that_had_some() -> None:
    held = {"type": "function_call", "generation_token_ids": [0]}

    made = response({**FIRST, "output_items": [held, {"type": "message"}, held]})["output"]

    assert [item.get("generation_token_ids") for item in made] == [[3, 4], None, [3, 4]]


def test_tokens_go_on_the_last_item_otherwise() -> None:
    made = response({**FIRST, "output_items": [{"type": "reasoning"}, {"type": "message"}]})["output"]

    assert ["prompt_token_ids" in item for item in made] == [False, True]


def test_routing_goes_with_the_tokens() -> None:
    [item] = response({**FIRST, "routed_experts": "nrlre1:..."})["output"]

    assert item["routed_experts"] == "nrlre1:..."


def test_the_captured_items_are_not_changed() -> None:
    items = [{"type": "message"}]

    response({**FIRST, "output_items": items})

    assert items == [{"type": "message"}]


def test_packed_arrays_stay_packed() -> None:
    packed = {name: array("i", FIRST[name]) for name in ("prompt_token_ids", "generation_token_ids")}

    built = build_chains([{**FIRST, **packed, "generation_log_probs": array("f", [-0.5, -0.5])}, SECOND])

    [first, _] = project_response(built, model="m")["output"]
    assert first["prompt_token_ids"] is packed["prompt_token_ids"]
    assert chain_ids(built) == {"main": ["a", "b"]}


@pytest.mark.parametrize(
    ("entries", "complete", "masked"),
    [
        ([FIRST, SECOND], True, False),
        ([FIRST, SECOND], False, True),
        ([], True, True),
        ([FIRST, captured("z", [7], [8])], True, True),
        ([FIRST, SECOND, captured("c", [1, 2, 3, 4, 8], [5])], True, True),
        ([FIRST, captured("a2", [1, 2], [5])], True, True),
        ([FIRST, captured("a2", [1, 2], [5]), SECOND], True, True),
    ],
)
def test_only_a_complete_and_unambiguous_capture_trains(entries: list[Any], complete: bool, masked: bool) -> None:
    assert build_chains(entries).mask_sample(capture_complete=complete) is masked


def test_a_settled_retry_in_the_middle_does_not_mask() -> None:
    retried = [captured("b1", [1, 2, 3, 4, 9], [6]), SECOND, captured("c", [1, 2, 3, 4, 9, 5, 1], [2])]

    assert not build_chains([FIRST, *retried]).mask_sample(capture_complete=True)


@st.composite
def captures(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Calls that start afresh or continue, branch off and repeat earlier ones, in any order."""
    entries: list[dict[str, Any]] = []
    token = st.integers(0, 2)
    for number in range(draw(st.integers(1, 7))):
        before: list[int] = []
        if len(entries) > 0 and draw(st.booleans()):
            parent = draw(st.sampled_from(entries))
            before = parent["prompt_token_ids"] + parent["generation_token_ids"]
        prompt = before + draw(st.lists(token, max_size=2))
        entries.append(captured(f"c{number}", prompt, draw(st.lists(token, max_size=2)), draw(st.integers(0, 2))))
    return draw(st.permutations(entries))


@given(captures(), st.randoms())
def test_the_order_of_capture_does_not_matter(entries: list[dict[str, Any]], random: Any) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)

    assert build_chains(shuffled) == build_chains(entries)


@given(captures())
def test_what_is_delivered_is_prefix_valid_and_nothing_is_counted_twice(entries: list[dict[str, Any]]) -> None:
    built = build_chains(entries)

    for chain in built.chains:
        seen: list[int] = []
        for position, link in enumerate(chain.links):
            prompt = list(link.call.prompt_token_ids)
            assert prompt == (seen + list(link.interstitial) if position else list(chain.root_prompt))
            seen = prompt + list(link.call.generation_token_ids)
    assert 0 <= built.notes["delivered_fraction"] <= 1
    in_chains = {link.call.model_call_id for chain in built.chains for link in chain.links}
    assert in_chains.isdisjoint(built.quarantined)


@given(captures())
def test_the_parent_is_the_longest_prefix(entries: list[dict[str, Any]]) -> None:
    sequences = [
        entry["prompt_token_ids"] + entry["generation_token_ids"] for entry in entries if entry["generation_token_ids"]
    ]

    for chain in build_chains(entries).chains:
        for before, link in zip(chain.links, chain.links[1:], strict=False):
            prompt = list(link.call.prompt_token_ids)
            longest = max(len(sequence) for sequence in sequences if prompt[: len(sequence)] == sequence)
            assert len(before.call.prompt_token_ids) + len(before.call.generation_token_ids) == longest
