-- The read model, first version.
--
-- Files are named NNNN_name.before.sql (safe while the old code still runs; applied by the projector at start) or
-- NNNN_name.after.sql (only once no old code runs; applied on request). Names are unqualified: the caller sets search_path,
-- which is the schema `tidewheel` for the tables people read, another for a rebuild under way.
--
-- Ids are compared by bytes (COLLATE "C"), so that rows sort the same here and in the projector, which always writes in key order.
-- JSON that comes from users is `json`, not `jsonb`: jsonb refuses \u0000 and huge numbers, and one such output must not stop the projector.
-- `shard_seq` on a row is the number, in its journal partition, of the last event that changed it: an older event is a no-op.

-- Instants as the API writes them: 2026-11-29T06:00:00.000Z.
CREATE FUNCTION iso(instant timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_char(instant AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

CREATE TABLE read_model (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch uuid NOT NULL DEFAULT gen_random_uuid()   -- another after a rebuild: a running projector then starts over from these tables
);
INSERT INTO read_model DEFAULT VALUES;

CREATE TABLE schema_migrations (
    file text COLLATE "C" PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Where the projector stands: written in the same transaction as the rows.
CREATE TABLE projection_positions (
    topic text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    last_offset bigint NOT NULL DEFAULT -1,         -- of the last record applied; a restart reads it again and proves it is the same log
    next_offset bigint NOT NULL DEFAULT 0,          -- past markers that follow it, for the lag
    shard_seq bigint NOT NULL DEFAULT 0,            -- journals only
    chain bytea NOT NULL DEFAULT '\x0000000000000000',
    last_at timestamptz,                            -- when the last applied event was decided
    end_offset bigint NOT NULL DEFAULT 0,           -- the log's end when last looked at
    stopped text NOT NULL DEFAULT '',               -- why this partition is not followed any further
    PRIMARY KEY (topic, partition)
);

-- The projector that writes now, for health: one row.
CREATE TABLE projector_health (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    instance text NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
);

CREATE TABLE dags (
    dag text COLLATE "C" PRIMARY KEY,
    version text NOT NULL,
    paused boolean NOT NULL,
    removed boolean NOT NULL,
    reason text NOT NULL,                           -- of the last pause or removal
    owner text NOT NULL,
    description text NOT NULL,
    tags text[] NOT NULL,
    schedule json,
    slot_cursor timestamptz,                        -- slots after this instant are owed; null: no schedule
    tasks integer NOT NULL,
    deployed_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    actor text NOT NULL,                            -- of the last change
    partition integer NOT NULL,
    shard_seq bigint NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX dags_tags ON dags USING gin (tags);

CREATE TABLE dag_versions (
    dag text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    definition json NOT NULL,
    source text NOT NULL,
    deployed_at timestamptz NOT NULL,               -- the first time
    actor text NOT NULL,
    shard_seq bigint NOT NULL,
    PRIMARY KEY (dag, version)
);
CREATE INDEX dag_versions_newest ON dag_versions (dag, shard_seq);

CREATE TABLE runs (
    dag text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    version text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL CHECK (state IN ('queued', 'running', 'success', 'failed', 'cancelled')),
    logical_date timestamptz,
    interval_start timestamptz,
    interval_end timestamptz,
    inputs json NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    ended_at timestamptz,
    cancel_requested_at timestamptz,
    reason text NOT NULL,
    actor text NOT NULL,                            -- who created it
    tasks integer NOT NULL,
    counts json NOT NULL,                           -- {"success": 18, "running": 1}: tasks by state, zeros left out
    shard_seq bigint NOT NULL,
    PRIMARY KEY (dag, run_id)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX runs_one_per_slot ON runs (dag, logical_date) WHERE kind = 'scheduled';
CREATE INDEX runs_newest ON runs (created_at, dag, run_id);
CREATE INDEX runs_newest_of_dag ON runs (dag, created_at, run_id);
CREATE INDEX runs_live ON runs (dag, created_at, run_id) WHERE state IN ('queued', 'running');
CREATE INDEX runs_failed ON runs (created_at, dag, run_id) WHERE state = 'failed';

CREATE TABLE tasks (
    dag text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    ordinal integer NOT NULL,                       -- its place in the definition
    state text NOT NULL CHECK (state IN ('scheduled', 'queued', 'leased', 'running', 'success', 'failed', 'skipped',
                                         'upstream_failed', 'cancelled', 'deferred', 'retrying')),
    attempt integer NOT NULL,                       -- 0: none yet
    pool text NOT NULL,
    pool_slots integer NOT NULL,
    worker text NOT NULL,
    queued_at timestamptz,
    leased_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    retry_at timestamptz,
    reason text NOT NULL,
    output json,
    shard_seq bigint NOT NULL,
    PRIMARY KEY (dag, run_id, task)
) WITH (fillfactor = 70);

CREATE TABLE attempts (
    dag text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    attempt integer NOT NULL,
    state text NOT NULL CHECK (state IN ('queued', 'leased', 'running', 'success', 'failed', 'skipped', 'upstream_failed', 'cancelled')),
    pool text NOT NULL,
    worker text NOT NULL,
    queued_at timestamptz,
    leased_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    expires_at timestamptz,                         -- of the lease; null once it ended
    heartbeat_at timestamptz,
    cancel_requested_at timestamptz,
    progress json,
    kind text NOT NULL,                             -- of the failure
    message text NOT NULL,
    exit_code integer,
    retry_at timestamptz,
    shard_seq bigint NOT NULL,
    PRIMARY KEY (dag, run_id, task, attempt)
) WITH (fillfactor = 70);

CREATE TABLE task_logs (
    dag text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    attempt integer NOT NULL,
    chunk integer NOT NULL,
    at timestamptz NOT NULL,
    stream text NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (dag, run_id, task, attempt, chunk)
);

-- What happened, for people: the journal without heartbeats and renewals and without a pool's per-attempt bookkeeping, which says
-- nothing that the DAG's own events do not. `key` is the aggregate: the DAG's or the pool's name; it fixes the partition.
CREATE TABLE events (
    topic text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    shard_seq bigint NOT NULL,
    log_offset bigint NOT NULL,
    seq bigint NOT NULL,                            -- in its aggregate
    run_id text COLLATE "C" NOT NULL,               -- '' : of the DAG or pool itself
    task text COLLATE "C" NOT NULL,
    attempt integer NOT NULL,
    type text NOT NULL,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    cause text NOT NULL,
    body json NOT NULL,                             -- the other fields, without definitions, sources and outputs
    PRIMARY KEY (topic, key, shard_seq)
);
CREATE INDEX events_of_run ON events (key, run_id, shard_seq) WHERE run_id <> '';
CREATE INDEX events_at ON events USING brin (at);

CREATE TABLE pools (
    pool text COLLATE "C" PRIMARY KEY,
    slots integer,                                  -- null: as many as its workers have
    description text NOT NULL,
    used integer NOT NULL,                          -- slots held
    held integer NOT NULL,                          -- attempts that hold them
    waiting integer NOT NULL,                       -- attempts in the queue
    updated_at timestamptz NOT NULL,
    shard_seq bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE workers (
    pool text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    state text NOT NULL CHECK (state IN ('active', 'suspended', 'left')),
    slots integer NOT NULL,
    host text NOT NULL,
    mail_partition integer NOT NULL,
    joined_at timestamptz NOT NULL,
    renewed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    left_at timestamptz,
    reason text NOT NULL,
    shard_seq bigint NOT NULL,
    PRIMARY KEY (pool, worker)
) WITH (fillfactor = 50);

-- Attempts in a pool now: its queue and its leases. A row goes when the attempt leaves the pool.
CREATE TABLE pool_tasks (
    pool text COLLATE "C" NOT NULL,
    dag text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    attempt integer NOT NULL,
    state text NOT NULL CHECK (state IN ('waiting', 'held')),
    pool_slots integer NOT NULL,
    priority integer NOT NULL,
    logical_date timestamptz NOT NULL,
    worker text NOT NULL,
    enqueued_at timestamptz NOT NULL,
    granted_at timestamptz,
    shard_seq bigint NOT NULL,
    PRIMARY KEY (pool, dag, run_id, task, attempt)
) WITH (fillfactor = 70);

CREATE TABLE dead_letters (
    partition integer NOT NULL,                     -- of the dead-letters topic
    log_offset bigint NOT NULL,
    at timestamptz NOT NULL,
    source_topic text NOT NULL,
    source_partition integer NOT NULL,
    source_offset bigint NOT NULL,
    key bytea,
    value bytea,
    code text NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (partition, log_offset)
);
CREATE INDEX dead_letters_newest ON dead_letters (at, partition, log_offset);
