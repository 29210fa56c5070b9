"""A call of a conversation brings a worker what is new in it, and all of it where the worker does not keep the rest."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

import gymq
from gymq.bus import Bus, Msg
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.routing import RoutedCalls, Routes
from gymq.bus.rpc.serving import Server
from gymq.execution.conversations import Conversations
from gymq.execution.model_runner import ModelRunner
from gymq.failures import RolloutError
from gymq.model import ModelRequest
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.conversation import ConversationItems
from gymq.protocol.messages import FailureClass, Generate, Generated, GenerateNext, NeedsPrefix
from gymq.protocol.tokens import ContinuedPrompt, TokenChain, link, tokens_of
from gymq.testing import reply
from tests.support.waiting import DEADLINE_S

SESSION = "r/0/0/0"

decode = Decoder(Generate, GenerateNext)


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Listener(gymq.Model):
    """Answers with the number of items that it was given, and keeps them. An item has three tokens."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.inputs: list[list[dict[str, Any]]] = []
        self.remembered: list[Any] = []
        self.with_tokens = False
        self.replies: list[dict[str, Any]] = []

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        items = list(request.params["input"])
        self.inputs.append(items)
        self.remembered.append(request.memory.before)
        request.memory.kept = len(items)
        if self.replies:
            return self.replies.pop(0)
        response = reply(str(len(items)))
        if self.with_tokens:
            response["output"][-1] |= {
                "prompt_token_ids": prompt_of(items),
                "generation_token_ids": generation(len(items)),
                "generation_log_probs": [-0.5, -0.25, -1.0],
            }
        return response


def prompt_of(items: Sequence[Mapping[str, Any]]) -> list[int]:
    """The tokens of a conversation."""
    return [
        token
        for position, item in enumerate(items)
        for token in (generation(position) if item["role"] == "assistant" else [position, len(item["content"]), 7])
    ]


def generation(position: int) -> list[int]:
    return [position, 50, 51]


class Cluster:
    """One replica, an agent's way to it, and what was sent there."""

    def __init__(self, url: str, bus: Bus, name: str) -> None:
        self.url = url
        self.bus = bus
        self.name = name
        self.calls = RoutedCalls(Calls(bus), Routes(bus))
        self.sent: list[Generate | GenerateNext] = []
        self.model = Listener(name)
        self.tools: list[dict[str, Any]] = [{"type": "function", "name": "look", "parameters": None, "strict": None}]
        self.workers: list[tuple[Bus, Server, ModelRunner]] = []

    async def start(self, worker: str) -> None:
        bus = await Bus.connect(self.url, role="test", name=worker)
        server = Server(bus, worker)
        await server.start()
        runner = ModelRunner(self.model)
        await runner.serve(server)
        await bus.flush()
        self.workers.append((bus, server, runner))

    async def listen(self) -> None:
        async def on_call(message: Msg) -> None:
            self.sent.append(decode(message.data))

        for subject in (subjects.MODEL.of(self.name), f"{subjects.MODEL.of(self.name)}.*"):
            await self.bus.subscribe(subject, on_call)
        await self.bus.flush()

    async def stop(self) -> None:
        while self.workers:
            bus, server, runner = self.workers.pop()
            await runner.stop()
            await server.drain(0.0)
            await bus.close()

    async def ask(self, items: ConversationItems, session: str = SESSION) -> Generated:
        params = {"input": items, "tools": self.tools}
        request = Generate(rollout="r/0/0", timeout_s=DEADLINE_S, params=params, session=session)
        async with asyncio.timeout(DEADLINE_S):
            generated = await self.calls.call(subjects.MODEL.of(self.name), request)
        assert isinstance(generated, Generated)
        return generated

    async def turn(self, items: ConversationItems, text: str) -> None:
        items.append(said(text))
        output = (await self.ask(items)).response["output"]
        link(output, items)  # as an agent does
        items += output

    def num_sent(self) -> list[int]:
        """The number of items that each call brought."""
        return [len(call.items) for call in self.sent if isinstance(call, GenerateNext)]


@pytest.fixture
async def cluster(shared_url: str, bus: Bus, run: str) -> AsyncIterator[Cluster]:
    made = Cluster(shared_url, bus, run)
    await made.start(f"{run}-a")
    await made.listen()
    yield made
    await made.stop()


