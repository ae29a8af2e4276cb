-- The named queries of `reads`. A name stands in a line `-- name: …`; parameters are psycopg's %(name)s.
-- Optional filters are written `(%(x)s IS NULL OR …)`: such queries are planned with their values each time (see `reads`).

-- name: list_dags
SELECT d.dag, d.version, d.paused, d.removed, d.reason, d.owner, d.description, d.tags, d.schedule,
       tidewheel.iso(d.slot_cursor) AS slot_cursor, d.tasks, tidewheel.iso(d.deployed_at) AS deployed_at,
       tidewheel.iso(d.updated_at) AS updated_at, d.actor, d.partition, d.shard_seq,
       (SELECT count(*) FROM tidewheel.runs r WHERE r.dag = d.dag AND r.state IN ('queued', 'running')) AS live_runs,
       newest.run_id AS last_run_id, newest.state AS last_run_state, tidewheel.iso(newest.created_at) AS last_run_at
FROM tidewheel.dags d
LEFT JOIN LATERAL (
    SELECT r.run_id, r.state, r.created_at FROM tidewheel.runs r WHERE r.dag = d.dag
    ORDER BY r.created_at DESC, r.run_id DESC LIMIT 1
) newest ON true
WHERE (%(after)s::text IS NULL OR d.dag > %(after)s::text COLLATE "C")
  AND (%(dag)s::text IS NULL OR d.dag = %(dag)s::text COLLATE "C")
  AND (%(owner)s::text IS NULL OR d.owner = %(owner)s::text)
  AND (%(tag)s::text IS NULL OR d.tags @> ARRAY[%(tag)s::text])
  AND (%(paused)s::boolean IS NULL OR d.paused = %(paused)s::boolean)
  AND (%(removed)s::boolean IS NULL OR d.removed = %(removed)s::boolean)
  AND (%(search)s::text IS NULL OR strpos(lower(d.dag || ' ' || d.description), lower(%(search)s::text)) > 0)
ORDER BY d.dag
LIMIT %(limit)s::bigint

-- name: list_versions
SELECT v.dag, v.version, tidewheel.iso(v.deployed_at) AS deployed_at, v.actor, v.version = d.version AS current, v.shard_seq
FROM tidewheel.dag_versions v JOIN tidewheel.dags d USING (dag)
WHERE v.dag = %(dag)s::text COLLATE "C" AND (%(after)s::bigint IS NULL OR v.shard_seq < %(after)s::bigint)
ORDER BY v.shard_seq DESC
LIMIT %(limit)s::bigint

-- name: get_version
SELECT v.dag, v.version, tidewheel.iso(v.deployed_at) AS deployed_at, v.actor, v.version = d.version AS current, v.shard_seq,
       v.definition, v.source
FROM tidewheel.dag_versions v JOIN tidewheel.dags d USING (dag)
WHERE v.dag = %(dag)s::text COLLATE "C" AND v.version = %(version)s::text COLLATE "C"

-- name: list_runs
SELECT dag, run_id, version, kind, state, tidewheel.iso(logical_date) AS logical_date, tidewheel.iso(created_at) AS created_at,
       tidewheel.iso(started_at) AS started_at, tidewheel.iso(ended_at) AS ended_at,
       tidewheel.iso(cancel_requested_at) AS cancel_requested_at, reason, deadlines_missed, trigger, origin,
       actor, rerun_of, backfill_id, reopened,
       CASE WHEN parent_dag <> '' THEN json_build_object('dag', parent_dag, 'run_id', parent_run_id, 'task', parent_task,
                                                         'attempt', parent_attempt) END AS parent,
       tasks, counts, shard_seq
FROM tidewheel.runs r
WHERE (%(dag)s::text IS NULL OR dag = %(dag)s::text COLLATE "C")
  AND (%(states)s::text[] IS NULL OR state = ANY (%(states)s::text[]))
  AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
  AND (%(parent_dag)s::text IS NULL OR (parent_dag = %(parent_dag)s::text COLLATE "C" AND parent_dag <> ''
                                        AND parent_run_id = %(parent_run_id)s::text COLLATE "C"))
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s::timestamptz)
  AND (%(after_at)s::timestamptz IS NULL
       OR (created_at, dag, run_id) < (%(after_at)s::timestamptz, %(after_dag)s::text COLLATE "C", %(after_run)s::text COLLATE "C"))
