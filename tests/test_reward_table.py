"""The table [reward]: closed, strict, and checked for terms that could never be worth anything."""

import tomllib
from typing import get_args

import pytest

from cairn.config.presets import resolved
from cairn.config.recipe import RunConfig, parse, to_toml
from cairn.config.rewards import TERM_KEYS, Preset, TermTable, name_of
from cairn.errors import ConfigError

PRESETS = [preset for preset in get_args(Preset) if preset != "none"]
BASE = """
[reinforcement]
scheduler = "adaptive"
[tracks]
per_template = 2
[snapshots]
store = "replay"
"""


def read(text: str, *, base: str = BASE) -> RunConfig:
    return parse(tomllib.loads(base + text), origin="recipe")


def term(text: str) -> str:
    return f"[[reward.terms]]\n{text}\n"


ACT = term('kind = "action_type"')


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_goes_together(preset: str) -> None:
    config = read(f'[reward]\npreset = "{preset}"\n[reward.judge]\noffline = true\n')
    terms, _ = resolved(config.reward)
    assert terms
    written = to_toml(config)
    assert parse(tomllib.loads(written), origin="written") == config


def test_a_preset_is_the_terms_that_it_stands_for() -> None:
    def shown(preset: str) -> list[tuple[str, float, list[str], list[str]]]:
        options = read(f'[reward]\npreset = "{preset}"\n[reward.judge]\noffline = true\n').reward
        return [(name_of(one), round(one.weight, 9), one.needs, one.unless) for one in resolved(options)[0]]

    assert shown("ui-r1") == [("format", 1, [], []), ("action_type", 1, [], []), ("point", 1, [], [])]
    assert shown("ui-r1-e") == [*shown("ui-r1"), ("length", 1, [], [])]
    assert shown("nothink") == shown("ui-r1")
    assert shown("gui-r1") == [("format", 0.2, [], []), ("parameters", 0.8, [], [])]
    assert [name for name, *_ in shown("gui-r1-paper")] == ["format", "action_type", "point", "text"]
    assert shown("infigui-r1") == [
        ("format", 0.1, [], []),
        ("action_type", 0.18, ["format"], []),
        ("parameters", 0.72, ["format"], []),
        ("sub_goal", 0.18, ["format"], ["parameters"]),
    ]
    assert shown("mobile-r1-action") == [("format", 1, [], []), ("parameters", 1, [], [])]
    assert shown("mobile-r1-task") == [("judge", 1, [], []), ("format_balance", 1, [], [])]
    assert shown("mobile-r1-task-checked") == [("success", 1, [], []), ("format_balance", 1, [], [])]
    assert shown("webagent-r1") == [("success", 1, [], [])]
    assert shown("arpo") == [("success", 1, [], []), ("format_error", 1, [], [])]
    assert shown("arpo-code") == [("success", 1, [], []), ("format_error", 0.5, [], [])]
    assert shown("mobilegym") == [("progress", 1, [], [])]


def test_terms_of_a_preset_may_be_left_out() -> None:
    config = read('[reward]\npreset = "infigui-r1"\nwithout = ["sub_goal"]\n')
    assert [name_of(one) for one in resolved(config.reward)[0]] == ["format", "action_type", "parameters"]
    config = read('[reward]\npreset = "ui-r1"\nwithout = ["format"]\n')
    assert resolved(config.reward)[1] == ["action_type", "point"]


def test_without_a_table_the_reward_is_not_composed() -> None:
    assert resolved(RunConfig().reward) == ([], [])


def test_terms_are_written_and_read_back() -> None:
    config = read(ACT + term('kind = "point"\nname = "aim"\nweight = 0.5\nneeds = ["action_type"]\nshare = 0.14'))
    assert parse(tomllib.loads(to_toml(config)), origin="written") == config
    assert [name_of(one) for one in config.reward.terms] == ["action_type", "aim"]


