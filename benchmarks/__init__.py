"""``make bench``: what the engine does per second and per task, on a real Kafka and a real Postgres, all on one
machine."""
