-- A run that had ended may go on: so often.
ALTER TABLE runs ADD COLUMN reopened integer NOT NULL DEFAULT 0;