ORDER BY r.created_at DESC, r.dag DESC, r.run_id DESC
LIMIT %(limit)s::bigint

-- name: get_run
SELECT dag, run_id, version, kind, state, tidewheel.iso(logical_date) AS logical_date, tidewheel.iso(created_at) AS created_at,
       tidewheel.iso(started_at) AS started_at, tidewheel.iso(ended_at) AS ended_at,
       tidewheel.iso(cancel_requested_at) AS cancel_requested_at, reason, deadlines_missed, trigger, origin,
       actor, rerun_of, backfill_id, reopened,
       CASE WHEN parent_dag <> '' THEN json_build_object('dag', parent_dag, 'run_id', parent_run_id, 'task', parent_task,
                                                         'attempt', parent_attempt) END AS parent,
       tasks, counts, shard_seq,
       tidewheel.iso(interval_start) AS interval_start, tidewheel.iso(interval_end) AS interval_end, inputs
FROM tidewheel.runs
WHERE dag = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C"

-- name: list_backfills
SELECT b.dag, b.backfill_id, b.state, tidewheel.iso(b.first_slot) AS first, tidewheel.iso(b.last_slot) AS last,
       b.slot_order AS "order", b.mode, b.width, b.reprocess, b.slots, b.skipped, b.runs, r.live, r.succeeded, r.failed,
       r.cancelled, tidewheel.iso(b.slot_cursor) AS cursor, b.reason, b.actor, tidewheel.iso(b.started_at) AS started_at,
       tidewheel.iso(b.ended_at) AS ended_at, tidewheel.iso(b.updated_at) AS updated_at, b.shard_seq
FROM tidewheel.backfills b
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state IN ('queued', 'running')) AS live,
           count(*) FILTER (WHERE state = 'success') AS succeeded,
           count(*) FILTER (WHERE state = 'failed') AS failed,
           count(*) FILTER (WHERE state = 'cancelled') AS cancelled
    FROM tidewheel.runs WHERE dag = b.dag AND backfill_id = b.backfill_id AND backfill_id <> ''
) r
WHERE b.dag = %(dag)s::text COLLATE "C"
  AND (%(backfill_id)s::text IS NULL OR b.backfill_id = %(backfill_id)s::text COLLATE "C")
  AND (%(live)s::boolean IS NULL OR %(live)s::boolean = (b.state IN ('running', 'paused')))
  AND (%(after_at)s::timestamptz IS NULL
       OR (b.started_at, b.backfill_id) < (%(after_at)s::timestamptz, %(after_id)s::text COLLATE "C"))
ORDER BY b.started_at DESC, b.backfill_id DESC
LIMIT %(limit)s::bigint

-- name: list_slot_runs
SELECT (extract(epoch FROM logical_date) * 1000)::bigint AS slot, run_id, state
FROM tidewheel.runs
WHERE dag = %(dag)s::text COLLATE "C" AND logical_date IS NOT NULL
  AND logical_date >= to_timestamp(%(first)s::bigint / 1000.0::float8)
  AND logical_date <= to_timestamp(%(last)s::bigint / 1000.0::float8)
ORDER BY logical_date

-- name: list_tasks
SELECT dag, run_id, task, ordinal, nullif(instance, -1) AS instance, state, attempt, pool, pool_slots, worker, tidewheel.iso(queued_at) AS queued_at,
       tidewheel.iso(leased_at) AS leased_at, tidewheel.iso(started_at) AS started_at, tidewheel.iso(ended_at) AS ended_at,
       tidewheel.iso(retry_at) AS retry_at, nullif(waits_for, '') AS waits_for,
       tidewheel.iso(resume_at) AS resume_at, tidewheel.iso(timeout_at) AS timeout_at, wait,
       tidewheel.iso(checkpoint_at) AS checkpoint_at, checkpoint_bytes, reason, shard_seq
