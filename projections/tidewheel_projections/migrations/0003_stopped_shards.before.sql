-- Which shards stand still is told by the newest of these letters in each partition.
CREATE INDEX dead_letters_of_shards ON dead_letters (partition, log_offset DESC)
    WHERE code IN ('shard_stopped', 'shard_resumed');
