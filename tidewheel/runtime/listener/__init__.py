"""The listener: records of anybody's topics that start runs.

A DAG's ``triggers`` name topics of a feed (``log.feed``): any topic of the user's Kafka. Listeners share the partitions
of all topics that are named, as members of one consumer group, however many triggers a topic has. For each record and
each trigger on its topic a listener looks whether the filter takes it, and if so appends a ``TriggerRun`` to
``triggers``, keyed by the DAG. From there on it is a trigger like any other, with back-pressure and refusals.

**One record is one run.** The run's id is made of the trigger's id and the record's dedupe key (``judging``), so the
same record makes the same run however often it is read. A position is committed once the triggers of all records before
it are acknowledged. So a crash at any point repeats some triggers, and loses none. A transaction over both would only
make the repetition rarer: the author's own key must be judged by the DAG's memory of its runs anyhow, and that memory
takes care of a record read twice as well. It holds the live runs and the last ``core.state.REMEMBERED_RUNS`` that
ended. Two listeners that both believe to hold a partition do no harm either, so nothing fences them.

**What it knows of DAGs** comes from the journal (``definitions``): snapshots first, then ``DagDeployed`` and
``DagRemoved`` as they come. After each poll, and before its records are judged, the journal is read to its end. Whoever
publishes a record after his deployment was answered can so rely on the trigger being known when the record is judged.

**Where a trigger begins.** With the first record written when its DAG was deployed with it, or later, by the records'
own times. ``Dag.trigger_since`` remembers that instant; deploying anew with the trigger still on that topic does not
change it. A topic nobody followed begins there. On a topic that is followed already, a trigger that is new to a
partition gets a *floor*: records before it are not its own. ``Stand.known``, committed beside each position, says which
triggers have no floor any more; without it a listener that was away would take those of its backlog for its start.

**What cannot be judged** (an expression fails on this record, a key is null, inputs are too large) becomes a dead
letter, with the record and the reason, and the position moves on. A record that is not of the DAG's interest is not
written down anywhere.

Beside triggers there is a place for *waits* on records: ``Listener`` shows each record to what subscribes to its topic,
and appends what comes of it. A wait would subscribe by its open deferral in the journal, which ``definitions`` reads
anyhow, and append to ``commands``. Records from before it began are read from ``offsets_at`` on, on the partitions this
member holds, and again when a partition comes to a member, for ending a wait that has ended is refused.
"""
