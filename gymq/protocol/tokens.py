"""Token ids and log probs as packed arrays.

In memory they are `array.array`: 'i' for ids (int32), 'f' or 'd' for log probs; `gymq.protocol.packing` makes them.

The prompt of a later call of a conversation is a `ContinuedPrompt`: in memory and on the wire it takes the space of the
tokens that it does not share with the call before.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import msgspec

PROMPT_FIELD = "prompt_token_ids"
GENERATION_FIELD = "generation_token_ids"
ID_FIELDS = (PROMPT_FIELD, GENERATION_FIELD)
LOG_PROB_FIELD = "generation_log_probs"
TOKEN_FIELDS = (*ID_FIELDS, LOG_PROB_FIELD)
VERSIONS_FIELD = "generation_policy_versions"
"""The policy versions that sampled the generated tokens: `[version, number of tokens]` pairs in order. Optional."""
SAMPLING_FIELD = "generation_sampling"
"""What the generated tokens were sampled with: see `gymq.protocol.sampling`. Optional."""

_EXT_OF_TYPECODE = {"i": 1, "f": 2, "d": 3}
_TYPECODE_OF_EXT = {code: typecode for typecode, code in _EXT_OF_TYPECODE.items()}
_CONTINUED_EXT = 4
_LENGTH_BYTES = 8


class CallTokens(NamedTuple):
    """The tokens of a model call."""

    prompt: Sequence[int]
    generation: Sequence[int]


class ContinuedPrompt(Sequence[int]):
    """The prompt of a model call that begins with the first tokens of the call before it.

    Attributes:
        prefix_length: how many of them: all tokens of its prompt and its generation, or fewer where a chat template
            writes earlier turns differently.
        suffix: the tokens after them.
    """

    __slots__ = ("_before", "_source", "prefix_length", "suffix")

    def __init__(self, prefix_length: int, suffix: array[int], before: CallTokens | None = None) -> None:
        self.prefix_length = prefix_length
        self.suffix = suffix
        self._before: CallTokens | None = None
        self._source: CallTokens | None = None  # the earliest call that is known to begin with the shared tokens
        if before is not None:
            self.follow(before)

    def follow(self, before: CallTokens) -> None:
        """Set the call before this prompt.

        Raises:
            ValueError: it has fewer tokens than `prefix_length`.
        """
        num_tokens = _num_tokens(before)
        if not 0 <= self.prefix_length <= num_tokens:
            raise ValueError(f"continues {self.prefix_length} tokens, but there are {num_tokens} before")
        # Each step from source to source needs more tokens, so `full` takes few of them, however many calls there are.
        source = before
        while isinstance(prompt := source.prompt, ContinuedPrompt) and self.prefix_length <= prompt.prefix_length:
            if prompt._source is None:
                break
            source = prompt._source
        self._before, self._source = before, source

    def continues(self, before: CallTokens | None) -> bool:
        """Return whether this prompt follows that call and begins with all of its tokens."""
        return before is not None and self.follows(before) and self.prefix_length == _num_tokens(before)

    def follows(self, before: CallTokens | None) -> bool:
        """Return whether that is the call before this prompt, as set by `follow`."""
        known = self._before
        return (
            known is not None
            and before is not None
            and known.prompt is before.prompt
            and known.generation is before.generation
        )

    def full(self) -> array[int]:
        """Return all tokens of the prompt.

        Raises:
            ValueError: the call before is not known.
        """
        continued: list[ContinuedPrompt] = []
        prompt: Sequence[int] = self
        while isinstance(prompt, ContinuedPrompt):
            if prompt._source is None:
                raise ValueError("continues a call that is not there")
            continued.append(prompt)
            prompt = prompt._source.prompt
        ids = array("i", prompt)
        for prompt in reversed(continued):
            assert prompt._source is not None
            ids.extend(_ids(prompt._source.generation))
            del ids[prompt.prefix_length :]
            ids.extend(prompt.suffix)
        return ids

    def tolist(self) -> list[int]:
        return self.full().tolist()

    def tobytes(self) -> bytes:
        return self.full().tobytes()

    def __len__(self) -> int:
        return self.prefix_length + len(self.suffix)

    def __iter__(self) -> Iterator[int]:
        return iter(self.full())

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> array[int]: ...
    def __getitem__(self, index: int | slice) -> int | array[int]:
        return self.full()[index]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, ContinuedPrompt) and self.follows(other._before):
            return self.prefix_length == other.prefix_length and self.suffix == other.suffix
        return isinstance(other, Sequence | array) and len(self) == len(other) and self.tolist() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return array, ("i", self.tolist())  # a copy for another process contains the whole prompt

    def __repr__(self) -> str:
        return f"ContinuedPrompt({self.prefix_length}, {self.suffix!r})"


def tokens_of(item: object) -> CallTokens | None:
    """Return the tokens of an item; None if it has none."""
    if not isinstance(item, dict) and not isinstance(item, Mapping):  # the second takes much longer
        return None
    prompt = item.get(PROMPT_FIELD)
    if prompt is None:
        return None
    generation = item.get(GENERATION_FIELD)
    return None if generation is None else CallTokens(prompt, generation)


def last_tokens(items: Sequence[object]) -> CallTokens | None:
    """Return the tokens of the last item with tokens; None without such an item."""
    return next((found for item in reversed(items) if (found := tokens_of(item)) is not None), None)


def link(items: Sequence[object], after: Sequence[object] = ()) -> None:
    """Set for each continued prompt the call before it: that of the previous item with tokens.

    An item may be a list of items, the state of an environment; such a list is linked separately.

    Args:
        after: the items before the first one.

    Raises:
        ValueError: a prompt continues a call that is missing.
    """
    before: CallTokens | None = None
    for position, item in enumerate(items):
        if isinstance(item, list):
            link(item)
            continue
        tokens = tokens_of(item)
        if tokens is None:
            continue
        if isinstance(tokens.prompt, ContinuedPrompt):
            try:
                before = before or last_tokens(after)
                if before is None:
                    raise ValueError("continues a call that is not there")
                tokens.prompt.follow(before)
            except ValueError as error:
                raise ValueError(f"[{position}].{PROMPT_FIELD}: {error}") from None
        before = tokens


def linked(items: list[Any]) -> list[Any]:
    """Return items whose continued prompts all continue an item of the list; other prompts become whole."""
    before: CallTokens | None = None
    result = items
    for position, item in enumerate(items):
        kept = linked(item) if isinstance(item, list) else item
        tokens = tokens_of(item)
        if tokens is not None and isinstance(tokens.prompt, ContinuedPrompt) and not tokens.prompt.follows(before):
            kept = {**item, PROMPT_FIELD: tokens.prompt.full()}
        if kept is not item:
            result = list(items) if result is items else result
            result[position] = kept
        before = tokens or before
    return result


class TokenChain:
    """The tokens of a conversation so far, to find what prompts share with them. Few tokens are copied."""

    def __init__(self, last: CallTokens | None) -> None:
        """Begin with the last call of a conversation."""
        self._last = last
        self._pieces: list[array[int]] = []
        if last is not None:
            prompt = last.prompt.full() if isinstance(last.prompt, ContinuedPrompt) else last.prompt
            self._pieces += (_ids(prompt), _ids(last.generation))
        self._num_pieces = len(self._pieces)  # of this chain: replies to the same call share the beginning

    def after(self, output: list[Any]) -> tuple[TokenChain, list[Any]]:
        """Return the chain after a reply, and the reply's items; prompts that share tokens with it refer to it."""
        chain = TokenChain(None)
        chain._last, chain._pieces, chain._num_pieces = self._last, self._pieces, self._num_pieces
        items = list(output)  # a model may give the same items in another reply
        for position, item in enumerate(output):
            tokens = tokens_of(item)
            if tokens is not None:
                items[position] = {**item, PROMPT_FIELD: chain._add(tokens)}
        return chain, items

    def _add(self, tokens: CallTokens) -> Sequence[int]:
        """Add the tokens of a call; return its prompt, without the tokens that it shares with the chain."""
        if len(self._pieces) != self._num_pieces:
            self._pieces = self._pieces[: self._num_pieces]  # another reply to the same call was added to it
        prompt = tokens.prompt
        if isinstance(prompt, ContinuedPrompt) and not prompt.follows(self._last):
            prompt = prompt.full()
        if self._last is not None and isinstance(prompt, array) and (shared := self._num_shared(prompt)):
            prompt = ContinuedPrompt(shared, prompt[shared:], self._last)
        if isinstance(prompt, ContinuedPrompt):
            if not prompt.continues(self._last):
                self._pieces = self._first(prompt.prefix_length)
            self._pieces += (prompt.suffix, _ids(tokens.generation))
        else:
            self._pieces = [_ids(prompt), _ids(tokens.generation)]
        self._num_pieces = len(self._pieces)
        self._last = CallTokens(prompt, tokens.generation)
        return prompt

    def _num_shared(self, prompt: array[int]) -> int:
        """Return how many tokens a prompt and the chain have in common at their beginning."""
        data, position = prompt.tobytes(), 0
        for piece in self._pieces:
            if not data.startswith(piece, position):  # works with any buffer
                position += _common_bytes(piece.tobytes(), data[position:])
                break
            position += len(piece) * piece.itemsize
        return position // prompt.itemsize

    def _first(self, num_tokens: int) -> list[array[int]]:
        """Return the pieces of the first tokens of the chain."""
        pieces = []
        for piece in self._pieces:
            if num_tokens <= 0:
                break
            pieces.append(piece if len(piece) <= num_tokens else piece[:num_tokens])
            num_tokens -= len(piece)
        return pieces


