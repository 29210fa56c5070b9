"""Results in the form of NeMo RL: message logs of tensors, with routed experts.

The rules are those of the post-processing in `nemo_rl/environments/nemo_gym.py` of https://github.com/NVIDIA-NeMo/RL,
as it was in August and September 2026. The actor runs in NeMo RL's environment, so parts of NeMo RL are imported when
they are needed.
"""

from __future__ import annotations

import importlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import msgspec

from gymq.data.records import NotTrainable, Record, Span
from gymq.data.routed_experts import NEMO_RL_TYPES, read_experts
from gymq.data.rows import ROW_NUMBER
from gymq.data.trainer_results import NOT_TRAINABLE
from gymq.errors import UsageError
from gymq.ext.shared.row_failed import RowFailed
from gymq.ext.trainers.adapting import warn_if_dropped
from gymq.ext.trainers.nemo_rl.media import images_before
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.responses.tokens import OPTIONAL_TOKEN_FIELDS, ROUTED_EXPERTS
from gymq.trainer.batch import Batch
from gymq.trainer.examples import called
from gymq.trainer.groups import Row, SampleFailed

CALL_MARKS = ("<tool_call>", "</tool_call>", "<function_call>", "</function_call>")
THINK_TAGS = ("<think>", "</think>")
DROPPED = "dropped_token_share"


class MessageLogs:
    """Makes message logs of results, by the configuration of NeMo RL's environment.

    Attributes:
        tokenizer: makes texts of token ids, for logs.
    """

    def __init__(self, cfg: Mapping[str, Any], *, may_lack_experts: bool = False) -> None:
        """Read the configuration.

        Args:
            cfg: the actor's.
            may_lack_experts: whether a call without routed experts is passed on although they are required: NeMo RL of
                September 2026 fills them in.

        Raises:
            UsageError: it asks for a form that is not known.
        """
        self.tokenizer: Any = None
        self._marks = cfg.get("invalid_tool_call_patterns") or CALL_MARKS
        self._tags = cfg.get("thinking_tags") or THINK_TAGS
        self._experts_type = cfg.get("routed_experts_dtype") or "int16"
        if self._experts_type not in NEMO_RL_TYPES:
            raise UsageError(f"routed_experts_dtype is one of {', '.join(NEMO_RL_TYPES)}, not {self._experts_type!r}")
        self._needs_experts = bool(cfg.get("require_routed_experts")) and not may_lack_experts
        self._pads_images = bool(cfg.get("pad_dynamic_image_shapes"))
        self._processor: Any = None
        if cfg.get("tokenizer_config"):
            utils: Any = importlib.import_module("nemo_rl.algorithms.utils")
            self._processor = utils.get_tokenizer(cfg["tokenizer_config"], get_processor=True)

    async def stream(
        self, batch: Batch, num_rows: int, timer_prefix: str
    ) -> AsyncIterator[tuple[Row, Row, dict[str, float] | None]]:
        """Yield each row with its message log, as it is completed; timings in s with the last one, if none failed.

        Raises:
            Exception: `failure` of the first row that failed, after all others were yielded.
            UsageError, BusError: as `Batch` raises them.
        """
        times: defaultdict[str, float] = defaultdict(float)
        failed: tuple[str, SampleFailed] | None = None
        num_given = 0
        last = started = time.monotonic()
        async for group in batch:
            arrived = time.monotonic()
            name = called(f"row {group.example.get(ROW_NUMBER)}", group.example)
            if group.failures:
                failed = failed or (name, group.failures[0])
                continue
            warn_if_dropped(group, "NeMo RL")
            share = group.dropped_token_share
            try:
                log = self.of(group.samples[0].packed)
            except NotTrainable as error:
                failed = failed or (name, SampleFailed(0, NOT_TRAINABLE, str(error), 422))
                continue
            log["full_result"][DROPPED] = share  # NeMo RL logs the mean of each number
            num_given += 1
            times[f"{timer_prefix}/await_results"] += arrived - last
            last = time.monotonic()
            times[f"{timer_prefix}/postprocess_results"] += last - arrived
            percent = 100.0 * times[f"{timer_prefix}/postprocess_results"] / (last - started)
            timings = {**times, f"{timer_prefix}/postprocess_results_pct": percent}
            yield group.example, log, timings if num_given == num_rows else None
        if failed is not None:
            raise failure(*failed)

    def of(self, full: Row) -> Row:
        """Return what NeMo RL reads of a rollout. Token fields leave the items of `full`, so that its logs stay small.

        Raises:
            NotTrainable: it has no token ids, or not those that the configuration requires.
        """
        record = Record.of(full)
        items = [item for item in full["response"]["output"] if item.get("generation_token_ids")]
        images = images_before(full) if self._processor is not None else [[] for _ in items]
        log: list[Row] = []
        for item, seen, prompt, generation in zip(items, images, record.spans[::2], record.spans[1::2], strict=True):
            experts = self._experts(item, generation.end)
            if experts is not None and log and ROUTED_EXPERTS in log[-1]:
                # An engine routes a token when it reads it, and the last one of a call is read by the next call.
                log[-1][ROUTED_EXPERTS][-1] = experts[prompt.start - 1]
            asked = _message("user", record, prompt, experts)
            if seen:
                self._attach(asked, seen)
            said = _message("assistant", record, generation, experts)
            said["is_invalid_tool_call"], said["has_malformed_thinking"] = self._flags(item)
            log += [asked, said]
        self._write_texts(items)
        for item in items:
            for name in (*TOKEN_FIELDS, *OPTIONAL_TOKEN_FIELDS):
                item.pop(name, None)
        return {"message_log": log, "input_message_log": log[:1], "full_result": full}

    def _experts(self, item: Row, num_tokens: int) -> Any:
        """Return the experts of the tokens of a call, from its first to its last; None if it has none."""
        routed = item.get(ROUTED_EXPERTS)
        if routed is None:
            if self._needs_experts:
                raise NotTrainable(
                    "a call has no routed_experts, which router replay requires: does the engine give them?"
                )
            return None
        torch = _torch()
        try:
            experts = torch.from_numpy(read_experts(routed, num_tokens)).to(getattr(torch, self._experts_type))
        except ValueError as error:
            raise NotTrainable(str(error)) from None
        if len(experts) == num_tokens:
            return experts
        # As in NeMo RL: any experts do for a token that no call read.
        last = torch.arange(experts.shape[2], dtype=experts.dtype).expand(1, *experts.shape[1:])
        return torch.cat([experts, last])

    def _attach(self, message: Row, sources: Sequence[str]) -> None:
        media: Any = importlib.import_module("nemo_rl.data.multimodal_utils")
        media.attach_image_model_inputs_to_message(
            message,
            images=[media.resolve_to_image(source) for source in sources],
            processor=self._processor,
            pad_dynamic_image_shapes=self._pads_images,
        )

    def _flags(self, item: Row) -> tuple[bool, bool]:
        """Return whether a text holds a tool call that was none, and thoughts where they do not belong."""
        if item.get("type") == "message":
            text = "".join(part.get("text") or "" for part in item["content"])
            return any(mark in text for mark in self._marks), any(tag in text for tag in self._tags)
        text = "".join(part["text"] for part in item.get("summary") or ())
        return any(mark in text for mark in self._marks), any(text.count(tag) > 1 for tag in self._tags)

    def _write_texts(self, items: Sequence[Row]) -> None:
        for name, ids in (("prompt_str", "prompt_token_ids"), ("generation_str", "generation_token_ids")):
            for item in items:  # one at a time, since each prompt is a list of all tokens before it
                (item[name],) = self.tokenizer.batch_decode([list(item[ids])])


