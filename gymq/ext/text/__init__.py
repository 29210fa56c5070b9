"""Reading what a reply says: its boxes, answer lines and code, words, the option that an answer chooses.

Everything takes time in proportion to the text.
"""

from gymq.ext.text.choices import Choices as Choices
from gymq.ext.text.fences import Block as Block
from gymq.ext.text.fences import code_blocks as code_blocks
from gymq.ext.text.marks import SPACE as SPACE
from gymq.ext.text.marks import closing_braces as closing_braces
from gymq.ext.text.marks import undressed as undressed
from gymq.ext.text.places import Found as Found
from gymq.ext.text.places import answer_lines as answer_lines
from gymq.ext.text.places import boxes as boxes
from gymq.ext.text.places import in_order as in_order
from gymq.ext.text.thoughts import thoughts as thoughts
from gymq.ext.text.words import Words as Words
from gymq.ext.text.words import plain as plain
