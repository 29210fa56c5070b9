"""Words and sentences for long texts that mean nothing in particular."""

from __future__ import annotations

import random
from collections.abc import Collection

_ADJECTIVES = """
able amber ample ancient arctic bitter blunt brave brief bright brisk broken calm careful chilly clean clever cloudy
coarse common copper crisp curious daring dark distant dusty eager early elder empty fading famous fierce flat
fluent fond frozen gentle gilded glad golden grand grave green hollow humble idle ivory keen kind late lean level
little lively lonely long loud lunar mellow merry misty modest narrow neat noble northern odd open orderly pale
patient plain polite prompt proud quick quiet rapid rare ready red rough round rusty salty secret sharp shy silent
silver simple slender slow small smooth solemn sour steady steep still stormy strict sturdy sudden sunny swift tall
tame tender thin thirsty tidy tiny vast violet warm weary white wide wild windy wise wooden young
"""

_NOUNS = """
acorn anchor anvil apron arch atlas badge bakery ballad bank barge barn barrel basin basket beacon bell bench bonnet
book boulder bowl branch brass bridge brook broom bucket cabin candle canoe canyon carpet castle cedar cellar chalk
chapel chart cheese cherry chimney cider circle clock cloak clover coast cobbler comet compass copse coral cottage
cradle crane crate creek cricket crown cup curtain dairy dial ditch dock door drum eagle easel elm ember engine
falcon fence fern ferry field fiddle flint flute forge fountain fox garden gate glacier glove goose grain granary
grove hammer harbour harvest hatch hazel hearth hedge heron hill hinge honey hood horn island ivy jacket jar jetty
kettle key kiln kite ladder lagoon lake lamp lantern lark ledger lemon lever lighthouse lily loaf loom lute lynx
maple market marsh mast meadow mill mint mirror mitten moat moor moss mountain needle nest oak oar orchard otter
oven owl paddle parcel path pebble pepper pier pigeon pillow pine pipe plank plough plum pond poplar porch quarry
quilt rabbit raft rake raven reed ribbon ridge river robin roof rope saddle sail sandal saw scarf shed shell shovel
sickle sled sparrow spoon spring stable stair stone stove straw swan table tailor thimble thistle tower trail
trumpet tulip tunnel turnip valley vase veil vessel village vine wagon walnut well wharf wheel whistle willow window
wren yarn
"""

_VERBS = """
carried crossed described drew followed found guarded heard hid inspected kept left lifted lost measured mended
missed moved named noticed painted passed polished praised reached remembered repaired sketched sold sought studied
tied touched traced visited watched weighed
"""

_PEOPLE = """
baker captain carpenter child clerk farmer fisher gardener keeper merchant miller musician neighbour painter pilot
potter printer sailor singer smith stranger student teacher traveller visitor weaver widow
"""

ADJECTIVES, NOUNS, VERBS, PEOPLE = (tuple(text.split()) for text in (_ADJECTIVES, _NOUNS, _VERBS, _PEOPLE))

ENDINGS = (
    *(
        "before the rain came",
        "and said nothing of it",
        "as every year",
        "for want of anything better",
        "in the evening",
    ),
    *("long after the bells", "on the way home", "though few believed it", "under a low sky", "until the light failed"),
    *("when the market closed", "while the others slept", "with great care", "without much hope", "year after year"),
)


def word(rng: random.Random) -> str:
    """Return an adjective and a noun, joined by a hyphen."""
    return f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"


def new_words(rng: random.Random, count: int, taken: Collection[str] = ()) -> list[str]:
    """Return that many different words, none of them taken."""
    found: dict[str, None] = {}
    while len(found) < count:
        candidate = word(rng)
        if candidate not in taken:
            found[candidate] = None
    return list(found)


def sentence(rng: random.Random) -> str:
    """Return a sentence of about a dozen words."""
    thing = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    other = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    return f"The {rng.choice(PEOPLE)} {rng.choice(VERBS)} the {thing} beside the {other} {rng.choice(ENDINGS)}."


def prose(rng: random.Random, words: int) -> list[str]:
    """Return sentences with at least that many words together."""
    found: list[str] = []
    while words > 0:
        found.append(sentence(rng))
        words -= len(found[-1].split())
    return found
