"""A ledger as tables: what was spent and what came of it, by purpose, by template, or against another run's."""

from collections.abc import Sequence

from rich.table import Column, Table

from cairn.data.ids import TemplateId
from cairn.data.ledger import Ledger, Quantity
from cairn.data.task import Purpose

_BY_TEMPLATE = (
    Quantity.GROUPS,
    Quantity.ENVIRONMENT_STEPS,
    Quantity.JUDGED,
    Quantity.SUCCESS,
    Quantity.INFRASTRUCTURE_ERROR,
    Quantity.GROUPS_IN_UPDATES,
    Quantity.ALL_SOLVED,
    Quantity.ALL_FAILED,
    Quantity.STEPS_WITHOUT_GRADIENT,
)
"""What is worth a column of its own beside each template."""


def by_purpose(ledger: Ledger) -> Table:
    """A line for each quantity that was counted, a column for each purpose that spent anything, and the sum."""
    purposes = [p for p in Purpose if any(of is p for of, _, _ in ledger.sums)]
    table = Table("", *purposes, "all")
    for quantity in Quantity:
        if ledger.total(quantity):
            cells = [ledger.total(quantity, purpose=p) for p in purposes]
            table.add_row(_words(quantity), *map(shown, cells), shown(ledger.total(quantity)))
    return table


def by_template(ledger: Ledger) -> Table:
    """A line for each template, with what it cost and came to over all purposes."""
    columns = [q for q in _BY_TEMPLATE if ledger.total(q)]
    table = Table(Column("", no_wrap=True), *map(_words, columns))
    for template in sorted({at for _, at, _ in ledger.sums if at != "*"}):
        table.add_row(template, *(shown(ledger.total(q, template=TemplateId(template))) for q in columns))
    return table


def compared(ledgers: Sequence[Ledger], names: Sequence[str]) -> Table:
    """A line for each quantity, a column for each run, and every run after the first as a share of the first."""
    table = Table("", *names, *(f"{name} / {names[0]}" for name in names[1:]))
    for quantity in Quantity:
        totals = [ledger.total(quantity) for ledger in ledgers]
        if any(totals):
            shares = [f"{total / totals[0]:.1%}" if totals[0] else "" for total in totals[1:]]
            table.add_row(_words(quantity), *map(shown, totals), *shares)
    return table


def totals(ledger: Ledger) -> dict[str, int | float]:
    """Every quantity that was counted, over all purposes and templates."""
    return {quantity.value: total for quantity in Quantity if (total := ledger.total(quantity))}


def shown(value: float) -> str:
    """Whole numbers whole, seconds with one decimal."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _words(quantity: Quantity) -> str:
    return quantity.value.replace("_", " ")
