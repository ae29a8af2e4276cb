"""The outside witness: bookkeeping of its own over journal events, beside ``core.fold`` and ``core.decide``."""
