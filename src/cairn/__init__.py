"""Cairn trains GUI agents: a rollout starts at a state and runs for a horizon."""

__version__ = "0.1.0"
