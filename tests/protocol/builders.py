"""One example of every message type, and strategies that make many."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from gymq.protocol import journal_messages, messages, replica_messages
from gymq.protocol.journal_messages import Effect, JournalEntry
from gymq.protocol.messages import (
    Accepted,
    BlobRef,
    Cancel,
    Cancellation,
    Close,
    Closed,
    DeadLetter,
    Fail,
    Failure,
    FailureClass,
    Generate,
    Generated,
    GenerateNext,
    Message,
    NeedsPrefix,
    Ping,
    Pong,
    Priority,
    Profile,
    PromptRead,
    ReadPrompt,
    Run,
    Seed,
    Seeded,
    ServedAgent,
    Stage,
    Steering,
    Submission,
    Task,
    ToolCall,
    ToolResult,
    Unresolved,
    Verified,
    VerifiedRollout,
    Verify,
)
from gymq.protocol.replica_messages import Hold, Load, Weights

ROW = b'{"responses_create_params":{"input":"hi"}}'
_OUTCOME: dict[str, Any] = {"run": "r", "task_index": 1, "rollout_index": 2, "agent": "a", "row": ROW}
_CALL: dict[str, Any] = {"rollout": "r/1/2", "timeout_s": 5.0}

EXAMPLES: tuple[Message, ...] = (
    Submission(run="r", row=msgspec.Raw(msgspec.msgpack.encode({"answer": "Bern"})), agent="a", num_repeats=3),
    Task(run="r", task_index=1, rollout_index=2, agent="a", row=ROW, timeout_s=60.0, replaces=7),
    VerifiedRollout(
        **_OUTCOME, response={"output": []}, reward=0.5, verdict={"exact": True}, attempt=1, duration_s=2.5
    ),
    Failure(**_OUTCOME, failure_class=FailureClass.MODEL_FAILED, stage=Stage.MODEL, message="no", retryable=True),
    Unresolved(**_OUTCOME, response={"output": []}, failure_class=FailureClass.JUDGE_FAILED, message="no judge"),
    Cancellation(run="r", task_index=3, at=1.5),
    Steering(run="r", number=2, share=0.5, priority=Priority.URGENT, paused=True, max_in_flight=8, at=1.5),
    ServedAgent(agent="a", ack_wait_s=30.0),
    DeadLetter(subject="gym.tasks", reason="no task", body=b"\x00\xff", at=1.5),
    Run(run="r", created_at=1.5, fingerprint="f", models=["m"], num_rollouts=4, extended_to=2),
    Profile(run="r", sequence=9, at=1.5, snapshot={"agents": {}}, state=b"\x00\xff"),
    Seed(**_CALL, row=ROW),
    Seeded(session="gym.session.w.s"),
    ToolCall(**_CALL, number=1, name="add", arguments='{"amount": 1}'),
    ToolResult(output="3", status=422),
    Verify(**_CALL, number=2, row=ROW, response={"output": []}),
    Verified(reward=1.0, verdict={"exact": True}),
    Close(**_CALL),
    Closed(),
    JournalEntry(attempt=1, worker="w", effects=[Effect(1, "seed", b"\x80")], session="gym.session.w.s"),
    Generate(**_CALL, params={"input": [], "temperature": 0.5}, session="r/1/2"),
    GenerateNext(**_CALL, params={"temperature": 0.5}, items=[{"role": "user"}], session="s", after="t", num_items=2),
    Generated(response={"output": []}, worker="w", policy_versions=["", "v1"], state="t"),
    NeedsPrefix(worker="w"),
    ReadPrompt(**_CALL, prompt=[1, 2], num_log_probs=-1, first=1),
    PromptRead(token_ids=[1], log_probs=[{}, {"1": -0.5}]),
    Load(worker="w", running=3, waiting=1, kv_cache_use=0.5, kv_cache_tokens=65536, num_callers=2),
    Weights(
        policy_version="v1", push="p", parts=2, num_bytes=9, sha256="0" * 64, before=["v0"], at=1.5, in_flight="finish"
    ),
    Hold(for_s=5.0),
    Accepted(role="model", worker="w"),
    Fail(failure_class=FailureClass.SATURATED, message="full", retryable=True, curable=True),
    Cancel(call="0" * 32),
    Ping(calls=["0" * 32, "1" * 32]),
    Pong(gone=["1" * 32]),
    BlobRef(subject="gym.parts.call.model.x", parts=2, num_bytes=10, sha256="0" * 64),
)

MESSAGE_TYPES = sorted(
    (
        member
        for member in (vars(messages) | vars(journal_messages) | vars(replica_messages)).values()
        if isinstance(member, type)
        and issubclass(member, Message)
        and str(member.__struct_config__.tag).rpartition(".")[2] in ("v1", "v2")
    ),
    key=lambda message_type: message_type.__name__,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
