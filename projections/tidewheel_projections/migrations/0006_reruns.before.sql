-- A run may repeat another one, which is named here.
ALTER TABLE runs ADD COLUMN rerun_of text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX runs_rerun_of ON runs (dag, rerun_of) WHERE rerun_of <> '';
