"""Texts."""


def initials(name):
    return "".join(word[0] for word in name.split(" "))


def shout(text):
    return text.upper()