def test_every_kind_of_term_has_its_keys() -> None:
    assert set(TERM_KEYS) == {get_args(table.model_fields["kind"].annotation)[0] for table in get_args(TermTable)}
    assert "alpha" in TERM_KEYS["shortest_path"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (term('kind = "pont"'), r"term 1: no kind of term is called 'pont'; did you mean 'point'\?"),
        (term('kind = "zzz"'), r"no kind of term is called 'zzz'; there are: format, "),
        (term("weight = 1"), "term 1: it has no kind; there are: format, "),
        (ACT + term('kind = "point"\nsahre = 1'), r"term 2: a point term has no key 'sahre'; did you mean 'share'\?"),
        (term('kind = "point"\nzzz = 1'), "a point term has no key 'zzz'; it has: name, weight, "),
        (term('kind = "point"\nweight = "big"'), r"term 1 \(point\), weight: input should be a valid number"),
        (term('kind = "point"\nweight = inf'), r"weight: input should be a finite number"),
        (term('kind = "point"\nplace = "near"'), r"term 1 \(point\): place = \"near\" needs a share"),
        (term('kind = "overlong"\nlimit = 2\nbuffer = 3'), "buffer must not be above limit"),
        (ACT + ACT, "two reward terms are called 'action_type': give one of them another name"),
        (term('kind = "format"'), "no reward term says what was done right: add one of action_type, "),
        (term('kind = "point"\nneeds = ["format"]'), "'point' needs 'format', which is no term before it"),
        (ACT + term('kind = "point"\nunless = ["point"]'), "'point' needs 'point', which is no term before it"),
        ('[reward]\npreset = "ui-r1"\n' + ACT, 'are for reward.preset = "none"'),
        ('[reward]\npreset = "ui-r2"', "reward.preset: input should be 'none', 'ui-r1'"),
        ('[reward]\nwithout = ["format"]', "reward.without leaves out terms of a reward.preset, and there is none"),
        (
            '[reward]\npreset = "ui-r1"\nwithout = ["text"]',
            "ui-r1 has no term 'text'; it has format, action_type, point",
        ),
        ('[reward]\ncorrect = ["format"]', "reward.correct names terms, and there are no reward.terms"),
        (f'[reward]\ncorrect = ["x"]\n{ACT}', "reward.correct names 'x', which is no term of a single trajectory"),
        ('[reward.judge]\nurl = "ftp://x"\nmodel = "m"', "url must begin with http"),
        ('[reward.judge]\nurl = "http://x/v1"', "url needs model"),
        ('[reward.judge]\nurl = "http://x/v1"\nmodel = "m"\noffline = true', "not both"),
        ("[reward]\npresset = 1", r"unknown key 'reward.presset'; did you mean 'reward.preset'\?"),
    ],
)
def test_what_does_not_go_together_is_one_clear_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(text)


def test_a_term_over_siblings_may_need_any_other_but_nothing_may_need_it() -> None:
    length = term('kind = "length"\nneeds = ["action_type"]')
    read(length + ACT)
    with pytest.raises(ConfigError, match="needs 'length', which is no term before it"):
        read(term('kind = "length"') + term('kind = "point"\nneeds = ["length"]'))


def scheduled(name: str) -> str:
    return BASE.replace('"adaptive"', f'"{name}"')


@pytest.mark.parametrize(
    ("text", "scheduler", "said"),
    [
        (term('kind = "point"'), "tasks", "'point' can never be worth anything: .*asks for no answers at recorded"),
        (term('kind = "success"'), "pivots", "'success' can never .* nothing out in live sessions"),
        (ACT + term('kind = "sub_goal"'), "pivots", "'sub_goal' can never .* set reward.judge.url and"),
        (term('kind = "judge"'), "tasks", "'judge' can never be worth anything: there is no judge"),
        (term('kind = "success"\nweight = 0.0'), "tasks", "its weight is 0"),
        (
            term('kind = "success"') + term('kind = "overlong"\nlimit = 9000\nbuffer = 100'),
            "tasks",
            "'overlong' can never .* no trajectory has 8900 sampled tokens",
        ),
    ],
)
def test_a_term_that_can_never_be_worth_anything_is_named_with_the_fix(text: str, scheduler: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(text, base=scheduled(scheduler))


def test_the_old_penalty_is_not_passed_over_in_silence() -> None:
    wanted = BASE.replace("[tracks]", "format_penalty = 1.0\n[tracks]")
    with pytest.raises(ConfigError, match="add a term of the kind format_error instead"):
        read('[reward]\npreset = "arpo"', base=wanted)
    assert read("", base=wanted).reinforcement.format_penalty == 1.0
