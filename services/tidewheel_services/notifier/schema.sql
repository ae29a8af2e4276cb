-- What the notifier remembers and has to deliver. Its own schema: a rebuild of the read model does not touch it.
CREATE SCHEMA IF NOT EXISTS tidewheel_notifier;

-- The next record of `events` to read, of each partition.
CREATE TABLE IF NOT EXISTS tidewheel_notifier.positions (
    partition integer PRIMARY KEY,
    next_offset bigint NOT NULL
);

-- What each version of a DAG wants told, as JSON; empty: nothing.
CREATE TABLE IF NOT EXISTS tidewheel_notifier.versions (
    dag text NOT NULL,
    version text NOT NULL,
    rules text NOT NULL,
    PRIMARY KEY (dag, version)
);

-- Live runs of versions that want something told, with what their notices need, as JSON.
CREATE TABLE IF NOT EXISTS tidewheel_notifier.runs (
    dag text NOT NULL,
    run_id text NOT NULL,
    note text NOT NULL,
    PRIMARY KEY (dag, run_id)
);

-- How the last run of each such DAG ended that was not cancelled.
CREATE TABLE IF NOT EXISTS tidewheel_notifier.outcomes (
    dag text PRIMARY KEY,
    state text NOT NULL
);

-- Notices: `waiting` until `next_at`, then `sent` or `dead`.
CREATE TABLE IF NOT EXISTS tidewheel_notifier.outbox (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    notification text NOT NULL,                     -- dag/run/seq
    target text NOT NULL,
    event text NOT NULL,
    kind text NOT NULL,
    dag text NOT NULL,
    run_id text NOT NULL,
    title text NOT NULL,
    body text NOT NULL,
    partition integer NOT NULL,                     -- where its event lies
    log_offset bigint NOT NULL,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'dead')),
    tries integer NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    reason text NOT NULL DEFAULT '',                -- why the last try failed
    UNIQUE (notification, target)
);
-- Which notifier is sending it, by the name of its life; empty: none is.
ALTER TABLE tidewheel_notifier.outbox ADD COLUMN IF NOT EXISTS claimed_by text NOT NULL DEFAULT '';
CREATE INDEX IF NOT EXISTS outbox_waiting ON tidewheel_notifier.outbox (target, next_at) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS outbox_ended ON tidewheel_notifier.outbox (ended_at) WHERE state <> 'waiting';
