-- The attempt of another run that asked for a run (trigger, workflow); '' and 0: none did.
ALTER TABLE runs ADD COLUMN parent_dag text COLLATE "C" NOT NULL DEFAULT '',
                 ADD COLUMN parent_run_id text COLLATE "C" NOT NULL DEFAULT '',
                 ADD COLUMN parent_task text COLLATE "C" NOT NULL DEFAULT '',
                 ADD COLUMN parent_attempt integer NOT NULL DEFAULT 0;
CREATE INDEX runs_of_parent ON runs (parent_dag, parent_run_id, created_at, dag, run_id) WHERE parent_dag <> '';
