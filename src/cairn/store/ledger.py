"""The ledger as a JSON file, so that a resumed run goes on counting."""

import json
from pathlib import Path
from typing import TypedDict, cast

from cairn.data.ids import TemplateId
from cairn.data.ledger import Ledger, LedgerKey, Quantity
from cairn.data.task import Purpose
from cairn.errors import StoreError
from cairn.store.disk import write_whole


class _Line(TypedDict):
    purpose: str
    template: str
    quantities: dict[str, int | float]


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Replace the file at once."""
    lines: dict[tuple[str, str], _Line] = {}
    for (purpose, template, quantity), value in sorted(ledger.sums.items()):
        line = lines.setdefault((purpose, template), _Line(purpose=purpose, template=template, quantities={}))
        line["quantities"][quantity] = value
    write_whole(path, (json.dumps(list(lines.values()), indent=1) + "\n").encode(), sync=False)


def read_ledger(path: Path) -> Ledger:
    """What `write_ledger` wrote; empty where there is no file."""
    if not path.exists():
        return Ledger()
    try:
        lines = cast("list[_Line]", json.loads(path.read_bytes()))
        sums: dict[LedgerKey, int | float] = {
            (Purpose(line["purpose"]), TemplateId(line["template"]), Quantity(quantity)): value
            for line in lines
            for quantity, value in line["quantities"].items()
        }
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    return Ledger(sums=sums)
