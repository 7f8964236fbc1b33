"""The reward that a recipe describes, put together, and whether its terms can be worth anything in this run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.codecs.dialects.choice import Dialect
from cairn.config.presets import resolved
from cairn.config.rewards import (
    LIVED,
    RECORDED,
    ActionTypeTerm,
    BoxTerm,
    ExpertMatchTerm,
    FormatBalanceTerm,
    FormatErrorTerm,
    FormatTerm,
    JudgeOptions,
    JudgeTerm,
    LengthTerm,
    OverlongTerm,
    ParametersTerm,
    PointTerm,
    ProgressTerm,
    RewardOptions,
    ShortestPathTerm,
    SubGoalTerm,
    SuccessTerm,
    TermTable,
    TextTerm,
    name_of,
)
from cairn.config.tables import PolicyOptions
from cairn.data.action import Action
from cairn.data.answer import AnswerShape
from cairn.data.task import Recorded
from cairn.engines.chat import ChatEndpoint
from cairn.engines.judge import ChatJudge, load_prompt
from cairn.errors import ConfigError
from cairn.ports import Asked, Codec, Composition, Judge, ReadableCodec
from cairn.rewards import terms as measures
from cairn.rewards.composed import Composed, Gate, GroupPart, Part
from cairn.rewards.grouped import GroupMeasure, LengthBudget, ShortestPath
from cairn.rewards.judge_cache import CachedJudge
from cairn.rewards.judged import Judged, OverlapJudge, SubGoal
from cairn.rewards.recorded import HitRule, Place, WordRule, answered_box, boxes, lacks_box, pointed, text_of

JUDGEMENTS = "judgements.jsonl"
"""Where a run keeps what its judge has said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardParts:
    """What a reward is made of, besides its table."""

    codec: Codec
    judge: Judge | None  # None where the recipe names none
    longest: int  # tokens of an answer at most


_Together = LengthTerm | ShortestPathTerm
_Alone = (
    FormatTerm | FormatBalanceTerm | FormatErrorTerm | OverlongTerm | ActionTypeTerm | PointTerm | BoxTerm | TextTerm
    | ParametersTerm | SubGoalTerm | ExpertMatchTerm | SuccessTerm | ProgressTerm | JudgeTerm
)  # fmt: skip


def build_composition(options: RewardOptions, parts: RewardParts) -> Composition | None:
    """None where the recipe leaves the reward to success and agreement with the expert."""
    terms, correct = resolved(options)
    if not terms:
        return None
    alone = [term for term in terms if not isinstance(term, _Together)]
    together = [term for term in terms if isinstance(term, _Together)]
    return Composed(
        parts=[Part(name=name_of(t), weight=t.weight, measure=_measure(t, parts), gate=_gate(t)) for t in alone],
        group_parts=[
            GroupPart(name=name_of(t), weight=t.weight, measure=_group_measure(t, parts), gate=_gate(t))
            for t in together
        ],
        correct=correct,
        at_recorded=any(term.kind in RECORDED for term in terms),
        in_sessions=any(term.kind in LIVED for term in terms),
    )


def build_judge(options: JudgeOptions, *, folder: Path | None) -> Judge | None:
    """Who is asked; what was said is kept in `folder`, and not asked again. None where the recipe names nobody."""
    if options.offline:
        return OverlapJudge()
    if options.url is None:
        return None
    judge = ChatJudge(
        endpoint=ChatEndpoint(
            url=options.url, model=options.model, key_variable=options.key_variable, seconds=options.seconds
        ),
        task=load_prompt(Asked.TASK, _path(options.task_prompt)),
        sub_goal=load_prompt(Asked.SUB_GOAL, _path(options.sub_goal_prompt)),
    )
    return judge if folder is None else CachedJudge(judge, path=folder / JUDGEMENTS)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _gate(term: TermTable) -> Gate:
    return Gate(needs=tuple(term.needs), unless=tuple(term.unless))


def _group_measure(term: _Together, parts: RewardParts) -> GroupMeasure:
    match term:
        case LengthTerm():
            return LengthBudget(limit=parts.longest if term.longest == "limit" else None)
        case ShortestPathTerm():
            return ShortestPath(alpha=term.alpha)


def _measure(term: _Alone, parts: RewardParts) -> measures.Measure:
    match term:
        case FormatTerm() | FormatBalanceTerm() | FormatErrorTerm() | OverlongTerm():
            return _of_form(term, parts.codec)
        case SubGoalTerm():
            return SubGoal(judge=_judge(term, parts), codec=_readable(term, parts.codec, AnswerShape.THINK_ANSWER))
        case JudgeTerm():
            return Judged(judge=_judge(term, parts), least=term.least)
        case SuccessTerm():
            return measures.Solved()
        case ProgressTerm():
            return measures.Progress()
        case _:
            return _of_answer(term)


def _of_form(term: FormatTerm | FormatBalanceTerm | FormatErrorTerm | OverlongTerm, codec: Codec) -> measures.Measure:
    match term:
        case FormatTerm():
            return measures.Format(formed=_formed(term, codec, parses=term.parses))
        case FormatBalanceTerm():
            return measures.FormatBalance(formed=_formed(term, codec, parses=True))
        case FormatErrorTerm():
            return measures.FormatError()
        case OverlongTerm():
            return measures.Overlong(limit=term.limit, buffer=term.buffer, factor=term.factor)


