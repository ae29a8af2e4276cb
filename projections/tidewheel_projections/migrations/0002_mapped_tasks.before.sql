-- A task with for_each runs once per item: a row for each instance, beside that of the mapped task.
ALTER TABLE tasks
    ADD COLUMN instance integer NOT NULL DEFAULT -1,    -- index of the item, from 0; -1: no instance
    ADD COLUMN item json;                               -- what the instance runs for
