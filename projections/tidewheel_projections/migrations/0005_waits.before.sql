-- Tasks that are deferred by themselves (wait_for): what they wait for, until when at most, and the details.
ALTER TABLE tasks ADD COLUMN waits_for text NOT NULL DEFAULT '',   -- 'time', 'kafka', 'http', 'run', 'approval', 'workflow'; '': it does not wait
                  ADD COLUMN resume_at timestamptz,                -- it goes on by itself
                  ADD COLUMN timeout_at timestamptz,               -- it has waited for too long
                  ADD COLUMN wait json;
CREATE INDEX tasks_waiting ON tasks (waits_for, dag, run_id, task) WHERE waits_for <> '';
-- Such an attempt has a row as every other one.
ALTER TABLE attempts DROP CONSTRAINT attempts_state_check,
                     ADD CONSTRAINT attempts_state_check CHECK (state IN ('queued', 'leased', 'running', 'success', 'failed', 'skipped',
                                                                          'upstream_failed', 'cancelled', 'deferred'));
