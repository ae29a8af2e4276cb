"""Since when a trigger takes records: what moves that instant, and what does not."""

from __future__ import annotations

from tests.core.scenes import NOW, RULES, definition, task
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Records, Trigger, Workflow
from tidewheel.testing.playbook import Outcome, given

LATE = Trigger(id="late", kafka=Records(topic="files"))
EARLY = Trigger(id="early", kafka=Records(topic="files"))


def deploy(*triggers: Trigger, version: str = "v1", text: str = "") -> c.DeployDag:
    of = Workflow(id="d", tasks=(task("a"),), triggers=triggers, description=text)
    return c.DeployDag(dag="d", version=version, definition=definition(of))


def since(outcome: Outcome) -> dict[str, int]:
    return dict(outcome.decision.state.trigger_since)


def test_a_trigger_begins_with_its_deployment_and_goes_on_when_it_is_deployed_anew() -> None:
    first = given(Dag(dag="d"), rules=RULES).when(deploy(LATE), at=NOW)
    assert since(first) == {"late": NOW}
    filtered = Trigger(id="late", kafka=Records(topic="files", filter="event.key == 'a'"))
    again = first.when(deploy(filtered, EARLY, version="v2"), at=NOW + 10)
    assert since(again) == {"late": NOW, "early": NOW + 10}


def test_another_topic_and_a_new_id_begin_anew() -> None:
    first = given(Dag(dag="d"), rules=RULES).when(deploy(LATE), at=NOW)
    moved = first.when(deploy(Trigger(id="late", kafka=Records(topic="others")), version="v2"), at=NOW + 10)
    assert since(moved) == {"late": NOW + 10}
    assert since(first.when(deploy(version="v2"), at=NOW + 10)) == {}


def test_what_was_dropped_or_removed_begins_anew_when_it_comes_back() -> None:
    first = given(Dag(dag="d"), rules=RULES).when(deploy(LATE), at=NOW)
    dropped = first.when(deploy(version="v2"), at=NOW + 10).when(deploy(LATE, version="v3"), at=NOW + 20)
    assert since(dropped) == {"late": NOW + 20}
    removed = first.when(c.RemoveDag(dag="d"), at=NOW + 10).when(deploy(LATE), at=NOW + 20)
    assert since(removed) == {"late": NOW + 20}


def test_a_run_says_which_trigger_and_which_record_it_answers() -> None:
    outcome = given(Dag(dag="d"), rules=RULES).when(deploy(LATE), at=NOW)
    asked = c.StartRun(dag="d", run_id="r", kind="kafka", trigger="late", origin="files/0/7")
    created = outcome.when(asked, at=NOW).decision.events[0]
    assert isinstance(created, e.RunCreated)
    assert (created.trigger, created.origin) == ("late", "files/0/7")
