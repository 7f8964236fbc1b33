"""Reward terms that could never be worth anything in the run that a recipe describes, as far as the recipe tells."""

from collections.abc import Sequence

from cairn.config.rewards import LIVED, RECORDED, OverlongTerm, RewardOptions, TermTable, name_of
from cairn.config.tables import PolicyOptions, ReinforcementOptions, RolloutOptions

_ANSWERS_ALONE = frozenset(
    {"pivots", "recorded"}
)  # schedulers that ask for answers at recorded states and nothing else
_ANSWERS_TOO = frozenset({*_ANSWERS_ALONE, "adaptive"})


def check_reachable(
    terms: Sequence[TermTable],
    reward: RewardOptions,
    learning: ReinforcementOptions,
    policy: PolicyOptions,
    rollout: RolloutOptions,
) -> None:
    """Raise a `ValueError` that names the term and the fix."""
    if terms and learning.format_penalty:
        raise ValueError(
            "reinforcement.format_penalty is not heard beside [reward]: add a term of the kind format_error instead"
        )
    for term in terms:
        why = _never(term, reward, learning, policy, rollout)
        if why:
            raise ValueError(f"the reward term {name_of(term)!r} can never be worth anything: {why}")


def _never(
    term: TermTable,
    reward: RewardOptions,
    learning: ReinforcementOptions,
    policy: PolicyOptions,
    rollout: RolloutOptions,
) -> str:
    scheduler = f'reinforcement.scheduler = "{learning.scheduler}"'
    if term.weight == 0:
        return "its weight is 0; leave it out, or give it another weight"
    if term.kind in RECORDED and learning.scheduler not in _ANSWERS_TOO:
        return f'{scheduler} asks for no answers at recorded states; choose "pivots" or "adaptive"'
    if term.kind in LIVED and learning.scheduler in _ANSWERS_ALONE:
        return f'{scheduler} rolls nothing out in live sessions; choose another scheduler, such as "tasks"'
    if term.kind in {"judge", "sub_goal"} and not reward.judge.there:
        return "there is no judge; set reward.judge.url and reward.judge.model, or reward.judge.offline = true"
    if isinstance(term, OverlongTerm) and term.limit - term.buffer >= _most(learning, policy, rollout):
        return f"no trajectory has {term.limit - term.buffer} sampled tokens or more; lower its limit"
    return ""


def _most(learning: ReinforcementOptions, policy: PolicyOptions, rollout: RolloutOptions) -> int:
    """Tokens that may be sampled in one trajectory."""
    answer = policy.max_answer_tokens
    if answer is not None and learning.scheduler in _ANSWERS_ALONE:
        return answer
    return rollout.max_tokens + (answer or 0)  # the last answer may go beyond
