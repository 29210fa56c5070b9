"""OpenHands, on the prompt of a harness, in the working directory. Its own Python runs it, not that of gymq."""

import os
import sys
from pathlib import Path

from openhands.sdk import LLM, Conversation
from openhands.sdk.conversation.state import ConversationExecutionStatus
from openhands.tools.preset.default import get_default_agent

llm = LLM(
    model="openai/policy",
    base_url=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
    usage_id="agent",
)
# `cli_mode` leaves the browser out.
conversation = Conversation(agent=get_default_agent(llm, cli_mode=True), workspace=os.getcwd())
conversation.send_message(Path(os.environ["GYMQ_PROMPT_FILE"]).read_text(encoding="utf-8", errors="replace"))
conversation.run()
status = conversation.state.execution_status
conversation.close()
if status is not ConversationExecutionStatus.FINISHED:
    sys.exit(f"OpenHands ended as {status.value}")