FROM tidewheel.tasks
WHERE dag = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C"
  AND (%(states)s::text[] IS NULL OR state = ANY (%(states)s::text[]))
  AND (%(after_ordinal)s::bigint IS NULL
       OR (ordinal, instance, task)
          > (%(after_ordinal)s::bigint, %(after_instance)s::bigint, %(after_task)s::text COLLATE "C"))
ORDER BY ordinal, instance, task
LIMIT %(limit)s::bigint

-- name: list_waits
SELECT dag, run_id, task, ordinal, nullif(instance, -1) AS instance, state, attempt, pool, pool_slots, worker, tidewheel.iso(queued_at) AS queued_at,
       tidewheel.iso(leased_at) AS leased_at, tidewheel.iso(started_at) AS started_at, tidewheel.iso(ended_at) AS ended_at,
       tidewheel.iso(retry_at) AS retry_at, nullif(waits_for, '') AS waits_for,
       tidewheel.iso(resume_at) AS resume_at, tidewheel.iso(timeout_at) AS timeout_at, wait,
       tidewheel.iso(checkpoint_at) AS checkpoint_at, checkpoint_bytes, reason, shard_seq
FROM tidewheel.tasks
WHERE waits_for <> ''
  AND (%(waits_for)s::text IS NULL OR waits_for = %(waits_for)s::text)
  AND (%(dag)s::text IS NULL OR dag = %(dag)s::text COLLATE "C")
  AND (%(after_for)s::text IS NULL
       OR (tasks.waits_for, dag, run_id, task)
          > (%(after_for)s::text, %(after_dag)s::text COLLATE "C", %(after_run)s::text COLLATE "C",
             %(after_task)s::text COLLATE "C"))
ORDER BY tasks.waits_for, dag, run_id, task
LIMIT %(limit)s::bigint

-- name: get_task
SELECT dag, run_id, task, ordinal, nullif(instance, -1) AS instance, state, attempt, pool, pool_slots, worker, tidewheel.iso(queued_at) AS queued_at,
       tidewheel.iso(leased_at) AS leased_at, tidewheel.iso(started_at) AS started_at, tidewheel.iso(ended_at) AS ended_at,
       tidewheel.iso(retry_at) AS retry_at, nullif(waits_for, '') AS waits_for,
       tidewheel.iso(resume_at) AS resume_at, tidewheel.iso(timeout_at) AS timeout_at, wait,
       tidewheel.iso(checkpoint_at) AS checkpoint_at, checkpoint_bytes, reason, shard_seq, item, output,
       -- A mapped task that knows its items has started, and has no output of its own but by a mark.
       CASE WHEN instance = -1 AND output IS NULL AND started_at IS NOT NULL AND EXISTS (
                SELECT FROM tidewheel.runs r JOIN tidewheel.dag_versions v USING (dag, version),
                            json_array_elements(v.definition -> 'tasks') written
                WHERE r.dag = t.dag AND r.run_id = t.run_id AND written ->> 'id' = t.task
                  AND json_typeof(written -> 'for_each') <> 'null')
            THEN (SELECT count(*) FROM tidewheel.tasks one
                  WHERE one.dag = t.dag AND one.run_id = t.run_id AND one.ordinal = t.ordinal AND one.instance >= 0)
       END AS outputs,
       NULL AS outputs_next
FROM tidewheel.tasks t
WHERE dag = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C" AND task = %(task)s::text COLLATE "C"

-- name: list_outputs
-- Instances are numbered without a gap, so their names are known. Those that have so many bytes together, one at least.
SELECT index, task, state, output
FROM (SELECT one.instance AS index, one.task, one.state, one.output, one.instance = number.first AS is_first,
             sum(octet_length(one.output::text)) OVER (ORDER BY one.instance) AS bytes
      FROM (SELECT n, min(n) OVER () AS first
            FROM generate_series(coalesce(%(after)s::integer, -1) + 1,
                                 coalesce(%(after)s::integer, -1) + %(limit)s::integer) n) number
      JOIN tidewheel.tasks one ON one.dag = %(dag)s::text COLLATE "C" AND one.run_id = %(run_id)s::text COLLATE "C"
                              AND one.task = (%(task)s::text || '[' || number.n || ']') COLLATE "C") found
