-- When a task's attempt last left a checkpoint for the next one, and its size; null: there is none.
ALTER TABLE tasks ADD COLUMN checkpoint_at timestamptz, ADD COLUMN checkpoint_bytes integer;
