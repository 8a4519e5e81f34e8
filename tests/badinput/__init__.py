"""Bad inputs that a seed decides, and what must hold of each: a documented end, and nothing changed.

Each kind has a generator, which makes the same inputs of a seed and a number each time, and a test over the numbers.
A failure names kind and number; `BADINPUT_SEED=n` tries others, `BADINPUT_TIMES=n` so many times as many.
"""