WHERE is_first OR coalesce(bytes, 0) <= %(bytes)s::bigint
ORDER BY index

-- name: list_attempts
SELECT dag, run_id, task, attempt, state, pool, worker, tidewheel.iso(queued_at) AS queued_at,
       tidewheel.iso(leased_at) AS leased_at, tidewheel.iso(started_at) AS started_at, tidewheel.iso(ended_at) AS ended_at,
       tidewheel.iso(expires_at) AS expires_at, tidewheel.iso(heartbeat_at) AS heartbeat_at,
       tidewheel.iso(cancel_requested_at) AS cancel_requested_at, progress, kind, message, exit_code,
       tidewheel.iso(retry_at) AS retry_at, shard_seq
FROM tidewheel.attempts
WHERE dag = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C"
  AND (%(task)s::text IS NULL OR task = %(task)s::text COLLATE "C")
  AND (%(after_task)s::text IS NULL
       OR (task, attempt) > (%(after_task)s::text COLLATE "C", %(after_attempt)s::integer))
ORDER BY task, attempt
LIMIT %(limit)s::bigint

-- name: list_logs
SELECT attempt, chunk, tidewheel.iso(at) AS at, stream, text
FROM tidewheel.task_logs
WHERE dag = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C" AND task = %(task)s::text COLLATE "C"
  AND attempt = %(attempt)s::integer AND chunk > %(after)s::integer
ORDER BY chunk
LIMIT %(limit)s::bigint

-- name: list_events
SELECT topic, partition, shard_seq, log_offset AS offset, seq, key, run_id, task, attempt, type, tidewheel.iso(at) AS at,
       actor, cause, body
FROM tidewheel.events
WHERE topic = %(topic)s::text COLLATE "C" AND key = %(key)s::text COLLATE "C"
  AND (%(run_id)s::text IS NULL OR run_id = %(run_id)s::text COLLATE "C")
  AND (%(task)s::text IS NULL OR task = %(task)s::text COLLATE "C")
  AND (%(types)s::text[] IS NULL OR type = ANY (%(types)s::text[]))
  AND shard_seq > %(after)s::bigint
ORDER BY shard_seq
LIMIT %(limit)s::bigint

-- name: list_events_newest
SELECT topic, partition, shard_seq, log_offset AS offset, seq, key, run_id, task, attempt, type, tidewheel.iso(at) AS at,
       actor, cause, body
FROM tidewheel.events
WHERE topic = %(topic)s::text COLLATE "C" AND key = %(key)s::text COLLATE "C"
  AND (%(run_id)s::text IS NULL OR run_id = %(run_id)s::text COLLATE "C")
  AND (%(task)s::text IS NULL OR task = %(task)s::text COLLATE "C")
  AND (%(types)s::text[] IS NULL OR type = ANY (%(types)s::text[]))
  AND shard_seq < %(after)s::bigint
ORDER BY shard_seq DESC
LIMIT %(limit)s::bigint

-- name: list_open_tasks
-- Tasks of a run that have not ended, those that are alike together: of a fan-out may be a hundred thousand.
SELECT ordinal, instance >= 0 AS instances, state, reason, pool, pool_slots, nullif(waits_for, '') AS waits_for,
       count(*) AS count, (array_agg(task ORDER BY instance))[1:5] AS tasks,
       (array_agg(attempt ORDER BY instance))[1] AS attempt, (array_agg(worker ORDER BY instance))[1] AS worker,
       (array_agg(wait ORDER BY instance))[1] AS wait, tidewheel.iso(min(queued_at)) AS queued_at,
       tidewheel.iso(min(leased_at)) AS leased_at, tidewheel.iso(min(started_at)) AS started_at,
       tidewheel.iso(min(retry_at)) AS retry_at, tidewheel.iso(min(resume_at)) AS resume_at,
       tidewheel.iso(min(timeout_at)) AS timeout_at
FROM tidewheel.tasks
WHERE dag = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C"
  AND state IN ('scheduled', 'queued', 'leased', 'running', 'deferred', 'retrying')
