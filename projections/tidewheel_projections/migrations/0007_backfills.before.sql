-- Backfills, and which of them made a run.
CREATE TABLE backfills (
    dag text COLLATE "C" NOT NULL,
    backfill_id text COLLATE "C" NOT NULL,
    state text NOT NULL CHECK (state IN ('running', 'paused', 'finished', 'cancelled')),
    first_slot timestamptz NOT NULL,
    last_slot timestamptz NOT NULL,
    slot_order text NOT NULL,
    mode text NOT NULL,
    width integer NOT NULL,                         -- runs at a time, or in a chunk
    reprocess text NOT NULL,
    slots bigint NOT NULL,                          -- from the first to the last
    skipped bigint NOT NULL,                        -- passed without a run
    runs bigint NOT NULL,                           -- made so far
    slot_cursor timestamptz,                        -- the slot it came to last
    reason text NOT NULL,                           -- of the last pause, resumption or cancel
    actor text NOT NULL,                            -- who started it
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    updated_at timestamptz NOT NULL,
    shard_seq bigint NOT NULL,
    PRIMARY KEY (dag, backfill_id)
) WITH (fillfactor = 70);
CREATE INDEX backfills_newest ON backfills (dag, started_at, backfill_id);

ALTER TABLE runs ADD COLUMN backfill_id text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX runs_of_backfill ON runs (dag, backfill_id, state) WHERE backfill_id <> '';
-- A slot has one run, whatever made it.
DROP INDEX runs_one_per_slot;
CREATE UNIQUE INDEX runs_one_per_slot ON runs (dag, logical_date) WHERE logical_date IS NOT NULL;
