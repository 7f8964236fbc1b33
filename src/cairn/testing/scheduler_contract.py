"""What every scheduler must do: parametrise one test over `SCHEDULER_CONTRACT`; `make` gives fresh, equal ones."""

import json
from collections.abc import Callable

from cairn.data.task import RolloutPlan, Split
from cairn.ports import Scheduler
from cairn.testing.groups import played_group

Make = Callable[[], Scheduler]
Check = Callable[[Make], None]

_MANY = 60


def play(scheduler: Scheduler, plans: int) -> list[RolloutPlan]:
    """Ask for plans and answer each with a group that is solved more often on some templates than on others."""
    asked: list[RolloutPlan] = []
    for number in range(plans):
        plan = scheduler.next_plan()
        asked.append(plan)
        ease = len(plan.task.template.id) % 3
        rewards = [1.0 if (sibling + number) % 3 < ease else 0.0 for sibling in range(plan.group_size)]
        scheduler.observe(played_group(plan, rewards))
    return asked


def it_is_deterministic(make: Make) -> None:
    """Equal schedulers that are told the same order the same."""
    assert play(make(), _MANY) == play(make(), _MANY)


def a_saved_state_goes_on_where_it_stopped(make: Make) -> None:
    """A round trip through JSON changes nothing of what follows, wherever it happens."""
    for stop in (0, 1, 7, _MANY // 2):
        one, other = make(), make()
        play(one, stop)
        other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        assert play(one, _MANY) == play(other, _MANY)


def no_two_plans_share_a_name_or_a_seed(make: Make) -> None:
    """Groups can be told apart, and no two of them sample alike."""
    plans = play(make(), _MANY)
    assert len({plan.group_id for plan in plans}) == len(plans)
    assert len({plan.seed for plan in plans}) == len(plans)


def it_never_orders_a_held_out_task(make: Make) -> None:
    """Held-out seeds are for evaluation alone."""
    assert {plan.task.split for plan in play(make(), _MANY)} == {Split.TRAIN}


def a_plan_stays_within_its_template(make: Make) -> None:
    """No plan is deeper than its template allows."""
    assert all(plan.depth <= plan.task.template.max_turns for plan in play(make(), _MANY))


def an_empty_group_is_no_evidence(make: Make) -> None:
    """A group whose members were all lost is observed without harm."""
    scheduler = make()
    scheduler.observe(played_group(scheduler.next_plan(), []))
    scheduler.next_plan()


SCHEDULER_CONTRACT: tuple[Check, ...] = (
    it_is_deterministic,
    a_saved_state_goes_on_where_it_stopped,
    no_two_plans_share_a_name_or_a_seed,
    it_never_orders_a_held_out_task,
    a_plan_stays_within_its_template,
    an_empty_group_is_no_evidence,
)
