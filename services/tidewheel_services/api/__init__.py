"""The HTTP API: reads come from the read model in Postgres, writes become commands on the log and wait for the
answer.

``create_app`` builds the application, ``serve_app`` runs it. The API decides nothing: a write is refused or accepted by
the owner of the shard, and the position in its answer is what a later read waits for to see the effect. No state is
kept here, so any number of API processes can stand side by side. Every error is a problem document (RFC 9457).
"""
