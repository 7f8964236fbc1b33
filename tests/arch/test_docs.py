"""The documentation says what the code does, and every link leads somewhere."""

import re
from pathlib import Path

import pytest

from cairn.data.trajectory import RULES, Outcome
from cairn.testing.environment_report import Check

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def _rows(page: Path) -> list[list[str]]:
    lines = page.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_the_table_of_outcomes_is_the_one_in_the_code() -> None:
    told: dict[Outcome, tuple[bool, bool, bool]] = {}
    for cells in _rows(ROOT / "docs" / "concepts.md"):
        names = [n.strip().replace(" ", "_") for n in re.sub(r"\(.*\)", "", cells[0]).split(",")]
        for name in names:
            if name in set(Outcome) and len(cells) == 5:
                told[Outcome(name)] = (
                    cells[1].startswith("yes"),
                    cells[3].startswith("yes"),
                    cells[4].startswith("yes"),
                )
    assert told == {o: (rule.in_loss, rule.retried, rule.in_success_rate) for o, rule in RULES.items()}


def test_every_check_of_the_kit_is_explained() -> None:
    explained = {cells[0] for cells in _rows(ROOT / "docs" / "add-environment.md")}
    assert set(Check) <= explained


def test_the_reward_of_the_documentation_is_the_one_of_the_example() -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "add-reward.md").read_text(encoding="utf-8"), re.DOTALL)
    assert code[0].strip() in (ROOT / "examples" / "own_environment.py").read_text(encoding="utf-8")


def test_every_decision_is_in_the_list() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    assert [p.name for p in sorted(folder.glob("0*.md")) if p.name not in listed] == []
