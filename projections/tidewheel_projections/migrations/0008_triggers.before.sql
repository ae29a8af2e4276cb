-- The trigger that asked for a run, and the record it answers as topic/partition/offset; empty: none did.
ALTER TABLE runs
    ADD COLUMN trigger text NOT NULL DEFAULT '',
    ADD COLUMN origin text NOT NULL DEFAULT '';