GROUP BY ordinal, instance >= 0, state, reason, pool, pool_slots, waits_for, CASE WHEN waits_for <> '' THEN task END
ORDER BY ordinal, min(instance), min(task)
LIMIT %(limit)s::bigint

-- name: list_lost_tasks
-- Tasks of a run that failed, or did not run for it, those that are alike together. A reason may go on with a traceback.
SELECT ordinal, instance >= 0 AS instances, state, attempt, reason, count(*) AS count,
       (array_agg(task ORDER BY instance))[1:5] AS tasks
FROM (SELECT ordinal, instance, task, state, CASE state WHEN 'failed' THEN attempt ELSE 0 END AS attempt,
             CASE state WHEN 'failed' THEN split_part(reason, E'\n\n', 1) ELSE '' END AS reason
      FROM tidewheel.tasks
      WHERE dag = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C"
        AND state IN ('failed', 'upstream_failed')) lost
GROUP BY ordinal, instance >= 0, state, attempt, reason
ORDER BY ordinal, min(instance), min(task)
LIMIT %(limit)s::bigint

-- name: get_queue_of_runs
-- What the DAG's live runs come to, seen from one of them. Runs of backfills keep within bounds of their own, until
-- somebody reopens them.
SELECT count(*) FILTER (WHERE state = 'running' AND ordinary) AS running,
       count(*) FILTER (WHERE state = 'queued' AND ordinary AND place < mine) AS before,
       count(*) FILTER (WHERE state = 'queued') AS queued,
       count(*) FILTER (WHERE state = 'queued' AND kind = 'scheduled') AS queued_scheduled,
       coalesce(sum(coalesce((counts ->> 'queued')::bigint, 0) + coalesce((counts ->> 'leased')::bigint, 0)
                    + coalesce((counts ->> 'running')::bigint, 0)), 0)::bigint AS tasks_under_way,
       (array_agg(run_id ORDER BY created_at) FILTER (WHERE state = 'running' AND kind = 'scheduled'))[1:3] AS scheduled
FROM (SELECT *, backfill_id = '' OR reopened > 0 AS ordinary, (coalesce(logical_date, created_at), created_at) AS place,
             (SELECT (coalesce(m.logical_date, m.created_at), m.created_at) FROM tidewheel.runs m
              WHERE m.dag = %(dag)s::text COLLATE "C" AND m.run_id = %(run_id)s::text COLLATE "C") AS mine
      FROM tidewheel.runs WHERE dag = %(dag)s::text COLLATE "C" AND state IN ('queued', 'running')) live

-- name: list_pool_heads
-- Of each DAG that waits in the pool the attempt that goes next, and what the DAG holds there.
SELECT DISTINCT ON (t.dag) t.dag, t.run_id, t.task, t.attempt, t.pool_slots, t.priority,
       tidewheel.iso(t.logical_date) AS logical_date, tidewheel.iso(t.enqueued_at) AS enqueued_at, t.max_pool_share,
       coalesce(held.slots, 0) AS held_slots, t.shard_seq
FROM tidewheel.pool_tasks t
LEFT JOIN (SELECT dag, sum(pool_slots)::bigint AS slots FROM tidewheel.pool_tasks
           WHERE pool = %(pool)s::text COLLATE "C" AND state = 'held' GROUP BY dag) held USING (dag)
WHERE t.pool = %(pool)s::text COLLATE "C" AND t.state = 'waiting'
ORDER BY t.dag, t.priority DESC, t.logical_date, t.shard_seq

-- name: list_pool_holders
SELECT dag, sum(pool_slots)::bigint AS slots FROM tidewheel.pool_tasks
WHERE pool = %(pool)s::text COLLATE "C" AND state = 'held'
GROUP BY dag
ORDER BY slots DESC, dag
LIMIT %(limit)s::bigint

-- name: get_held
SELECT EXISTS (
    SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND datname = current_database()
      AND classid::bigint << 32 | objid::bigint = %(lock)s::bigint
) AS held

