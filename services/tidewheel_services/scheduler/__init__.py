"""The scheduler process: an owner of shards, DAGs and pools alike."""
