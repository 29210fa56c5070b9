"""Judging: a model is asked about a reply, and its verdict is read from its answer.

A judge that cannot be asked raises `JudgeFailed`. Any answer is an outcome, even one without a readable verdict; its
worth is for each verifier to decide.
"""

from gymq.judge.asking import Comparison as Comparison
from gymq.judge.asking import Judge as Judge
from gymq.judge.asking import JudgedEnvironment as JudgedEnvironment
from gymq.judge.asking import Judgement as Judgement
from gymq.judge.asking import Reader as Reader
from gymq.judge.asking import all_of as all_of
from gymq.judge.asking import compare as compare
from gymq.judge.options import EqualityOptions as EqualityOptions
from gymq.judge.options import EqualityTemplateOptions as EqualityTemplateOptions
from gymq.judge.options import JudgeOptions as JudgeOptions
from gymq.judge.options import JudgeParams as JudgeParams
from gymq.judge.options import Label as Label
from gymq.judge.options import check_distinct as check_distinct
from gymq.judge.prompts import PromptTemplate as PromptTemplate
from gymq.judge.prompts import chosen_template as chosen_template
from gymq.judge.prompts import literal as literal
from gymq.judge.reading import Labels as Labels
from gymq.judge.reading import Question as Question
from gymq.judge.reading import last_label as last_label
from gymq.judge.reading import last_text as last_text
from gymq.judge.rubric import Criterion as Criterion
from gymq.judge.rubric import Rubric as Rubric