-- name: get_place_in_pool
SELECT me.dag, me.run_id, me.task, me.attempt, me.pool_slots, me.priority, tidewheel.iso(me.enqueued_at) AS enqueued_at,
       (SELECT count(*) FROM tidewheel.pool_tasks o
        WHERE o.pool = me.pool AND o.dag = me.dag AND o.state = 'waiting'
          AND (-o.priority, o.logical_date, o.shard_seq) < (-me.priority, me.logical_date, me.shard_seq)) AS before
FROM tidewheel.pool_tasks me
WHERE me.pool = %(pool)s::text COLLATE "C" AND me.dag = %(dag)s::text COLLATE "C"
  AND me.run_id = %(run_id)s::text COLLATE "C" AND me.task = %(task)s::text COLLATE "C"
  AND me.attempt = %(attempt)s::integer AND me.state = 'waiting'

-- name: list_run_history
SELECT shard_seq, type, (extract(epoch FROM at) * 1000)::bigint AS at, actor, task, attempt, body::text AS body
FROM tidewheel.events
WHERE topic = 'events' AND key = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C"
  AND shard_seq > %(after)s::bigint
ORDER BY shard_seq
LIMIT %(limit)s::bigint

-- name: get_size_of_outputs
SELECT coalesce(sum(octet_length(output::text)), 0)::bigint AS size
FROM tidewheel.tasks
WHERE dag = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C"

-- name: list_outputs_of_run
SELECT task, output::text AS output
FROM tidewheel.tasks
WHERE dag = %(dag)s::text COLLATE "C" AND run_id = %(run_id)s::text COLLATE "C" AND output IS NOT NULL

-- name: get_definition
SELECT definition::text AS definition
FROM tidewheel.dag_versions
WHERE dag = %(dag)s::text COLLATE "C" AND version = %(version)s::text COLLATE "C"

-- name: list_pools
SELECT p.pool, p.slots, p.description, p.used, p.held, p.waiting, tidewheel.iso(p.updated_at) AS updated_at, p.shard_seq,
       w.workers, w.worker_slots
FROM tidewheel.pools p
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, coalesce(sum(slots), 0)::bigint AS worker_slots
    FROM tidewheel.workers w WHERE w.pool = p.pool AND w.state = 'active'
) w
WHERE (%(pool)s::text IS NULL OR p.pool = %(pool)s::text COLLATE "C")
  AND (%(after)s::text IS NULL OR p.pool > %(after)s::text COLLATE "C")
ORDER BY p.pool
LIMIT %(limit)s::bigint

-- name: list_workers
WITH page AS MATERIALIZED (
    SELECT * FROM tidewheel.workers
    WHERE (%(pool)s::text IS NULL OR pool = %(pool)s::text COLLATE "C")
      AND (%(states)s::text[] IS NULL OR state = ANY (%(states)s::text[]))
      AND (%(after_pool)s::text IS NULL
           OR (pool, worker) > (%(after_pool)s::text COLLATE "C", %(after_worker)s::text COLLATE "C"))
    ORDER BY pool, worker
    LIMIT %(limit)s::bigint
), used AS (
    SELECT pool, worker, sum(pool_slots)::bigint AS slots FROM tidewheel.pool_tasks
    WHERE state = 'held' AND pool IN (SELECT pool FROM page)
    GROUP BY pool, worker
)
SELECT w.pool, w.worker, w.state, w.slots, coalesce(used.slots, 0) AS used, w.host, w.mail_partition,
       tidewheel.iso(w.joined_at) AS joined_at, tidewheel.iso(w.renewed_at) AS renewed_at,
       tidewheel.iso(w.expires_at) AS expires_at, tidewheel.iso(w.left_at) AS left_at, w.reason, w.shard_seq
FROM page w LEFT JOIN used USING (pool, worker)
ORDER BY w.pool, w.worker

-- name: list_pool_tasks
SELECT pool, dag, run_id, task, attempt, state, pool_slots, priority, tidewheel.iso(logical_date) AS logical_date, worker,
       tidewheel.iso(enqueued_at) AS enqueued_at, tidewheel.iso(granted_at) AS granted_at, shard_seq
