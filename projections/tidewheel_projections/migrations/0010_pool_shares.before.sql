-- Percent of the pool's slots that the attempt's DAG may hold at once; null: no bound.
ALTER TABLE pool_tasks ADD COLUMN max_pool_share integer;
