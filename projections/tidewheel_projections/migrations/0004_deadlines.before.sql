-- The deadlines that a run has missed, in the order in which that was found: a list of objects.
ALTER TABLE runs ADD COLUMN deadlines_missed json NOT NULL DEFAULT '[]';
