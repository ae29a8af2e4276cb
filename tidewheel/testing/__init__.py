"""Shipped with the engine, for its tests and for those of others who build on it.

``playbook`` (given, when, then), ``log_contract`` (what every log driver must do), ``world`` (a whole engine under
virtual time), and the real servers: ``kafka_broker``.
"""
