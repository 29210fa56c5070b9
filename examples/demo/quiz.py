"""Multiple-choice questions for the demo, with their right answers."""

from __future__ import annotations

import random
from collections.abc import Iterator

from rows import Row, make_row, say

LETTERS = "ABCD"

# Question, right answer, wrong answers.
QUESTIONS = [
    ("What is the capital of Australia?", "Canberra", ("Sydney", "Melbourne", "Perth")),
    ("What is the capital of Canada?", "Ottawa", ("Toronto", "Montreal", "Vancouver")),
    ("What is the capital of Brazil?", "Brasilia", ("Rio de Janeiro", "Sao Paulo", "Salvador")),
    ("What is the capital of Turkey?", "Ankara", ("Istanbul", "Izmir", "Bursa")),
    ("What is the capital of Morocco?", "Rabat", ("Casablanca", "Marrakesh", "Fez")),
    ("What is the capital of New Zealand?", "Wellington", ("Auckland", "Christchurch", "Hamilton")),
    ("What is the capital of Kazakhstan?", "Astana", ("Almaty", "Tashkent", "Bishkek")),
    ("What is the capital of Switzerland?", "Bern", ("Zurich", "Geneva", "Basel")),
    ("What is the capital of Vietnam?", "Hanoi", ("Ho Chi Minh City", "Da Nang", "Hue")),
    ("What is the capital of Nigeria?", "Abuja", ("Lagos", "Kano", "Ibadan")),
    ("Which river flows through Budapest?", "Danube", ("Rhine", "Elbe", "Vistula")),
    ("Which river flows through Cairo?", "Nile", ("Congo", "Niger", "Jordan")),
    ("Which river flows through Baghdad?", "Tigris", ("Euphrates", "Indus", "Oxus")),
    ("Which is the largest ocean?", "Pacific", ("Atlantic", "Indian", "Arctic")),
    ("Which is the largest hot desert?", "Sahara", ("Gobi", "Kalahari", "Sonora")),
    ("Which is the highest mountain above sea level?", "Mount Everest", ("K2", "Kilimanjaro", "Denali")),
    ("Which country has the most inhabitants of South America?", "Brazil", ("Argentina", "Colombia", "Peru")),
    ("Which sea lies between Sweden and Finland?", "Baltic Sea", ("North Sea", "Black Sea", "White Sea")),
    ("Which strait separates Europe from Africa?", "Gibraltar", ("Bosporus", "Hormuz", "Dover")),
    ("On which continent does Egypt mostly lie?", "Africa", ("Asia", "Europe", "Antarctica")),
    ("What is the chemical symbol of gold?", "Au", ("Ag", "Go", "Gd")),
    ("What is the chemical symbol of iron?", "Fe", ("Ir", "In", "Fr")),
    ("What is the chemical symbol of sodium?", "Na", ("So", "Sn", "Sd")),
    ("What is the chemical symbol of potassium?", "K", ("P", "Po", "Pt")),
    ("What is the chemical symbol of lead?", "Pb", ("Ld", "Pl", "Le")),
    ("Which element has the atomic number 1?", "Hydrogen", ("Helium", "Lithium", "Oxygen")),
    ("Which element has the atomic number 6?", "Carbon", ("Nitrogen", "Boron", "Oxygen")),
    ("Which element has the atomic number 8?", "Oxygen", ("Nitrogen", "Fluorine", "Carbon")),
    ("Which gas do plants take up for photosynthesis?", "Carbon dioxide", ("Oxygen", "Nitrogen", "Methane")),
    ("Which gas makes up most of the Earth's atmosphere?", "Nitrogen", ("Oxygen", "Argon", "Carbon dioxide")),
    ("Which of these metals is liquid at 25 degrees Celsius?", "Mercury", ("Zinc", "Tin", "Lead")),
    ("What is the pH of pure water at 25 degrees Celsius?", "7", ("0", "5", "14")),
    ("Which planet is closest to the Sun?", "Mercury", ("Venus", "Earth", "Mars")),
    ("Which planet has the largest mass?", "Jupiter", ("Saturn", "Neptune", "Uranus")),
    ("Which planet has the moons Phobos and Deimos?", "Mars", ("Venus", "Saturn", "Neptune")),
    ("Which planet has the moon Titan?", "Saturn", ("Jupiter", "Mars", "Uranus")),
    ("What kind of body is the Sun?", "Star", ("Planet", "Comet", "Galaxy")),
    ("Which unit measures electric resistance?", "Ohm", ("Volt", "Ampere", "Farad")),
    ("Which unit measures force?", "Newton", ("Joule", "Watt", "Pascal")),
    ("Which unit measures energy?", "Joule", ("Newton", "Watt", "Kelvin")),
    ("Which unit measures frequency?", "Hertz", ("Tesla", "Lumen", "Weber")),
    ("Which unit measures pressure?", "Pascal", ("Newton", "Joule", "Henry")),
    ("In which medium is sound fastest?", "Steel", ("Air", "Water", "Vacuum")),
    ("Which colour of visible light has the longest wavelength?", "Red", ("Violet", "Green", "Blue")),
    ("Which particle has a negative charge?", "Electron", ("Proton", "Neutron", "Photon")),
    ("Which organelle makes proteins?", "Ribosome", ("Lysosome", "Vacuole", "Golgi apparatus")),
    ("Which organ makes insulin?", "Pancreas", ("Liver", "Kidney", "Spleen")),
    ("How many chambers has a human heart?", "4", ("2", "3", "5")),
    ("How many chromosomes has a human body cell usually?", "46", ("23", "44", "48")),
    ("Which vitamin does human skin make in sunlight?", "Vitamin D", ("Vitamin A", "Vitamin B12", "Vitamin C")),
    ("Which of these animals is a mammal?", "Dolphin", ("Shark", "Penguin", "Salmon")),
    ("Which of these animals is an amphibian?", "Frog", ("Lizard", "Snake", "Turtle")),
    ("How many legs has a spider?", "8", ("6", "10", "12")),
    ("Which part of a plant takes up most of its water?", "Roots", ("Leaves", "Flowers", "Fruit")),
    ("Which blood cells carry oxygen?", "Red cells", ("White cells", "Platelets", "Plasma cells")),
    ("Which number is prime?", "37", ("39", "51", "57")),
    ("How many degrees do the angles of a triangle add up to?", "180", ("90", "270", "360")),
    ("How many edges has a cube?", "12", ("6", "8", "10")),
    ("What is 2 to the power of 10?", "1024", ("512", "1000", "2048")),
    ("Which shape has five sides?", "Pentagon", ("Hexagon", "Octagon", "Square")),
    ("How many bits are in a byte?", "8", ("4", "10", "16")),
    ("Which data structure gives back the newest item first?", "Stack", ("Queue", "Heap", "Tree")),
    ("In which year did the Berlin Wall fall?", "1989", ("1961", "1979", "1991")),
    ("Who wrote Don Quixote?", "Miguel de Cervantes", ("Lope de Vega", "Dante Alighieri", "Luis de Camoes")),
    ("Which language has the most native speakers?", "Mandarin Chinese", ("English", "Spanish", "Hindi")),
    ("Which instrument has 88 keys as a rule?", "Piano", ("Organ", "Accordion", "Harpsichord")),
]


def rows(seed: random.Random) -> Iterator[Row]:
    """One row a question; the order of its options is drawn."""
    for question, right, wrong in QUESTIONS:
        texts = [right, *wrong]
        seed.shuffle(texts)
        letter = LETTERS[texts.index(right)]
        other = seed.choice([wrong_letter for wrong_letter in LETTERS if wrong_letter != letter])
        listed = "\n".join(f"{name}: {text}" for name, text in zip(LETTERS, texts, strict=True))
        yield make_row(
            "mcqa_simple_agent",
            f"{question}\n{listed}\nPut the letter of the right answer into \\boxed{{}}.",
            solution=[[say(f"It is {right}. \\boxed{{{letter}}}")]],
            mistake=[[say(f"I think it is {texts[LETTERS.index(other)]}. \\boxed{{{other}}}")]],
            options=[{name: text} for name, text in zip(LETTERS, texts, strict=True)],
            expected_answer=letter,
            grading_mode="strict_single_letter_boxed",
        )
