"""Messages to bytes and back: Avro single-object encoding, schemas from ``schemas/`` by name, decoding that trusts nothing.

Interface settled; see the tests for the rules. An event's record ends with ``chain``, 8 bytes over the previous event's chain and all
bytes of this record before it, so the journal can be proved from its bytes alone.
"""
