"""What the judge is asked about two answers, one text for each category of prompts."""

from __future__ import annotations

from gymq.workers.resources.simpleqa.prompt_files import JudgePrompt

FIELDS = ("question", "answer_1", "answer_2")

_INTRODUCTION = """\
You are an impartial judge of two AI assistants, A and B, that answered the same prompt of a user. Decide which answer
is better. In which order they are shown says nothing about them.
"""

_OWN_ANSWER = """
Before you judge, write an answer of your own to the prompt. Compare both answers with it.
"""

_CRITERIA = """
Find what is wrong or imprecise in each answer, and put it right. Then consider, in this order:
1. Is the answer helpful, that is, does it do what the prompt asks for? Where a prompt can be understood in several ways
   it is fine, and often better, to ask back.
2. Is it relevant: does everything in it belong to what is asked?
3. Is it concise: clear, and no longer than it has to be?
4. Is it creative and new, where the prompt needs that? And does it leave out something important that the user would
   have wanted to know?

Explain your judgement. Then finish with exactly one of these labels:
[[A>>B]] if A is much better,
[[A>B]] if A is slightly better,
[[A=B]] if both are about the same,
[[B>A]] if B is slightly better,
[[B>>A]] if B is much better.

An example of a last line: My final verdict is that they are about the same: [[A=B]]"""

_COMPARISON = """\
<user_prompt>
{question}
</user_prompt>

<answer_of_assistant_a>
{answer_1}
</answer_of_assistant_a>

<answer_of_assistant_b>
{answer_2}
</answer_of_assistant_b>"""

PROMPTS = {
    "hard_prompt": JudgePrompt(system=_INTRODUCTION + _OWN_ANSWER + _CRITERIA, user=_COMPARISON),
    "creative_writing": JudgePrompt(system=_INTRODUCTION + _CRITERIA, user=_COMPARISON),
}
