"""What workflows that are checked together say of each other: whether those that their tasks ask for runs exist, and
take these inputs, and end.

None of it is a mistake of a file: what is not here may be deployed from elsewhere. So it is told as a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidewheel.core.inputs import InputMistake, check_value
from tidewheel.core.nearest import did_you_mean
from tidewheel.core.workflow import SubWorkflow, Task, TriggerDag, Workflow
from tidewheel.definition.assemble import is_computed
from tidewheel.definition.load import Loaded
from tidewheel.definition.mistakes import Mistake


def check_links(files: Iterable[Loaded]) -> list[Mistake]:
    """What looks wrong between these workflows, each at the line of the id of the one that says it. One alone is not
    judged."""
    loaded = [(one, one.workflow) for one in files if one.workflow is not None]
    known = {workflow.id: workflow for _, workflow in loaded}
    if len(known) < 2:
        return []
    found = [
        Mistake(one.file, one.line, 1, code, message)
        for one, workflow in loaded
        for task in workflow.tasks
        if isinstance(task.action, TriggerDag | SubWorkflow)
        for code, message in _of_task(task, task.action, known)
    ]
    places = {workflow.id: one for one, workflow in loaded}
    for circle in _circles(known):
        place = places[circle[0]]
        shown = " -> ".join((*circle, circle[0]))
        message = f"these workflows wait for each other: {shown}; such a run ends only if a condition ends it"
        found.append(Mistake(place.file, place.line, 1, "workflow_cycle", message))
    return sorted(found)


def _of_task(task: Task, action: TriggerDag | SubWorkflow, known: Mapping[str, Workflow]) -> Iterator[tuple[str, str]]:
    target = known.get(action.dag)
    if target is None:
        hint = did_you_mean(action.dag, known)
        yield "unknown_workflow", f"task {task.id!r} asks for {action.dag!r}, which is not among these files{hint}"
        return
    for name, value in action.inputs.items():
        declared = target.inputs.get(name)
        if declared is None:
            hint = did_you_mean(name, target.inputs) or ("" if target.inputs else ": it declares none")
            yield (
                "unknown_input",
                f"task {task.id!r} gives {action.dag!r} the input {name!r}, which it does not have{hint}",
            )
        elif not is_computed(value):
            try:
                check_value(declared, value)
            except InputMistake as mistake:
                yield "bad_input", f"task {task.id!r} gives {action.dag!r} the input {name!r}: {mistake}"
    for name, declared in target.inputs.items():
        if declared.required and name not in action.inputs:
            yield "missing_input", f"task {task.id!r} gives {action.dag!r} no input {name!r}, which it requires"


def _circles(known: Mapping[str, Workflow]) -> Iterator[tuple[str, ...]]:
    """Circles of workflows that wait for each other, each once; one that waits for itself is refused by itself."""
    waits = {
        name: [task.action.dag for task in workflow.tasks if isinstance(task.action, SubWorkflow)]
        for name, workflow in known.items()
    }
    done: set[str] = set()
    for start in waits:
        path: list[str] = []
        stack = [(start, iter(waits[start]))] if start not in done else []
        path += [start] if stack else []
        while stack:
            following = next(stack[-1][1], None)
            if following is None:
                done.add(path.pop())
                stack.pop()
            elif following in path:
                circle = tuple(path[path.index(following) :])
                if len(circle) > 1:
                    yield circle
            elif following in waits and following not in done:
                path.append(following)
                stack.append((following, iter(waits[following])))
