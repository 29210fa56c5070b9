"""mini-swe-agent (https://mini-swe-agent.com): its loop, its prompts and its containers, with a model of ours.

This imports mini-swe-agent; the worker does it when it starts.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")

import minisweagent
import pydantic
import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.docker import DockerEnvironment
from minisweagent.environments.singularity import SingularityEnvironment
from minisweagent.exceptions import FormatError, LimitsExceeded
from minisweagent.models.utils.actions_toolcall_response import (
    BASH_TOOL_RESPONSE_API,
    finish_reason_from_responses_api,
    format_toolcall_observation_messages,
    parse_toolcall_actions_response,
)

from gymq import responses
from gymq.agent import Reply
from gymq.ext.containers import FEWER_PRIVILEGES
from gymq.failures import ComponentFailed

Item = dict[str, Any]
Ask = Callable[[list[Item], list[Item]], responses.Response]
"""Asks the model with a history and tools; a Responses object."""

BASH = {**BASH_TOOL_RESPONSE_API, "strict": False}
START_S = 3600  # for a container; its image may have to be pulled
logging.getLogger("minisweagent").setLevel(logging.WARNING)  # it logs every command
PROMPTS = Path(minisweagent.package_dir) / "config" / "benchmarks" / "swebench.yaml"


class ModelConfig(pydantic.BaseModel):
    """What the prompts of mini-swe-agent may name."""

    observation_template: str
    format_error_template: str


class Policy:
    """The model, as mini-swe-agent wants one."""

    def __init__(self, ask: Ask, config: dict[str, Any]) -> None:
        self.config = ModelConfig(**{name: config[name] for name in ModelConfig.model_fields})
        self._ask = ask

    def query(self, messages: list[Item]) -> Item:
        response = self._ask(items_of(messages), [BASH])
        if Reply(response).overflowed:
            # Reporting it to the model would make the conversation even longer.
            raise LimitsExceeded({"role": "exit", "extra": {"exit_status": "ContextWindowExceeded"}})
        said = {"object": "response", "output": response["output"]}
        try:
            # Calls in a reply that was cut short are not run.
            calls = [] if response.get("incomplete_details") else responses.function_calls(response)
            actions = parse_toolcall_actions_response(
                calls,
                format_error_template=self.config.format_error_template,
                template_kwargs={"finish_reason": finish_reason_from_responses_api(response)},
            )
        except FormatError as error:
            # The reply stays in the history, so that the next prompt continues this one.
            raise FormatError({**said, "extra": {}}, *_told(response, error)) from None
        return {**said, "extra": {"actions": actions}}

    def format_message(self, **message: Any) -> Item:
        return {"type": "message", **message}

    def format_observation_messages(
        self, message: Item, outputs: list[dict[str, Any]], template_vars: dict[str, Any] | None = None
    ) -> list[Item]:
        messages: list[Item] = format_toolcall_observation_messages(
            actions=message["extra"]["actions"],
            outputs=outputs,
            observation_template=self.config.observation_template,
            template_vars=template_vars,
        )
        return messages

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return self.config.model_dump()

    def serialize(self) -> dict[str, Any]:
        return {}


def _told(response: Mapping[str, Any], error: FormatError) -> Sequence[Mapping[str, Any]]:
    """Return the error in a reply: as the output of each of its calls, or as a message if it has none."""
    text = error.messages[0]["content"][0]["text"]
    calls = responses.function_calls(response)
    return [responses.function_call_output(call["call_id"], text) for call in calls] or [responses.user_message(text)]


def items_of(messages: list[Item]) -> list[Item]:
    """mini-swe-agent's messages as items of the Responses API."""
    items: list[Item] = []
    for message in messages:
        said = message["output"] if message.get("object") == "response" else [message]
        items += [{name: value for name, value in item.items() if name != "extra"} for item in said]
    return items


class _Docker(DockerEnvironment):
    """A container whose loss is an error and nothing that a model reads."""

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().execute(action, cwd, timeout=timeout)
        if result["returncode"] != 0 and not self._runs():
            raise ComponentFailed(f"the container of {self.config.image} is gone")
        return result

    def _runs(self) -> bool:
        command = [self.config.executable, "inspect", "--format", "{{.State.Running}}", self.container_id]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "true"

    def cleanup(self) -> None:
        if getattr(self, "container_id", None) is not None:
            subprocess.run(
                [self.config.executable, "rm", "--force", self.container_id], capture_output=True, check=False
            )


class Episode:
    """One instance in its own container. `run` blocks; `stop` is for another thread."""

    def __init__(self, ask: Ask, *, env: str, image: str, step_timeout: int, step_limit: int, life_s: float) -> None:
        """
        Args:
            env: `docker` or `singularity`.
            step_timeout: seconds for one command.
            step_limit: model calls.
            life_s: seconds after which a container ends by itself if its worker does not end it.
        """
        self._config = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))
        self._policy = Policy(ask, self._config["model"])
        self._container = {"image": image, "cwd": "/testbed", "timeout": step_timeout}
        self._container["env"] = self._config["environment"]["env"]
        self._env, self._life_s = env, life_s
        self._step_limit = step_limit
        self._machine: _Docker | SingularityEnvironment | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, task: str) -> tuple[list[Item], list[Item]]:
        """Return the prompt, and what followed. The last item is a user message with the patch, or why there is none.

        Raises:
            ComponentFailed: the container did not start, or was lost.
            Exception: as raised by `ask`.
        """
        machine = self._start()
        agent_config = self._config["agent"] | {"step_limit": self._step_limit, "cost_limit": 0.0}
        agent = DefaultAgent(self._policy, machine, **agent_config)
        try:
            ended = agent.run(task)
        finally:
            self.stop()
        ending = ended.get("submission") or ended.get("exit_status") or ""
        return items_of(agent.messages[:2]), [*items_of(agent.messages[2:-1]), responses.user_message(ending)]

    def stop(self) -> None:
        """End the container, and with it the command that runs."""
        with self._lock:
            self._stopped = True
            machine, self._machine = self._machine, None
        if machine is not None:
            machine.cleanup()

    def _start(self) -> _Docker | SingularityEnvironment:
        try:
            if self._env == "docker":
                machine = _Docker(
                    **self._container,
                    interpreter=self._config["environment"]["interpreter"],
                    # Without network: the repair may be found there.
                    run_args=["--rm", "--network", "none", *FEWER_PRIVILEGES],
                    container_timeout=f"{self._life_s:.0f}s",
                    pull_timeout=START_S,
                )
            else:
                machine = SingularityEnvironment(**self._container)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            said = said if isinstance(said, str) else said.decode(errors="replace")
            raise ComponentFailed(f"no container of {self._container['image']}: {said.strip()[-300:]}") from None
        with self._lock:
            if not self._stopped:
                self._machine = machine
                return machine
        machine.cleanup()
        raise ComponentFailed("the episode was stopped")
