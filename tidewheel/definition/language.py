"""The language of workflow files: every key, what may stand there, and what editors say about it.

Parsing and the JSON Schema both come from here.
"""

from __future__ import annotations

from typing import Final, get_args

from tidewheel.core.workflow import (
    KEEP_RUNS_MAX,
    Backoff,
    Catchup,
    DeadlineAction,
    DeadlineFrom,
    DstGap,
    DstRepeat,
    InputType,
    NotifyEvent,
    Overlap,
    Pull,
    RetryKind,
    TriggerRule,
)
from tidewheel.definition.shapes import (
    Anything,
    AnythingMap,
    Boolean,
    Choice,
    Condition,
    Duration,
    Either,
    Integer,
    Key,
    ListOf,
    MapOf,
    Moment,
    Number,
    Percent,
    Record,
    Text,
)
from tidewheel.definition.waits import WAIT_FOR

ID_LENGTH_MAX: Final = 200
ID_PATTERN: Final = "[a-z][a-z0-9_]*"
_ID_MEANING: Final = "an id (a small letter, then small letters, digits and underscores)"
_NAME_PATTERN: Final = "[A-Za-z_][A-Za-z0-9_]*"
_NAME_MEANING: Final = "a letter or underscore, then letters, digits and underscores"

ACTIONS: Final = (
    "run",
    "python",
    "http",
    "container",
    "kubernetes",
    "celery",
    "switch",
    "wait_for",
    "trigger",
    "workflow",
)
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_RUN_NOT_TEMPLATED: Final = (
    "a shell command is never templated, so that no value can become code: put the expression under 'env' "
    '(NAME: "${{ … }}") and write "$NAME" in the command'
)

_ID = Text(_ID_MEANING, ID_PATTERN, length_max=ID_LENGTH_MAX)
_ITEM = Text("a name (a small letter, then small letters, digits and underscores)", ID_PATTERN)
_NEED = Text(
    "the id of a task", no_expression="needs are fixed when the workflow is deployed: an expression has no place here"
)
_TEXT = Text()
_TEMPLATE = Text(no_expression="")
_VALUE = Text(no_expression="", loose=True)
_ENV = MapOf(_NAME_PATTERN, _VALUE, "a mapping of names to values", _NAME_MEANING)
_ENV_DOC: Final = "Environment variables; values may hold ${{ }}, also ${{ secrets.NAME }}."

_SCHEDULE = Record(
    "a schedule",
    {
        "cron": Key(
            ListOf(Text("a cron expression"), "a cron expression or a list of them", single=True, required=True),
            'When to run: five cron fields in quotes, such as "0 6 * * *", or a list of them.',
        ),
        "every": Key(
            Duration(minimum_ms=1_000), "Run in fixed steps of elapsed time, such as 15m, instead of by cron."
        ),
        "timezone": Key(_TEXT, "IANA time zone of the cron fields, such as Europe/Berlin.", default="UTC"),
        "start": Key(Moment(), "No slot lies before this; a date is its midnight in the schedule's zone."),
        "end": Key(Moment(), "No slot lies after this; a date counts as a whole."),
        "catchup": Key(
            Choice(get_args(Catchup)),
            "Slots that passed while paused or not deployed: none of them, the latest, or all in order.",
            default="none",
        ),
        "catchup_window": Key(Duration(), "Never recover slots older than this."),
        "overlap": Key(
            Choice(get_args(Overlap)),
            "What becomes of a slot while a scheduled run is not finished: its run queues for a place within max_runs, "
            "the slot is skipped, the run starts whatever max_runs says, or the unfinished ones are cancelled.",
            default="queue",
        ),
        "dst_gap": Key(
            Choice(get_args(DstGap)),
            "A fixed wall time that the clock jumps over: run at the first instant after the gap, or skip.",
            default="run_after",
        ),
        "dst_repeat": Key(
            Choice(get_args(DstRepeat)),
            "A fixed wall time that the clock shows twice: run once, or twice.",
            default="once",
        ),
        "jitter": Key(Duration(0), "Largest delay of a start, derived from the id; the logical date is unchanged."),
        "misfire_grace": Key(
            Duration(0), "A slot missed while no scheduler ran is still run if at most this late.", default="1h"
        ),
    },
    one_of=("cron", "every"),
)

