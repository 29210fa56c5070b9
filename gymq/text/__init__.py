"""Reading what a reply says: its conclusion, boxes, answer lines and code, words, the option that an answer chooses.

Everything takes time in proportion to the text.
"""

from gymq.text.choices import Choices as Choices
from gymq.text.fences import Block as Block
from gymq.text.fences import code_blocks as code_blocks
from gymq.text.marks import SPACE as SPACE
from gymq.text.marks import closing_braces as closing_braces
from gymq.text.marks import undressed as undressed
from gymq.text.places import Found as Found
from gymq.text.places import answer_lines as answer_lines
from gymq.text.places import boxes as boxes
from gymq.text.places import in_order as in_order
from gymq.text.thoughts import conclusion as conclusion
from gymq.text.thoughts import thoughts as thoughts
from gymq.text.words import Words as Words
from gymq.text.words import plain as plain
