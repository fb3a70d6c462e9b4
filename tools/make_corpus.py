#!/usr/bin/env python3
"""Writes a small corpus of made-up stories, for the demo and for tests.

    make_corpus.py FILE [--bytes 400000] [--seed 0]

The stories come from a grammar: names, places and things that a story holds on to from beginning to end. So a model of
bytes learns words first, then sentences, then who has what. The same seed gives the same bytes with any Python 3.
"""
import argparse


class Dice:
    """A generator of our own: the library's may change from one version to the next."""

    def __init__(self, seed):
        self.state = (seed * 2654435761 + 88172645463325252) & (2**64 - 1)

    def below(self, n):
        x = self.state
        x ^= (x << 13) & (2**64 - 1)
        x ^= x >> 7
        x ^= (x << 17) & (2**64 - 1)
        self.state = x
        return (x >> 11) % n

    def pick(self, among):
        return among[self.below(len(among))]


NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Finn", "Greta", "Hugo", "Ida", "Jonas", "Lena", "Max", "Nora",
         "Otto", "Paula", "Rosa", "Simon", "Tilda"]
KINDS = ["girl", "boy", "baker", "fisherman", "gardener", "farmer", "teacher", "sailor", "painter", "shepherd"]
HE = {"Ben", "David", "Finn", "Hugo", "Jonas", "Max", "Otto", "Simon"}
ANIMALS = ["dog", "cat", "fox", "horse", "duck", "goat", "owl", "hare", "mouse", "crow"]
PLACES = ["the forest", "the river", "the old mill", "the market", "the harbour", "the hill", "the garden", "the lake",
          "the castle", "the bridge"]
THINGS = ["red ball", "silver key", "wooden boat", "blue kite", "small lamp", "golden ring", "warm coat", "long rope",
          "paper map", "clay jug"]
MOODS = ["happy", "sad", "tired", "curious", "brave", "afraid", "proud", "hungry"]
WEATHER = ["The sun was shining", "It was raining", "The wind was strong", "Snow lay on the ground", "The sky was grey",
           "It was a quiet morning", "The moon was already up"]
WAYS = ["slowly", "quickly", "quietly", "without a word", "with a smile", "all alone"]


def story(dice):
    name, friend = dice.pick(NAMES), dice.pick(NAMES)
    while friend == name:
        friend = dice.pick(NAMES)
    he, him, his = ("he", "him", "his") if name in HE else ("she", "her", "her")
    kind, animal, thing = dice.pick(KINDS[2:]), dice.pick(ANIMALS), dice.pick(THINGS)
    home, away = dice.pick(PLACES), dice.pick(PLACES)
    if dice.below(2):
        kind = "boy" if name in HE else "girl"
    big = he.capitalize()
    lines = [f"Once upon a time there was a {kind} named {name}, who lived near {home}.",
             dice.pick([f"{name} had a {animal} and a {thing}.",
                        f"{big} had a {thing}, and {his} best friend was a {animal}.",
                        f"The {thing} was what {he} liked most, after {his} {animal}."])]
    for _ in range(1 + dice.below(3)):
        lines.append(dice.pick([
            f"{dice.pick(WEATHER)}, and {name} was {dice.pick(MOODS)}.",
            f"One day {name} went to {away} {dice.pick(WAYS)}.",
            f"The {animal} ran ahead {dice.pick(WAYS)}, and {name} followed.",
            f"{big} met {friend}, who was {dice.pick(MOODS)}.",
        ]))
    lines.append(dice.pick([f"At {away} the {thing} was suddenly gone.", f"Near {away} {name} lost the {thing}.",
                            f"On the way to {away} the {thing} fell into the grass."]))
    lines.append(dice.pick([
        f'"Have you seen my {thing}?" asked {name}. "No," said {friend}, "but I will help you."',
        f'"Where is my {thing}?" cried {name}. "Ask the {animal}," said {friend}.',
        f"{name} looked for it, and {friend} looked too.",
    ]))
    for _ in range(dice.below(3)):
        lines.append(dice.pick([f"They looked near {dice.pick(PLACES)}, but it was not there.",
                                f"{friend} was {dice.pick(MOODS)}, and {name} was {dice.pick(MOODS)}.",
                                f"{dice.pick(WEATHER)}."]))
    lines.append(dice.pick([f"In the end the {animal} found the {thing}.",
                            f"At last {friend} found the {thing} near {dice.pick(PLACES)}.",
                            f"Then {name} saw the {thing} under a tree."]))
    lines.append(dice.pick([f"{name} thanked {friend}, and they went home together.",
                            f"{big} was {dice.pick(['happy', 'proud'])} and gave the {animal} something to eat.",
                            f"From that day on {he} never let it out of {his} hands."]))
    return " ".join(lines) + "\n\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--bytes", type=int, default=400_000, help="at least so many (default 400000)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    dice, size = Dice(given.seed), 0
    with open(given.file, "w", encoding="ascii", newline="\n") as file:
        while size < given.bytes:
            size += file.write(story(dice))


if __name__ == "__main__":
    main()
