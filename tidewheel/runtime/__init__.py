"""The loop around the rules: ``scheduler`` polls, decides, commits and adopts.

``intake`` turns records into commands, ``work`` decides a batch to a fixpoint, ``recovery`` brings a shard up to date
after anything at all, ``snapshots`` make that quick, ``timers`` wake the loop. ``checker`` reads any journal from
outside and judges it.
"""
