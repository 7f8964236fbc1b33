"""InfiGUI-R1: a thought between `<think>` tags, then a call of Qwen's phone tool (arXiv:2504.14239)."""

from cairn.codecs.answer_parts import NO_THOUGHT
from cairn.codecs.dialects import grammar, qwen_mobile
from cairn.codecs.dialects.grammar import Grammar
from cairn.data.action import Action
from cairn.data.coordinates import Frame
from cairn.data.observation import Observation

_SHAPE = "answer with <think>…</think>, then one call of mobile_use between <tool_call> and </tool_call>"

_SYSTEM = (
    """You operate a phone by touch to reach a goal. Each turn you see a screenshot. First think, then answer with one
tool call:
<think>your thoughts</think>
<tool_call>
{{"name": "mobile_use", "arguments": {{"action": "click", "coordinate": [x, y]}}}}
</tool_call>
"""
    + qwen_mobile.ACTIONS
)


def say(action: Action, seen: Observation, frame: Frame) -> str | None:
    """The call after an empty thought: experts give none."""
    call = qwen_mobile.say(action, seen, frame)
    return None if call is None else f"{NO_THOUGHT}\n{call}"


def _read(text: str, frame: Frame) -> Action:
    if "</think>" not in text:
        raise ValueError("there is no thought")
    return qwen_mobile.read_call(grammar.after_thought(text), frame)


GRAMMAR = Grammar(
    system=_SYSTEM,
    say=say,
    read=grammar.reading(_read, _SHAPE),
    parts=qwen_mobile.GRAMMAR.parts,
    thinks=True,
    bare=qwen_mobile.GRAMMAR,
)