async def test_a_call_brings_what_is_new_and_the_model_sees_everything(cluster: Cluster) -> None:
    items = ConversationItems()
    for number in range(4):
        await cluster.turn(items, f"turn {number}")
    assert cluster.num_sent() == [1, 1, 1, 1]
    assert cluster.model.inputs == [items[:1], items[:3], items[:5], items[:7]]


async def test_a_model_gets_back_what_it_kept_of_the_call_before(cluster: Cluster) -> None:
    items = ConversationItems()
    for number in range(3):
        await cluster.turn(items, f"turn {number}")
    assert cluster.model.remembered == [None, 1, 3]


async def test_a_model_remembers_nothing_of_a_conversation_that_was_edited(cluster: Cluster) -> None:
    items = ConversationItems()
    await cluster.turn(items, "one")
    items[0] = said("another")
    await cluster.turn(items, "two")
    await cluster.turn(items, "three")
    assert cluster.model.remembered == [None, None, 3]


async def test_a_conversation_without_tools_is_kept_from_its_second_call(cluster: Cluster) -> None:
    cluster.tools = []
    items = ConversationItems()
    for number in range(4):
        await cluster.turn(items, f"turn {number}")
    assert cluster.num_sent() == [1, 3, 1, 1]
    assert cluster.model.inputs[-1] == items[:-1]


async def test_a_model_may_give_the_same_reply_to_several_conversations(cluster: Cluster) -> None:
    same = reply("the same")
    tokens = {"generation_token_ids": [5], "generation_log_probs": [-0.5]}
    same["output"][0] |= {"prompt_token_ids": [1, 2], **tokens}
    follows = reply("the same again")
    follows["output"][0] |= {"prompt_token_ids": [1, 2, 5, 6], **tokens}
    cluster.model.replies = [same, follows] * 2
    for session in ("one", "other"):
        items = ConversationItems([said("?")])
        items += (await cluster.ask(items, session)).response["output"]
        items += [said("and?")]
        output = (await cluster.ask(items, session)).response["output"]
        link(output, items)
        assert output[0]["prompt_token_ids"].tolist() == [1, 2, 5, 6]
    assert isinstance(follows["output"][0]["prompt_token_ids"], array)


async def test_another_worker_gets_everything_once(cluster: Cluster, run: str) -> None:
    items = ConversationItems()
    await cluster.turn(items, "one")
    await cluster.turn(items, "two")
    await cluster.stop()
    await cluster.start(f"{run}-b")
    await cluster.turn(items, "three")
    await cluster.turn(items, "four")
    assert cluster.num_sent() == [1, 1, 1, 5, 1]
    assert cluster.model.inputs[-1] == items[:-1]


async def test_an_edited_history_is_sent_whole(cluster: Cluster) -> None:
    items = ConversationItems()
    await cluster.turn(items, "one")
    await cluster.turn(items, "two")
    items[1] = said("what was said there was too long")
    await cluster.turn(items, "three")
    del items[2:4]
    await cluster.turn(items, "four")
    assert cluster.num_sent() == [1, 1, 5, 5]
    assert cluster.model.inputs[-1] == items[:-1]


async def test_a_lost_reply_costs_nothing(cluster: Cluster) -> None:
    items = ConversationItems()
    await cluster.turn(items, "one")
    held = items.held
    items.append(said("two"))
    lost = await cluster.ask(items)
    items.held = held
    again = await cluster.ask(items)
    items += again.response["output"]
    await cluster.turn(items, "three")
    assert lost.response["output"] == again.response["output"]
    assert cluster.num_sent() == [1, 1, 1, 1]
    assert cluster.model.inputs[-1] == items[:-1]


