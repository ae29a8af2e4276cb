"""Actions that are Python callables: they run in a worker's runner processes, as an author's own functions do.

Each hands its work to a system that outlives this process. So each names what it hands over after the attempt, ends
what an earlier attempt may have left there before it begins, and ends its own when it is stopped.
"""
