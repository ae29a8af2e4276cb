-- What fences attempts in a Postgres of yours. Run it once in each database that tasks write to, as who may create a
-- schema; again, it changes nothing. Then let the tasks' role in:
--   GRANT USAGE ON SCHEMA tidewheel_effects TO …;
--   GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA tidewheel_effects TO …;
BEGIN;

-- Two who install at the same time would collide in the catalogues.
SELECT pg_advisory_xact_lock(hashtext('tidewheel_effects'));

CREATE SCHEMA IF NOT EXISTS tidewheel_effects;

-- The newest attempt of each task that has claimed.
CREATE TABLE IF NOT EXISTS tidewheel_effects.claims (
    dag text NOT NULL,
    run_id text NOT NULL,
    task text NOT NULL,
    attempt integer NOT NULL CHECK (attempt > 0),
    claimed_at timestamptz NOT NULL,
    PRIMARY KEY (dag, run_id, task)
);

-- Effects that were done, once for each task and run, whichever attempt did them.
CREATE TABLE IF NOT EXISTS tidewheel_effects.done (
    dag text NOT NULL,
    run_id text NOT NULL,
    task text NOT NULL,
    effect text NOT NULL,
    attempt integer NOT NULL CHECK (attempt > 0),
    result jsonb,
    done_at timestamptz NOT NULL,
    PRIMARY KEY (dag, run_id, task, effect)
);

-- Claim a task for an attempt until the transaction ends; older attempts are refused from its commit on. Call it first
-- in each transaction that writes. SQLSTATE TW001: a newer attempt has claimed, roll back and stop.
-- A newer attempt waits until the transaction of an older one has ended. So that it never waits for a process that is
-- stopped or gone, the server ends the session if it does nothing within the transaction for idle_ms.
CREATE OR REPLACE FUNCTION tidewheel_effects.claim(
    the_dag text, the_run_id text, the_task text, the_attempt integer, idle_ms integer DEFAULT 60000
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    newest integer;
BEGIN
    PERFORM set_config(name, idle_ms::text, true) FROM pg_settings
    WHERE name = 'idle_in_transaction_session_timeout' AND (setting::integer = 0 OR setting::integer > idle_ms);

    INSERT INTO tidewheel_effects.claims AS held (dag, run_id, task, attempt, claimed_at)
    VALUES (the_dag, the_run_id, the_task, the_attempt, clock_timestamp())
    ON CONFLICT (dag, run_id, task) DO UPDATE SET attempt = excluded.attempt, claimed_at = excluded.claimed_at
    WHERE held.attempt <= excluded.attempt;

    IF NOT FOUND THEN
        SELECT held.attempt INTO newest FROM tidewheel_effects.claims AS held
        WHERE (held.dag, held.run_id, held.task) = (the_dag, the_run_id, the_task);
        RAISE EXCEPTION 'attempt % of task % in run % of DAG % was replaced by attempt %',
            the_attempt, the_task, the_run_id, the_dag, newest
            USING ERRCODE = 'TW001', DETAIL = coalesce(newest, 0)::text;
    END IF;
END
$$;

-- Claim, and mark an effect as done by this transaction: true the first time. False: it was done, leave it.
CREATE OR REPLACE FUNCTION tidewheel_effects.first_time(
    the_dag text, the_run_id text, the_task text, the_attempt integer, the_effect text, idle_ms integer DEFAULT 60000
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidewheel_effects.claim(the_dag, the_run_id, the_task, the_attempt, idle_ms);
    INSERT INTO tidewheel_effects.done (dag, run_id, task, effect, attempt, done_at)
    VALUES (the_dag, the_run_id, the_task, the_effect, the_attempt, clock_timestamp())
    ON CONFLICT (dag, run_id, task, effect) DO NOTHING;
    RETURN FOUND;
END
$$;

COMMIT;
