"""Why a run or a task is not going on, or a DAG has no run: the question that is asked most.

``answer`` looks up what is needed in the read model and the log, and puts the answer together; what follows from what
is found is in modules without I/O: ``shards`` (is anybody deciding at all?), ``runs`` (a run's turn), ``tasks`` (of a
run that has begun), ``ended`` (what failed), ``pools`` (slots), ``dags`` (the next run). Each reason has a stable code
for programs and a sentence for people. The rules that hold things back are the core's; these modules name them, from
rows that may be some milliseconds old.
"""
