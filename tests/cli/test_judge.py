"""`cairn judge`: a judge beside the checker, on a run that holds what it is to be asked about."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cairn.app.judging import JudgeRequest, compare
from cairn.app.rewards import JUDGEMENTS
from cairn.cli.main import app
from cairn.config.recipe import RunConfig, to_toml
from cairn.config.rewards import JudgeOptions
from cairn.data.action import Click
from cairn.data.ids import ElementId
from cairn.data.task import Purpose, Recorded
from cairn.data.trajectory import LostTrajectory, Outcome
from cairn.engines import chat
from cairn.errors import VerifierError
from cairn.store.run import RunWriter
from cairn.testing.groups import played_group
from rollout.stage import plan_for

ENDPOINT = JudgeOptions(url="http://127.0.0.1:9/v1", model="m")


def cairn(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["judge", *(str(a) for a in arguments)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four episodes of the policy, of which two are solved; and some that no checker or no policy has to do with."""
    seen = played_group(plan_for(), [1.0]).members[0].trajectory.turns[0].observation
    answered = Recorded(goal="g", observation=seen, expert=Click(ElementId(1)))
    plans = [
        plan_for(group="a"),
        replace(plan_for(group="shown"), purpose=Purpose.DEMONSTRATE),
        plan_for(group="answers", start=answered),
    ]
    with RunWriter.create(tmp_path / "run", recipe=to_toml(RunConfig()), seed=0, sync=False) as writer:
        for plan in plans:
            group = played_group(plan, [1.0, 1.0, 0.0, 0.0])
            gone = LostTrajectory(
                trajectory=replace(group.members[0].trajectory, sibling=9), outcome=Outcome.VERIFIER_ERROR, reason="x"
            )
            writer.record(replace(group, lost=(gone,)))
    return tmp_path / "run"


def saying(monkeypatch: pytest.MonkeyPatch, scores: dict[str, int | None]) -> list[str]:
    """An endpoint that gives the score of the first text that it finds in the question; None: it breaks down."""
    asked: list[str] = []

    async def said(self: chat.ChatEndpoint, messages: object) -> str:
        text = str(messages)
        asked.append(text)
        score = next(score for part, score in scores.items() if part in text)
        if score is None:
            raise chat.EngineError("down")
        return json.dumps({"score": score, "reason": "because"})

    monkeypatch.setattr(chat.ChatEndpoint, "say", said)
    return asked


async def test_verdicts_are_compared_with_the_checkers(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = saying(monkeypatch, {"[1]": 9, "[2]": 2, "[3]": 5, "[4]": 0})
    found = await compare(JudgeRequest(folder=run, judge=ENDPOINT))
    counts = found.agreement
    assert (counts.both, counts.checker_alone, counts.judge_alone, counts.neither) == (1, 1, 1, 1)
    assert [(d.sibling, d.solved, d.score, d.reason) for d in found.disagreements] == [
        (1, True, 0.2, "because"),
        (2, False, 0.5, "because"),
    ]
    assert (found.failed, len(asked)) == (0, 4)
    assert (run / JUDGEMENTS).read_text().count("\n") == 4
    await compare(JudgeRequest(folder=run, judge=ENDPOINT))
    assert len(asked) == 4  # it is known what the judge says


async def test_episodes_that_the_judge_fails_on_are_counted_and_not_rated(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saying(monkeypatch, {"[1]": 9, "[2]": None, "[3]": 0, "[4]": 0})
    found = await compare(JudgeRequest(folder=run, judge=ENDPOINT))
    assert (found.agreement.count, found.failed, found.agreement.kappa) == (3, 1, pytest.approx(1.0))
    (run / JUDGEMENTS).unlink()
    saying(monkeypatch, {"": None})
    with pytest.raises(VerifierError, match="down"):
        await compare(JudgeRequest(folder=run, judge=ENDPOINT))


async def test_episodes_can_be_drawn(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = saying(monkeypatch, {"": 9})
    first = await compare(JudgeRequest(folder=run, judge=ENDPOINT, limit=2))
    assert first == await compare(JudgeRequest(folder=run, judge=ENDPOINT, limit=2))
    assert (first.agreement.count, len(asked)) == (2, 2)


def test_the_command_ends_in_json(run: Path) -> None:
    result = cairn(run, "--offline", "--least", "0.0")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout.strip().splitlines()[-1])
    assert (told["episodes"], told["both"], told["judge_alone"], told["recall"]) == (4, 2, 2, 1.0)
    assert "they agree on 50.0%" in result.stdout
    assert "kappa 0.00" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "there is no judge: give --url and --model, or --offline"),
        (("--url", "http://x/v1"), "url needs model"),
        (("--url", "x", "--model", "m"), "url must begin with http"),
        (("--url", "http://x/v1", "--model", "m", "--prompt", "none.toml"), "the judge's prompt none.toml"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_one_sentence(run: Path, arguments: tuple[str, ...], said: str) -> None:
    result = cairn(run, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")


def test_a_run_without_episodes_is_one_sentence(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run", recipe=to_toml(RunConfig()), seed=0, sync=False).close()
    result = cairn(tmp_path / "run", "--offline")
    assert result.exit_code == 2
    assert "no whole episode" in result.stderr
