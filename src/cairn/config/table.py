"""What every table of a recipe is."""

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A TOML table: frozen, strict about unknown keys and types, and without infinite numbers or NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
