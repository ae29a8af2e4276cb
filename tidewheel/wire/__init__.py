"""Messages as bytes: the way between the classes of ``tidewheel.core`` and the records on a log.

``codec`` writes and reads every message by its published Avro schema; ``triggers`` reads what anybody may send to have
a run started. ``catalog`` knows the published versions and ``upcast`` bridges old ones; ``compiled``, ``primitives``
and ``rules`` are how the codec is made. What may change in a schema, and how, is in ``schemas/README.md``.
"""