_TOPIC = Text("the name of a Kafka topic (letters, digits, '.', '_' and '-')", "[A-Za-z0-9._-]+", length_max=249)
_TRIGGER = Record(
    "a trigger",
    {
        "id": Key(_ID, "The trigger's id, unique in the workflow.", required=True),
        "kafka": Key(
            Record(
                "kafka",
                {
                    "topic": Key(_TOPIC, "The topic; each of its records starts one run.", required=True),
                    "filter": Key(Condition(), "An expression over event; records for which it is false are not ours."),
                    "dedupe_key": Key(
                        Text("a text with an expression over event", no_expression=""),
                        "Records with the same key are one run; without it each record is a run of its own.",
                    ),
                    "inputs": Key(
                        AnythingMap("a mapping of input names to values"),
                        "Inputs of the run; values may hold expressions over event.",
                    ),
                },
            ),
            "Records of a Kafka topic.",
            required=True,
        ),
    },
)

_INPUT = Record(
    "an input",
    {
        "type": Key(Choice(get_args(InputType)), "The type of the value.", required=True),
        "default": Key(
            Anything(), "Taken when no value is given; may be an expression over run. Without it a value is required."
        ),
        "description": Key(_TEXT, "What the input is for."),
        "enum": Key(ListOf(Anything(), "a list of the allowed values", required=True), "The allowed values."),
    },
)

_RETRY = Record(
    "retry",
    {
        "max": Key(Integer(0, 10_000), "Extra tries after the first.", default=0),
        "delay": Key(Duration(0), "Wait before the first retry.", default="10s"),
        "backoff": Key(Choice(get_args(Backoff)), "How the delay grows from retry to retry.", default="exponential"),
        "max_delay": Key(Duration(0), "The delay never grows beyond this.", default="1d"),
        "jitter": Key(Boolean(), "Spread delays by up to a quarter.", default=True),
        "only_on": Key(
            Record(
                "only_on",
                {
                    "exit_codes": Key(
                        ListOf(Integer(1, 255), "a list of exit codes", required=True),
                        "When the command ended with one of these.",
                    ),
                    "http_status": Key(
                        ListOf(Integer(100, 599), "a status or a list of them", single=True, required=True),
                        "When the answer had one of these statuses.",
                    ),
                    "kinds": Key(
                        ListOf(
                            Choice(get_args(RetryKind)),
                            "a kind of failure or a list of them",
                            single=True,
                            required=True,
                        ),
                        "When the failure is of one of these kinds.",
                    ),
                },
            ),
            "Retry only on these failures: on what any of its keys names.",
        ),
    },
)

#: What a task and the workflow's defaults have in common.
_SHARED: Final = {
    "retries": Key(Integer(0, 10_000), "Short for retry.max: extra tries after the first."),
    "retry": Key(_RETRY, "How often and how soon a failed attempt is tried again."),
    "infra_retries": Key(Integer(0, 10_000), "Extra tries after a lost worker or an expired lease.", default=3),
    "timeout": Key(Duration(), "Longest one attempt may run."),
    "total_timeout": Key(Duration(1_000), "Longest all attempts together may take, the waits between them included."),
    "queue_timeout": Key(Duration(), "Longest it may be ready without a worker taking it; then it fails."),
    "heartbeat_timeout": Key(
        Duration(5_000), "Longest its worker may be silent before the attempt is lost; without it 30 s."
    ),
    "pool": Key(
        Text("the name of a pool (small letters, digits, underscores)", ID_PATTERN, length_max=ID_LENGTH_MAX),
        "The pool whose workers run it.",
        default="default",
    ),
    "pool_slots": Key(Integer(1, 100_000), "Slots that one attempt takes.", default=1),
}
_STATUS = Integer(100, 599)
_HTTP = Record(
    "http",
    {
        "method": Key(Choice(METHODS), "The request's method.", default="GET"),
        "url": Key(_TEMPLATE, "Where to send the request; may hold ${{ }}.", required=True),
        "headers": Key(
            MapOf(
                "[A-Za-z0-9!#$%&'*+.^_`|~-]+", _VALUE, "a mapping of header names to values", "not a legal header name"
            ),
            "Headers; values may hold ${{ }}, also ${{ secrets.NAME }}.",
        ),
        "json": Key(Anything(), "The body as JSON; texts may hold ${{ }}."),
        "body": Key(_TEMPLATE, "The body as text; may hold ${{ }}."),
        "expect": Key(
            ListOf(_STATUS, "a status code or a list of them", single=True, required=True),
            "Status codes that count as success; without it 200 to 299.",
        ),
    },
)