async def test_nobody_continues_the_conversation_of_another_session(cluster: Cluster) -> None:
    items = ConversationItems()
    await cluster.turn(items, "a secret")
    assert items.held is not None
    params: dict[str, Any] = {"rollout": "s/0/0", "timeout_s": DEADLINE_S, "params": {}, "items": [said("go on")]}
    theirs = GenerateNext(**params, session="s/0/0/0", after=items.held.state, num_items=2)
    guessed = GenerateNext(**params, session=SESSION, after="0" * 32, num_items=2)
    calls = Calls(cluster.bus)
    for request in (theirs, guessed):
        assert isinstance(await calls.call(subjects.MODEL.of(cluster.name), request), NeedsPrefix)
    shorter = GenerateNext(**params, session=SESSION, after=items.held.state, num_items=1)
    with pytest.raises(RolloutError, match="the conversation has 2 items before this call, not 1") as error:
        await calls.call(subjects.MODEL.of(cluster.name), shorter)
    assert error.value.failure_class is FailureClass.BAD_REQUEST
    assert len(cluster.model.inputs) == 1


async def test_full_input_by_hand_is_answered_as_before(cluster: Cluster) -> None:
    request = Generate(rollout="r/0/0", timeout_s=DEADLINE_S, params={"input": [said("hello")]}, session="by hand")
    generated = await Calls(cluster.bus).call(subjects.MODEL.of(cluster.name), request)
    assert isinstance(generated, Generated)
    assert generated.state is None


async def test_a_turn_carries_its_new_tokens_and_the_prompt_is_whole_where_it_is_read(cluster: Cluster) -> None:
    cluster.model.with_tokens = True
    items = ConversationItems()
    for number in range(4):
        await cluster.turn(items, f"turn {number}")
    replies = [item for item in items if item["role"] == "assistant"]
    assert [type(item["prompt_token_ids"]) for item in replies] == [array, *[ContinuedPrompt] * 3]
    assert [list(item["prompt_token_ids"].suffix) for item in replies[1:]] == [[2, 6, 7], [4, 6, 7], [6, 6, 7]]
    prompts = [prompt_of(items[:position]) for position in (1, 3, 5, 7)]
    assert [item["prompt_token_ids"].tolist() for item in replies] == prompts


async def test_an_edited_history_shares_what_it_has_in_common(cluster: Cluster) -> None:
    cluster.model.with_tokens = True
    items = ConversationItems()
    await cluster.turn(items, "one")
    await cluster.turn(items, "two")
    items[0] = said("another beginning")
    await cluster.turn(items, "three")
    await cluster.turn(items, "four")
    _, two, three, four = [
        tokens_of(item) or pytest.fail("without tokens") for item in items if item["role"] == "assistant"
    ]
    assert isinstance(three.prompt, ContinuedPrompt)
    assert isinstance(four.prompt, ContinuedPrompt)
    assert three.prompt.follows(two)
    assert not three.prompt.continues(two)
    assert four.prompt.continues(three)
    assert items[-1]["prompt_token_ids"].tolist() == prompt_of(items[:7])


async def test_tokens_are_the_same_when_the_worker_had_to_be_sent_everything(cluster: Cluster, run: str) -> None:
    cluster.model.with_tokens = True
    items = ConversationItems()
    await cluster.turn(items, "one")
    await cluster.turn(items, "two")
    await cluster.stop()
    await cluster.start(f"{run}-b")
    await cluster.turn(items, "three")
    assert list(items[-1]["prompt_token_ids"].suffix) == [4, 5, 7]
    assert items[-1]["prompt_token_ids"].tolist() == prompt_of(items[:-1])


def test_the_least_recently_used_conversation_is_forgotten_first() -> None:
    kept = Conversations(max_bytes=8_000)
    large = [said("x" * 1_000)]
    names = {session: kept.keep(session, None, large, TokenChain(None)) for session in "abcd"}
    first = names["a"]
    assert first is not None
    again = kept.keep("a", kept.find("a", first, 1), large, TokenChain(None))
    assert again is not None
    for session in "efg":
        kept.keep(session, None, large, TokenChain(None))
    assert kept.find("a", again, 2) is not None
    assert kept.find("b", names["b"] or "", 1) is None
    assert kept.num_bytes <= 8_000


def test_a_conversation_that_is_too_large_is_not_kept() -> None:
    kept = Conversations(max_bytes=1_000)
    assert kept.keep("a", None, [said("x" * 2_000)], TokenChain(None)) is None
    assert (len(kept), kept.num_bytes) == (0, 0)