def failure(name: str, failed: SampleFailed) -> Exception:
    """Return the error of a row: one of NeMo RL's own, which decides about a retry, or RowFailed where it is absent."""
    message = f"{name}: {failed.message}"
    try:
        failures: Any = importlib.import_module("nemo_rl.experience.failures")
    except ModuleNotFoundError:
        body = {"error": {"class": failed.failure_class, "message": message}}
        return RowFailed(failed.status, msgspec.json.encode(body))
    text = f"{failed.failure_class}: {message}"
    is_retried = failed.status >= 500 or failed.status in (408, 429)
    made: Exception = (failures.GymTransportError if is_retried else failures.RolloutDataFailure)(text)
    return made


def _message(role: str, record: Record, span: Span, experts: Any) -> Row:
    torch = _torch()
    ids = record.token_ids[span.start : span.end]
    message: Row = {"role": role, "content": "", "token_ids": torch.tensor(ids, dtype=torch.int64)}
    if span.kind == "generation":
        log_probs = record.log_probs[span.start : span.end]
        message["generation_logprobs"] = torch.tensor(log_probs, dtype=torch.float32)
    if experts is not None:
        message[ROUTED_EXPERTS] = experts[span.start : span.end]
    return message


def _torch() -> ModuleType | Any:
    return importlib.import_module("torch")  # NeMo RL's own