_BRANCH = Record(
    "a branch",
    {
        "if": Key(Condition(), "An expression; the branch is taken if it is true and none before it was."),
        "then": Key(
            ListOf(_NEED, "the id of a task or a list of ids", single=True), "Tasks that go on by this branch."
        ),
        "else": Key(
            ListOf(_NEED, "the id of a task or a list of ids", single=True), "Tasks that go on if no branch was taken."
        ),
    },
    one_of=("then", "else"),
)
_WORDS = ListOf(_VALUE, "a list of words", required=True)
_CONTAINER = Record(
    "container",
    {
        "image": Key(_TEMPLATE, "The image; may hold ${{ }}.", required=True),
        "command": Key(_WORDS, "The command as a list of words, each of which may hold ${{ }}; no shell reads them."),
        "entrypoint": Key(_WORDS, "Replaces the image's entry point."),
        "workdir": Key(_TEXT, "The directory in the container to run in."),
        "user": Key(_TEXT, "The user, or user:group, to run as."),
        "volumes": Key(
            ListOf(_TEMPLATE, "a list of volumes, each source:target", required=True),
            "Directories of the worker's machine, or named volumes: source:target, or source:target:ro.",
        ),
        "network": Key(_TEXT, "The network, such as none or host; without it the engine's default."),
        "memory": Key(Text("an amount such as 512m or 2g", "[1-9][0-9]*[bkmg]?"), "Most memory it may take."),
        "cpus": Key(Number(0.01), "Most processors it may keep busy, such as 1.5."),
        "pull": Key(Choice(get_args(Pull)), "When the image is fetched.", default="missing"),
    },
)

