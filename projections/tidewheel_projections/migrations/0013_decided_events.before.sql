-- What people decided about runs, and slots that got none: few events among very many, found without reading the others.
CREATE INDEX events_decided ON events (key, shard_seq)
    WHERE type IN ('RunReopened', 'RunRestarted', 'TasksCleared', 'TaskMarked', 'RunCancelRequested', 'SlotsSkipped');
