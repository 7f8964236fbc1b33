"""Terms that ask, the judge that asks nobody, and the one that asks once."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.codecs.thinking import ThinkingCodec
from cairn.data.action import Click, Invalid, Type
from cairn.data.trajectory import Evidence
from cairn.errors import SetupError, VerifierError
from cairn.ports import Asked, Opinion, Question
from cairn.rewards.judge_cache import CachedJudge, key_of
from cairn.rewards.judged import Judged, OverlapJudge, SubGoal, about_task
from cairn.rewards.terms import Case
from rewards.judged_states import CLICK, FIELD, OKAY, TOKENIZER, played, state

CODEC = ThinkingCodec(tokenizer=TOKENIZER)
ASKED = Question(about=Asked.SUB_GOAL, goal="g", said="open the mail", wanted="open the mail")


@dataclass
class Listener:
    """A judge of one mark, which keeps what it was asked and may fail first."""

    score: float = 0.7
    failures: int = 0
    name: str = "listener"
    heard: list[Question] = field(default_factory=list[Question])

    async def judge(self, question: Question) -> Opinion:
        self.heard.append(question)
        await asyncio.sleep(0)
        if len(self.heard) <= self.failures:
            raise VerifierError("down")
        return Opinion(score=self.score, reason="because")


def thinking(text: str):
    return played(CLICK, start=state(Click(OKAY), sub_goal="press okay"), texts=(text,))


async def test_the_thought_is_compared_with_the_recorded_next_step() -> None:
    judge = Listener()
    term = SubGoal(judge=judge, codec=CODEC)
    one = thinking("<think>I press okay.</think><action>click [1]</action>")
    assert await term.value(Case(trajectory=one, solved=False)) == 0.7
    (asked,) = judge.heard
    assert (asked.about, asked.goal, asked.said, asked.wanted) == (
        Asked.SUB_GOAL,
        "press it",
        "I press okay.",
        "press okay",
    )


@pytest.mark.parametrize("text", ["<action>click [1]</action>", "<think> </think><action>click [1]</action>"])
async def test_no_thought_is_worth_nothing_and_nobody_is_asked(text: str) -> None:
    judge = Listener()
    assert await SubGoal(judge=judge, codec=CODEC).value(Case(trajectory=thinking(text), solved=False)) == 0.0
    assert judge.heard == []


async def test_without_a_recorded_step_nothing_is_said() -> None:
    term = SubGoal(judge=Listener(), codec=CODEC)
    for start in (state(Click(OKAY)), None):
        assert await term.value(Case(trajectory=played(CLICK, start=start), solved=False)) is None


async def test_an_episode_is_judged_by_degrees_or_from_a_bound_on() -> None:
    case = Case(trajectory=played(CLICK), solved=False)
    assert await Judged(judge=Listener()).value(case) == 0.7
    assert await Judged(judge=Listener(), least=0.7).value(case) == 1.0
    assert await Judged(judge=Listener(), least=0.8).value(case) == 0.0


async def test_single_answers_are_not_judged_as_episodes_and_empty_ones_not_at_all() -> None:
    judge = Listener()
    assert await Judged(judge=judge).value(Case(trajectory=thinking("x"), solved=False)) is None
    assert await Judged(judge=judge).value(Case(trajectory=played(), solved=False)) == 0.0
    assert judge.heard == []


def test_a_judge_is_told_the_steps_and_not_the_verdict() -> None:
    one = played(Type("bob", FIELD), Invalid("?", "no"), evidence=Evidence(done=True, raw_reward=1.0, state="SECRET"))
    told = replace(one.turns[1], observation=replace(one.turns[1].observation, message="no\nelement 7"))
    asked = about_task(replace(one, turns=(one.turns[0], told)))
    assert asked.goal == "made up"
    assert asked.said.splitlines()[:4] == [
        '1. type input 2 [2] "bob"',
        "   (then it was told: no element 7)",
        "2. an answer that held no action",
        "How it ended: format error.",
    ]
    assert "button 1 [1] button" in asked.said
    assert "SECRET" not in asked.said


@pytest.mark.parametrize(
    ("said", "wanted", "score"),
    [("open the mail", "Open the mail", 1.0), ("open mail", "open the mail", 0.8), ("wait", "open the mail", 0.0)],
)
async def test_the_offline_judge_counts_common_words_in_whole_marks(said: str, wanted: str, score: float) -> None:
    assert (await OverlapJudge().judge(replace(ASKED, said=said, wanted=wanted))).score == score


async def test_it_compares_with_the_goal_where_nothing_in_particular_is_wanted() -> None:
    assert (await OverlapJudge().judge(replace(ASKED, goal="open the mail", wanted=""))).score == 1.0


@given(st.text(max_size=30), st.text(max_size=30))
async def test_it_gives_the_same_mark_every_time_from_nothing_to_all(said: str, wanted: str) -> None:
    one = replace(ASKED, said=said, wanted=wanted)
    first, again = await OverlapJudge().judge(one), await OverlapJudge().judge(one)
    assert first == again
    assert 0.0 <= first.score <= 1.0
    assert first.score * 10 == pytest.approx(round(first.score * 10))


# ── asked once ────────────────────────────────────────────────────────────────


async def test_a_question_is_asked_once_in_this_process_and_in_the_next(tmp_path: Path) -> None:
    asked, path = Listener(), tmp_path / "run" / "judgements.jsonl"
    cached = CachedJudge(asked, path=path)
    assert await cached.judge(ASKED) == await cached.judge(ASKED) == Opinion(score=0.7, reason="because")
    assert len(asked.heard) == 1
    silent = Listener(failures=9)
    assert await CachedJudge(silent, path=path).judge(ASKED) == Opinion(score=0.7, reason="because")
    assert silent.heard == []


async def test_siblings_that_ask_at_once_wait_for_one_answer(tmp_path: Path) -> None:
    asked = Listener()
    cached = CachedJudge(asked, path=tmp_path / "j")
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(cached.judge(ASKED))
        tasks.create_task(cached.judge(replace(ASKED, said="wait")))
    assert len(asked.heard) == 2


async def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    asked = Listener(failures=1)
    cached = CachedJudge(asked, path=tmp_path / "j")
    with pytest.raises(VerifierError, match="down"):
        await cached.judge(ASKED)
    assert not (tmp_path / "j").exists()
    assert (await cached.judge(ASKED)).score == 0.7


async def test_another_judge_or_another_question_is_asked_anew() -> None:
    keys = {key_of("a", ASKED), key_of("b", ASKED)}
    keys |= {key_of("a", replace(ASKED, **{place: "other"})) for place in ("goal", "said", "wanted")}
    keys |= {key_of("a", replace(ASKED, about=Asked.TASK)), key_of("a", replace(ASKED, goal="go", said="pen the mail"))}
    assert len(keys) == 7


async def test_a_torn_line_is_passed_over_and_closed_off(tmp_path: Path) -> None:
    path = tmp_path / "j"
    await CachedJudge(Listener(), path=path).judge(ASKED)
    path.write_bytes(path.read_bytes() + b'{"key": "half')
    other = replace(ASKED, said="wait")
    await CachedJudge(Listener(score=0.1), path=path).judge(other)
    silent = CachedJudge(Listener(failures=9), path=path)
    assert [(await silent.judge(one)).score for one in (ASKED, other)] == [0.7, 0.1]


async def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    cached = CachedJudge(Listener(), path=tmp_path / "judgements")
    (tmp_path / "judgements").mkdir()
    with pytest.raises(SetupError, match="judgements: Is a directory"):
        await cached.judge(ASKED)


async def test_reasons_of_any_letters_are_kept_on_one_line(tmp_path: Path) -> None:
    @dataclass
    class Verbose(Listener):
        async def judge(self, question: Question) -> Opinion:
            return Opinion(score=0.5, reason="a\u2028b\nc\x85")

    first = await CachedJudge(Verbose(), path=tmp_path / "j").judge(ASKED)
    assert await CachedJudge(Listener(failures=9), path=tmp_path / "j").judge(ASKED) == first