_CALLABLE = Text("module:name", r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_CELERY = Record(
    "celery",
    {
        "app": Key(_CALLABLE, "The Celery application, module:name, in the worker's project.", required=True),
        "task": Key(_TEXT, "The name of its task.", required=True),
        "args": Key(ListOf(Anything(), "a list of arguments"), "Arguments by position; may hold ${{ }}."),
        "kwargs": Key(AnythingMap("a mapping of argument names to values"), "Arguments by name; may hold ${{ }}."),
        "queue": Key(_TEXT, "The Celery queue; without it where the application routes the task."),
    },
)
_KUBERNETES = Record(
    "kubernetes",
    {
        **{name: _CONTAINER.keys[name] for name in ("image", "command", "entrypoint", "memory", "cpus")},
        "namespace": Key(_TEXT, "Where the Job is created.", default="default"),
        "service_account": Key(_TEXT, "As whom its pod runs."),
        "job": Key(AnythingMap("a part of a Job's manifest"), "Merged over the Job's manifest; may hold ${{ }}."),
    },
)
_OTHER_DAG = Text(
    "the id of a DAG",
    ID_PATTERN,
    no_expression="the DAG is fixed when the workflow is deployed: an expression has no place here",
    length_max=ID_LENGTH_MAX,
)

_TASK = Record(
    "a task",
    {
        "id": Key(_ID, "The task's id, unique in the workflow.", required=True),
        "description": Key(_TEXT, "What the task does."),
        "needs": Key(
            ListOf(_NEED, "the id of a task or a list of ids", single=True),
            "Tasks that must end before this one starts.",
        ),
        "trigger_rule": Key(
            Choice(get_args(TriggerRule)), "What the states of its needs must be for it to run.", default="all_success"
        ),
        "if": Key(Condition(), "An expression; the task is skipped when it is false."),
        "run": Key(Text("a shell command", no_expression=_RUN_NOT_TEMPLATED), "A shell command, run by /bin/sh -c."),
        "python": Key(
            Text("a callable as module:name"), "An importable callable, module:name; what it returns is the output."
        ),
        "http": Key(_HTTP, "One HTTP request; the answer is the output."),
        "switch": Key(
            ListOf(_BRANCH, "a list of branches", required=True),
            "The first branch whose condition is true is taken; tasks that only other branches name are skipped.",
        ),
        "container": Key(_CONTAINER, "A container, run to its end by the worker's Docker or Podman."),
        "wait_for": Key(WAIT_FOR, "What the task waits for, without a worker and without slots."),
        "celery": Key(_CELERY, "A task of a Celery application, handed over and waited for; its result is the output."),
        "kubernetes": Key(_KUBERNETES, "A Kubernetes Job, run to its end."),
        "trigger": Key(_OTHER_DAG, "The DAG to start a run of, without waiting for its end."),
        "workflow": Key(_OTHER_DAG, "The DAG to start a run of; the task ends like it."),
        "inputs": Key(
            AnythingMap("a mapping of input names to values"),
            "Inputs of the run that a 'trigger' or 'workflow' task asks for; may hold ${{ }}.",
        ),
        "with": Key(
            AnythingMap("a mapping of argument names to values"), "Arguments of the Python callable; may hold ${{ }}."
        ),
        "env": Key(_ENV, _ENV_DOC),
        "for_each": Key(
            Either(Text("an expression that gives a list, or a list", no_expression=""), ListOf(Anything(), "a list")),
            "Run the task once per item: an expression that gives a list, or the list itself.",
        ),
        "as": Key(_ITEM, "The name by which the task's expressions know the item.", default="item"),
        "max_parallel": Key(Integer(1), "Instances at the same time; without it as many as there are slots."),
        "max_items": Key(Integer(1, 100_000), "More items than these fail the task.", default=1_000),
        "fail_fast": Key(Boolean(), "Whether one failed instance ends the others.", default=False),
        **_SHARED,
    },
    one_of=ACTIONS,
)

_TARGET = Text("the name of a target (small letters, digits, underscores)", ID_PATTERN, length_max=ID_LENGTH_MAX)
_DEADLINE = Record(
    "a deadline",
    {
        "within": Key(
            Duration(1_000, negative=True),
            "How long after 'from' a run should have ended, such as 2h. Negative: warn so long before the deadline of "
            "the same 'from'.",
            required=True,
        ),
        "from": Key(
            Choice(get_args(DeadlineFrom)),
            "Where it begins: the run's slot (a run that no schedule made: its creation), its creation, its start.",
            default="scheduled",
        ),
        "action": Key(
            Choice(get_args(DeadlineAction)), "Tell of it, or end the run as failed as well.", default="alert"
        ),
        "notify": Key(_TARGET, "The target that is told, beside those who listen to deadline_missed."),
    },
)
_NOTIFY = Record(
    "an entry of notify",
    {
        "events": Key(
            ListOf(Choice(get_args(NotifyEvent)), "an event or a list of them", single=True, required=True),
            "What is told.",
            required=True,
        ),
        "to": Key(
            ListOf(_TARGET, "a target or a list of them", single=True, required=True),
            "Who is told: names of targets, which are configured where the notifier runs.",
            required=True,
        ),
    },
)

WORKFLOW: Final = Record(
    "a workflow",
    {
        "id": Key(_ID, "The DAG's id.", required=True),
        "description": Key(_TEXT, "What the workflow is for."),
        "owner": Key(_TEXT, "Who answers for it."),
        "tags": Key(ListOf(_TEXT, "a list of texts"), "Words to find it by."),
        "schedule": Key(
            Either(Text("a cron expression"), _SCHEDULE),
            'When it runs by itself. Short form: five cron fields in quotes, "0 6 * * *" (UTC).',
        ),
        "triggers": Key(ListOf(_TRIGGER, "a list of triggers"), "What starts runs beside the schedule."),
        "inputs": Key(
            MapOf(_NAME_PATTERN, _INPUT, "a mapping of input names to declarations", _NAME_MEANING),
            "Typed parameters of a run, checked before it is created.",
        ),
        "defaults": Key(Record("defaults", _SHARED), "What tasks get unless they say otherwise."),
        "env": Key(_ENV, f"For every task. {_ENV_DOC}"),
        "priority": Key(Integer(-1_000, 1_000), "Higher goes first in every pool.", default=0),
        "concurrency": Key(
            Record(
                "concurrency",
                {
                    "max_runs": Key(Integer(1), "Runs at the same time.", default=16),
                    "max_tasks": Key(Integer(1), "Tasks at the same time, over all runs."),
                    "max_pool_share": Key(Percent(), "The most of any pool's slots that its tasks hold, such as 30%."),
                },
            ),
            "Limits of this workflow over all its runs.",
        ),
        "keep_runs": Key(
            Integer(0, KEEP_RUNS_MAX),
            "How many ended runs stay in memory with their tasks, ready to be cleared or marked.",
            default=20,
        ),
        "deadlines": Key(
            ListOf(_DEADLINE, "a list of deadlines"), "By when a run should have ended, and what follows if it has not."
        ),
        "notify": Key(ListOf(_NOTIFY, "a list of who is told of what"), "Who is told of which events."),
        "tasks": Key(ListOf(_TASK, "a list of tasks", required=True), "What to do.", required=True),
    },
)
