"""What the judge is asked."""

from __future__ import annotations

FIELDS = ("question", "expected_answer", "generation")

TEMPLATE = """\
Grade an answer to a question of fact by comparing it with a reference answer that is known to be right. There are three
grades.

A, the answer is correct: it holds everything that matters of the reference and contradicts none of it. Wording,
language, upper and lower case, order, and doubts that the answer voices do not matter. For the question "Which two
colours does the flag of Elbonia have?" and the reference "mud brown and grey" these are correct:
- "Grey, and mud brown."
- "I would guess brown like mud together with grey, but I have not seen it myself."
- "the colours are MUD BROWN & GREY; it was adopted long ago"

B, the answer is incorrect: some statement in it contradicts the reference, even if it is voiced with doubt or put right
only in part. For the same question these are incorrect:
- "Mud brown and green."
- "Perhaps it is only grey, but I am not certain."
- "Either mud brown and grey, or blue and white."

C, the question is not attempted: something that matters of the reference is missing, and nothing in the answer
contradicts it. For the same question these are not attempted:
- "I do not know the flag of Elbonia."
- "One of them is grey; I would have to look up the other one."
- "It was designed by a painter from the capital."

Further rules:
- Numbers have to agree with the reference to its last significant figure. For the reference "120 thousand" the answers
  "120 thousand" and "119,700" are correct, "112 thousand" is incorrect, and "about 100 thousand" or "more than 50
  thousand" are vague, so they are not attempted.
- A reference may say more than the question asks for. Only what the question asks for is needed.
- What the question implies may be left out of the answer, such as a country or a unit that the question names.
- Names that are misspelt count as right if it is clear who or what is meant.

Now grade this answer.

<question>
{question}
</question>
<reference_answer>
{expected_answer}
</reference_answer>
<answer>
{generation}
</answer>

Reply with one letter and nothing else: A if the answer is correct, B if it is incorrect, C if the question is not
attempted."""