FROM tidewheel.pool_tasks
WHERE pool = %(pool)s::text COLLATE "C"
  AND (%(state)s::text IS NULL OR state = %(state)s::text)
  AND (%(worker)s::text IS NULL OR worker = %(worker)s::text)
  AND (%(dag)s::text IS NULL OR dag = %(dag)s::text COLLATE "C")
  AND (%(run_id)s::text IS NULL OR run_id = %(run_id)s::text COLLATE "C")
  AND (%(after_dag)s::text IS NULL
       OR (dag, run_id, task, attempt) > (%(after_dag)s::text COLLATE "C", %(after_run)s::text COLLATE "C",
                                          %(after_task)s::text COLLATE "C", %(after_attempt)s::integer))
ORDER BY dag, run_id, task, attempt
LIMIT %(limit)s::bigint

-- name: list_pool_dags
WITH page AS (
    SELECT dag, coalesce(sum(pool_slots) FILTER (WHERE state = 'held'), 0)::bigint AS used,
           count(*) FILTER (WHERE state = 'held') AS held, count(*) FILTER (WHERE state = 'waiting') AS waiting,
           min(max_pool_share) AS max_pool_share
    FROM tidewheel.pool_tasks
    WHERE pool = %(pool)s::text COLLATE "C"
      AND (%(dag)s::text IS NULL OR dag = %(dag)s::text COLLATE "C")
      AND (%(after)s::text IS NULL OR dag > %(after)s::text COLLATE "C")
    GROUP BY dag
    ORDER BY dag
    LIMIT %(limit)s::bigint
), capacity AS (
    SELECT least(p.slots, w.slots) AS slots
    FROM tidewheel.pools p
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(slots), 0)::bigint AS slots FROM tidewheel.workers w WHERE w.pool = p.pool AND w.state = 'active'
    ) w
    WHERE p.pool = %(pool)s::text COLLATE "C"
)
SELECT page.dag, page.used, page.held, page.waiting, page.max_pool_share,
       greatest(1, page.max_pool_share * capacity.slots / 100) AS share_slots
FROM page CROSS JOIN capacity
ORDER BY page.dag

-- name: list_dead_letters
SELECT partition, log_offset AS offset, tidewheel.iso(at) AS at, source_topic, source_partition, source_offset,
       encode(left_key, 'escape') AS key, octet_length(value) AS value_bytes, code, reason
FROM (SELECT *, substring(key FROM 1 FOR 200) AS left_key FROM tidewheel.dead_letters) d
WHERE (%(after_at)s::timestamptz IS NULL
       OR (at, partition, log_offset) < (%(after_at)s::timestamptz, %(after_partition)s::integer, %(after_offset)s::bigint))
ORDER BY d.at DESC, partition DESC, log_offset DESC
LIMIT %(limit)s::bigint

-- name: get_dead_letter_value
SELECT value FROM tidewheel.dead_letters WHERE partition = %(partition)s::integer AND log_offset = %(offset)s::bigint

-- name: list_stopped_shards
SELECT shard, tidewheel.iso(at) AS since, topic, log_offset AS offset, reason
FROM (SELECT DISTINCT ON (partition) partition AS shard, at, source_topic AS topic, source_offset AS log_offset, code,
             reason
      FROM tidewheel.dead_letters WHERE code IN ('shard_stopped', 'shard_resumed')
      ORDER BY partition, dead_letters.log_offset DESC) newest
WHERE code = 'shard_stopped'
ORDER BY shard

-- name: list_positions
SELECT topic, partition, next_offset, end_offset, greatest(end_offset - next_offset, 0) AS behind, shard_seq,
       tidewheel.iso(last_at) AS last_at, stopped
FROM tidewheel.projection_positions
ORDER BY topic, partition

-- name: get_position
SELECT shard_seq FROM tidewheel.projection_positions WHERE topic = %(topic)s::text AND partition = %(partition)s::integer

-- name: get_projector
SELECT instance, tidewheel.iso(started_at) AS started_at, tidewheel.iso(seen_at) AS seen_at,
       extract(epoch FROM now() - seen_at)::float8 AS silent_s
FROM tidewheel.projector_health
