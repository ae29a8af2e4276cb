"""The rules, pure: commands are decided into events, events are folded into state. No I/O, no clock, no dice.

``commands`` ask, ``events`` are facts, ``state`` is what they add up to; ``decide`` and ``fold`` are the two
functions between them, and ``transitions`` the legal lives of a run and a task. ``graph``, ``retry``, ``calendar``
and ``deadlines`` hold the questions both ask.
"""
