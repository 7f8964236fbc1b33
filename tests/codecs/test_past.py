"""What prompts tell of earlier turns: whole pages, or placeholders for them (dynamic context compression)."""

from dataclasses import replace

import numpy as np
import pytest

from cairn.codecs.past import EARLIER_PAGE, Telling, TextHistory
from cairn.codecs.text import TextCodec
from cairn.codecs.thinking import ThinkingCodec
from cairn.data.action import Action, Click
from cairn.data.history import Deed
from cairn.data.ids import ElementId
from cairn.data.observation import Observation
from cairn.data.trajectory import Turn
from letter_tokenizer import END, FIRST, LetterTokenizer
from shown_pages import element, page, turn

TOKENIZER = LetterTokenizer()
GOAL = "press stop, then go"
PAGES = (page(element(1, "stop")), page(element(1, "go")), page(element(1, "done"), message="be quick"))
CLICK = Click(ElementId(1))


def text_codec(telling: Telling, *, turns: int = 8) -> TextCodec:
    return TextCodec(tokenizer=TOKENIZER, history=TextHistory(telling=telling, turns=turns))


def thinking_codec(telling: Telling, *, instructed: bool = False) -> ThinkingCodec:
    return ThinkingCodec(tokenizer=TOKENIZER, history=TextHistory(telling=telling, instructed=instructed))


def answered(text: str, seen: Observation, action: Action = CLICK, *, end: int | None = None) -> Turn:
    """A turn with the tokens of what was said."""
    ids = np.array([*TOKENIZER.encode(text), *([] if end is None else [end])], np.int32)
    made = turn(action, seen)
    completion = replace(
        made.completion, token_ids=ids, logprobs=np.zeros(ids.shape, np.float32), versions=np.zeros(ids.shape, np.int32)
    )
    return replace(made, completion=completion)


PAST = (answered(" click stop [1]\n", PAGES[0]), answered(" click go [1]\n", PAGES[1]))


def shown(codec: TextCodec | ThinkingCodec, past: tuple[Turn | Deed, ...] = PAST, seen: Observation = PAGES[2]) -> str:
    return TOKENIZER.decode(codec.prompt(GOAL, past, seen).token_ids.tolist())


def test_a_whole_history_is_every_page_with_its_answer() -> None:
    assert shown(text_codec(Telling.FULL)) == (
        "Goal: press stop, then go\nstop [1] button\nAct: click stop [1]\n"
        "go [1] button\nAct: click go [1]\n"
        "done [1] button\nNote: be quick\nAct:"
    )


def test_a_compressed_history_is_the_whole_one_with_a_placeholder_for_every_page_but_the_newest() -> None:
    naive = shown(text_codec(Telling.FULL))
    for earlier in ("stop [1] button", "go [1] button"):
        naive = naive.replace(earlier, EARLIER_PAGE)
    assert shown(text_codec(Telling.COMPRESSED)) == naive
    chat = shown(thinking_codec(Telling.FULL))
    for earlier in ("stop [1] button", "go [1] button"):
        chat = chat.replace(earlier, EARLIER_PAGE)
    assert shown(thinking_codec(Telling.COMPRESSED)) == chat


@pytest.mark.parametrize("telling", Telling)
def test_the_first_prompt_is_the_same_however_much_is_told_later(telling: Telling) -> None:
    assert shown(text_codec(telling), ()) == shown(text_codec(Telling.ACTIONS), ())
    assert shown(thinking_codec(telling), ()) == shown(thinking_codec(Telling.ACTIONS), ())


def test_with_whole_pages_each_prompt_begins_with_the_one_before_and_its_answer_as_ids() -> None:
    codec = text_codec(Telling.FULL)
    first = codec.prompt(GOAL, (), PAGES[0]).token_ids.tolist()
    second = codec.prompt(GOAL, PAST[:1], PAGES[1]).token_ids.tolist()
    third = codec.prompt(GOAL, PAST, PAGES[2]).token_ids.tolist()
    assert second[: len(first) + 16] == [*first, *PAST[0].completion.token_ids.tolist()]
    assert third[: len(second) + 14] == [*second, *PAST[1].completion.token_ids.tolist()]


def test_an_answer_stays_in_the_tokens_that_were_sampled() -> None:
    """One token may be spelled by several others: text would come back as different ones."""
    ids = np.array([999_010, ord("\n") + FIRST], np.int32)
    odd = replace(PAST[0].completion, token_ids=ids, logprobs=np.zeros(2, np.float32), versions=np.zeros(2, np.int32))
    past = (replace(PAST[0], completion=odd),)
    assert 999_010 in text_codec(Telling.COMPRESSED).prompt(GOAL, past, PAGES[1]).token_ids.tolist()


def test_a_turn_that_ended_otherwise_is_ended_by_a_line_break_all_the_same() -> None:
    for end in (END, None):
        past = (answered(" click stop [1]", PAGES[0], end=end),)
        assert "Act: click stop [1]\ngo [1]" in shown(text_codec(Telling.FULL), past, PAGES[1])
        assert END not in text_codec(Telling.FULL).prompt(GOAL, past, PAGES[1]).token_ids


def test_what_was_done_before_a_snapshot_is_told_as_it_would_have_been_said() -> None:
    before = (Deed(observation=PAGES[0], action=CLICK),)
    assert "Act: click stop [1]\ngo [1]" in shown(text_codec(Telling.FULL), before, PAGES[1])
    assert "<assistant><think></think><action>click stop [1]</action><user>" in shown(
        thinking_codec(Telling.FULL), before, PAGES[1]
    )


def test_older_turns_are_counted_once_there_are_too_many() -> None:
    assert shown(text_codec(Telling.COMPRESSED, turns=1)).startswith(
        f"Goal: press stop, then go\n(1 earlier turns)\n{EARLIER_PAGE}\nAct: click go [1]\n"
    )


def test_the_thinking_codec_can_leave_its_instructions_out() -> None:
    assert shown(thinking_codec(Telling.ACTIONS), ()).startswith("<user>Goal")
    assert shown(thinking_codec(Telling.ACTIONS, instructed=True), ()).startswith("<system>You operate")


def test_a_compressed_prompt_grows_by_answers_alone() -> None:
    rows = page(*(element(n, f"row {n}", role="item") for n in range(1, 30)))
    past = tuple(answered(" click row 1 [1]\n", rows) for _ in range(6))
    compressed, whole, newest = (
        len(text_codec(telling).prompt(GOAL, past, rows).token_ids)
        for telling in (Telling.COMPRESSED, Telling.FULL, Telling.ACTIONS)
    )
    assert newest < compressed < newest + 6 * 45
    assert whole > 5 * newest
