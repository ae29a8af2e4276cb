"""Where records live: one interface, three drivers (``memory``, ``sqlite``, ``kafka``) that are strangers to each
other.

``interface`` says what the engine may rely on, ``opening`` turns a URL into a log, ``partition`` places keys as
Kafka's Java client does.
"""