def _ids(tokens: Sequence[int]) -> array[int]:
    return tokens if isinstance(tokens, array) else array("i", tokens)


def _num_tokens(call: CallTokens) -> int:
    return len(call.prompt) + len(call.generation)


def _common_bytes(one: bytes, other: bytes) -> int:
    """Return how many bytes are equal at the beginning."""
    same, different = 0, min(len(one), len(other)) + 1
    while different - same > 1:
        middle = (same + different) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            different = middle
    return same


def encode_ext(value: Any) -> Any:
    """Encode packed arrays as extension values; msgspec's `enc_hook` for msgpack."""
    if isinstance(value, ContinuedPrompt):
        length = value.prefix_length.to_bytes(_LENGTH_BYTES, "little")
        return msgspec.msgpack.Ext(_CONTINUED_EXT, length + encode_ext(value.suffix).data)
    if isinstance(value, array) and value.typecode in _EXT_OF_TYPECODE:
        if sys.byteorder == "big":
            value = value[:]
            value.byteswap()
        return msgspec.msgpack.Ext(_EXT_OF_TYPECODE[value.typecode], value.tobytes())
    raise TypeError(f"{type(value).__name__} has no wire form")


def decode_ext(code: int, data: memoryview) -> array[Any] | ContinuedPrompt:
    """Decode an extension value to a packed array; msgspec's `ext_hook`, the reverse of `encode_ext`."""
    if code == _CONTINUED_EXT:
        if len(data) < _LENGTH_BYTES:
            raise ValueError("a continued prompt without the length of what it continues")
        suffix = decode_ext(_EXT_OF_TYPECODE["i"], data[_LENGTH_BYTES:])
        assert isinstance(suffix, array)
        return ContinuedPrompt(int.from_bytes(data[:_LENGTH_BYTES], "little"), suffix)
    typecode = _TYPECODE_OF_EXT.get(code)
    if typecode is None:
        raise ValueError(f"unknown extension type {code}")
    values: array[Any] = array(typecode)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def encode_json(value: Any) -> Any:
    """Convert packed arrays to lists of numbers; msgspec's `enc_hook` for JSON."""
    if isinstance(value, array | ContinuedPrompt):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


to_json = msgspec.json.Encoder(enc_hook=encode_json).encode
"""Return the JSON text of a value, its packed arrays as lists of numbers."""
