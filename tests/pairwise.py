"""A short list of cases in which every two choices of different options meet."""

import itertools
import random


def pairwise(seed=0, **options):
    """Dictionaries with one choice for each option; any two choices of two options occur together in one.

    Greedy: each new case is the best of a few tries, seeded, so that the list is always the same.
    """
    rng = random.Random(seed)
    names = list(options)

    def pairs(case):
        return {(a, case[a], b, case[b]) for a, b in itertools.combinations(names, 2)}

    missing = set()
    for a, b in itertools.combinations(names, 2):
        missing |= {(a, x, b, y) for x in options[a] for y in options[b]}
    cases = []
    while missing:
        a, x, b, y = min(missing, key=repr)  # one that this case meets for certain
        tries = [{n: rng.choice(list(options[n])) for n in names} | {a: x, b: y} for _ in range(100)]
        best = max(tries, key=lambda case: len(pairs(case) & missing))
        cases.append(best)
        missing -= pairs(best)
    return cases
