"""What every table of a recipe is."""

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A TOML table: frozen, and strict about unknown keys and types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
