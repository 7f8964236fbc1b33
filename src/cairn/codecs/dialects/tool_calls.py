"""Tool calls as Qwen's models write them: a JSON object with name and arguments between `<tool_call>` tags."""

from collections.abc import Mapping, Sequence

from cairn.codecs.dialects.literals import Value, read_object

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_MOST = 2


def tool_call(tool: str, arguments: str) -> str:
    """One call; `arguments` is JSON without its braces."""
    return f'{_OPENING}\n{{"name": "{tool}", "arguments": {{{arguments}}}}}\n{_CLOSING}'


def read_tool_calls(text: str, tool: str) -> Sequence[Mapping[str, Value]]:
    """The arguments of the calls in `text`, one or two; `ValueError` where there are none or more.

    The last closing tag may be missing: a server that stops at it leaves it out.
    """
    parts = text.split(_OPENING)[1:]
    if not 1 <= len(parts) <= _MOST:
        raise ValueError(f"there is {'no tool call' if not parts else 'more than one action'}")
    return [_arguments(part.partition(_CLOSING)[0].strip(), tool) for part in parts]


def _arguments(text: str, tool: str) -> Mapping[str, Value]:
    call = read_object(text)
    if call.get("name") != tool:
        raise ValueError(f"the tool is {tool!r}, not {str(call.get('name'))[:20]!r}")
    arguments = call.get("arguments")
    if not isinstance(arguments, dict):
        raise ValueError("a tool call has arguments in braces")  # noqa: TRY004 - a model wrote it
    return arguments
