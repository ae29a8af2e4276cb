"""The whole engine under fire, from one seed: schedulers, workers and a projector on the memory log under virtual time,
and faults at every step of their lives.

``world`` is the place where it happens, ``interception`` the points at which a process can be hit, ``mishaps`` what
hits it. ``following`` and ``judges`` watch from outside and share no rule with the engine; ``season`` plays one seed
and ``campaign`` many; ``bugs`` plants faults into the engine itself, to prove that the judges see them.
"""
