"""Check an environment of one's own: `python examples/check_own_environment.py`."""

import asyncio
import sys

from own_environment import NumberEnvironment
from rich.console import Console

from cairn.testing.environment_check import check_environment
from cairn.testing.environment_report import report_table

if __name__ == "__main__":
    report = asyncio.run(check_environment(NumberEnvironment()))
    Console().print(report_table(report))
    sys.exit(not report.ok)
