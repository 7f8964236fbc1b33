"""The published rewards, as terms. docs/methods.md says where each of them differs from its source."""

from collections.abc import Sequence

from cairn.config.rewards import (
    ActionTypeTerm,
    FormatBalanceTerm,
    FormatErrorTerm,
    FormatTerm,
    JudgeTerm,
    LengthTerm,
    ParametersTerm,
    PointTerm,
    Preset,
    ProgressTerm,
    RewardOptions,
    SubGoalTerm,
    SuccessTerm,
    TermTable,
    TextTerm,
    check_terms,
    name_of,
)

_FORMAT = FormatTerm(kind="format")
_TYPE = ActionTypeTerm(kind="action_type")
_POINT = PointTerm(kind="point")
_GUI_R1_PIXELS = 0.14  # 140 pixels of GUI-R1's code are about a seventh of its screens, as AndroidControl counts


def resolved(options: RewardOptions) -> tuple[list[TermTable], list[str]]:
    """The terms that a recipe asks for, and those that decide what is right; both empty where it asks for none.

    Raises `ValueError` where they do not go together.
    """
    if options.preset == "none":
        terms, correct = list(options.terms), options.correct
    else:
        terms, correct = list(_terms(options.preset)), list(_correct(options.preset))
        names = [name_of(term) for term in terms]
        for name in options.without:
            if name not in names:
                raise ValueError(f"reward.without: {options.preset} has no term {name!r}; it has {', '.join(names)}")
        terms = [term for term in terms if name_of(term) not in options.without]
        correct = [name for name in correct if name not in options.without]
    if terms:
        check_terms(terms, correct)
    return terms, correct


def _correct(preset: Preset) -> Sequence[str]:
    match preset:
        case "ui-r1" | "ui-r1-e" | "nothink":
            return ("format", "action_type", "point")
        case "gui-r1" | "infigui-r1" | "mobile-r1-action":
            return ("parameters",)
        case "gui-r1-paper":
            return ("action_type", "point", "text")
        case _:
            return ()


def _terms(preset: Preset) -> Sequence[TermTable]:  # noqa: PLR0911  one return for each preset
    match preset:
        case "ui-r1":
            return (_FORMAT, _TYPE, _POINT)
        case "ui-r1-e":
            return (_FORMAT, _TYPE, _POINT, LengthTerm(kind="length"))
        case "nothink":
            return (FormatTerm(kind="format", shape="answer"), _TYPE, _POINT)
        case "gui-r1":
            return (FormatTerm(kind="format", parses=True, weight=0.2), _gui_r1_accuracy())
        case "gui-r1-paper":
            return (
                FormatTerm(kind="format", parses=True, weight=0.2),
                ActionTypeTerm(kind="action_type", weight=0.8),
                PointTerm(kind="point", share=_GUI_R1_PIXELS, weight=0.8),
                TextTerm(kind="text", strict=True, weight=0.8),
            )
        case "infigui-r1":
            return _infigui()
        case "mobile-r1-action":
            return (
                FormatTerm(kind="format", parses=True),
                ParametersTerm(kind="parameters", scroll_place=True),
            )
        case "mobile-r1-task":
            return (JudgeTerm(kind="judge"), FormatBalanceTerm(kind="format_balance"))
        case "mobile-r1-task-checked":  # where the environment itself can tell what is solved
            return (SuccessTerm(kind="success"), FormatBalanceTerm(kind="format_balance"))
        case _:
            return _outcomes(preset)


def _outcomes(preset: Preset) -> Sequence[TermTable]:
    success = SuccessTerm(kind="success")
    match preset:
        case "webagent-r1":
            return (success,)
        case "arpo":
            return (success, FormatErrorTerm(kind="format_error"))
        case "arpo-code":
            return (success, FormatErrorTerm(kind="format_error", weight=0.5))
        case "mobilegym":
            return (ProgressTerm(kind="progress"),)
        case _:
            return ()


def _gui_r1_accuracy() -> ParametersTerm:
    return ParametersTerm(kind="parameters", place="strict", share=_GUI_R1_PIXELS, text="overlap", weight=0.8)


def _infigui() -> Sequence[TermTable]:
    """0.1 for the format; behind it 0.9 x (0.2 kind + 0.8 all arguments, or 0.2 the mark of the sub-goal)."""
    return (
        FormatTerm(kind="format", parses=True, weight=0.1),
        ActionTypeTerm(kind="action_type", weight=0.9 * 0.2, needs=["format"]),
        ParametersTerm(kind="parameters", weight=0.9 * 0.8, needs=["format"]),
        SubGoalTerm(kind="sub_goal", weight=0.9 * 0.2, needs=["format"], unless=["parameters"]),
    )