def _of_answer(
    term: ActionTypeTerm | PointTerm | BoxTerm | TextTerm | ParametersTerm | ExpertMatchTerm,
) -> measures.Measure:
    match term:
        case ActionTypeTerm():
            return measures.ActionType()
        case PointTerm():
            return measures.PointInBox(rule=_place(term))
        case BoxTerm():
            return measures.BoxOverlap(least=term.least)
        case TextTerm():
            return measures.TextOverlap(rule=None if term.graded else WordRule(least=term.least, strict=term.strict))
        case ParametersTerm():
            text = WordRule(least=term.least if term.text == "overlap" else None)
            return measures.Parameters(place=_place(term), text=text, scroll_place=term.scroll_place)
        case ExpertMatchTerm():
            return measures.Matched()


def _place(term: PointTerm | ParametersTerm) -> HitRule:
    return HitRule(place=Place(term.place), share=term.share)


def _formed(term: FormatTerm | FormatBalanceTerm, codec: Codec, *, parses: bool) -> measures.WellFormed:
    if term.shape == "parsable":
        return measures.WellFormed(codec=None, shape=AnswerShape.ANSWER)
    wanted = AnswerShape(term.shape)
    return measures.WellFormed(codec=_readable(term, codec, wanted), shape=wanted, parses=parses)


def _readable(term: TermTable, codec: Codec, shape: AnswerShape) -> ReadableCodec:
    if isinstance(codec, ReadableCodec) and shape in codec.shapes:
        return codec
    raise _formless(term, shape, codec.shapes if isinstance(codec, ReadableCodec) else frozenset())


def _formless(term: TermTable, shape: AnswerShape, shapes: frozenset[AnswerShape]) -> ConfigError:
    fix = f'shape = "{min(shapes)}"' if shapes else 'shape = "parsable"'
    lack = "thought before the action" if shape is AnswerShape.THINK_ANSWER else "answers that are text"
    return _unreachable(
        term,
        f'policy.codec has no {lack}; choose one that has, such as policy.codec = "thinking"'
        + (f", or {fix} for the term" if isinstance(term, FormatTerm | FormatBalanceTerm) else ", or leave it out"),
    )


def _judge(term: TermTable, parts: RewardParts) -> Judge:
    if parts.judge is None:
        raise _unreachable(term, "there is no judge; set reward.judge.url and reward.judge.model")
    return parts.judge


def _unreachable(term: TermTable, why: str) -> ConfigError:
    return ConfigError(f"the reward term {name_of(term)!r} can never be worth anything: {why}")


# ── reachability ──────────────────────────────────────────────────────────────


def check_formats(options: RewardOptions, policy: PolicyOptions) -> None:
    """Raise a `ConfigError` where a term looks for what the codec never says, by its name: nothing is loaded for it."""
    shapes = _shapes(policy)
    for term in resolved(options)[0]:
        match term:
            case FormatTerm() | FormatBalanceTerm() if term.shape != "parsable":
                wanted = AnswerShape(term.shape)
            case SubGoalTerm():
                wanted = AnswerShape.THINK_ANSWER
            case _:
                continue
        if wanted not in shapes:
            raise _formless(term, wanted, shapes)


def _shapes(policy: PolicyOptions) -> frozenset[AnswerShape]:
    match policy.codec:
        case "pixel":
            return frozenset()
        case "text":
            return frozenset({AnswerShape.ANSWER})
        case "thinking":
            return frozenset(AnswerShape) if policy.think else frozenset({AnswerShape.ANSWER})
        case dialect:
            grammar = Dialect(dialect).grammar
            return grammar.shapes if policy.think or grammar.bare is None else grammar.bare.shapes


def check_states(options: RewardOptions, codec: Codec, states: Sequence[Recorded]) -> None:
    """Raise a `ConfigError` where a term can never be worth anything at these recorded states; none: nothing is asked.

    Also where a state lacks the box that a term needs: what is missing is told before the first update.
    """
    if not states:
        return
    for term in resolved(options)[0]:
        match term:
            case TextTerm():
                _need(term, states, lambda s: bool(text_of(s.expert)), "no recorded expert action has a text")
            case SubGoalTerm():
                _need(term, states, lambda s: bool(s.sub_goal), "no recorded state has a sub-goal written down")
            case PointTerm():
                _need(term, states, lambda s: bool(pointed(s.expert)), "no recorded expert action has a place")
                _check_boxes(term, states)
            case ParametersTerm():
                _check_boxes(term, states)
            case BoxTerm():
                _need(term, states, lambda s: any(boxes(s)), "no recorded state has a box")
                _need(term, states, lambda s: _says_boxes(codec, s), "policy.codec names no elements, and so no boxes")
            case _:
                pass


def _need(term: TermTable, states: Sequence[Recorded], there: Callable[[Recorded], bool], lack: str) -> None:
    if not any(there(state) for state in states):
        raise _unreachable(term, f"{lack}; record states that have one, or leave the term out")


def _check_boxes(term: PointTerm | ParametersTerm, states: Sequence[Recorded]) -> None:
    lacking = [state for state in states if lacks_box(state)]
    if lacking and term.share is None:
        raise ConfigError(
            f"the reward term {name_of(term)!r} needs a box where the expert's action has a place, and {len(lacking)} "
            f"of {len(states)} recorded states have none (the first: {lacking[0].goal!r}); record boxes, or give the "
            "term a share of the screen, such as share = 0.14"
        )


def _says_boxes(codec: Codec, state: Recorded) -> bool:
    action: Action = codec.primitive(state.expert, state.observation)
    answers = codec.answers(state.goal, action, state.observation)
    return any(
        answered_box(codec.parse(state.goal, ids, state.observation), state.observation) is not None
        for ids in answers[:1]
    )
