"""The conformance kit: whether an environment keeps the promises that training builds on."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from cairn.data.ids import TemplateId
from cairn.data.task import Template
from cairn.errors import BoundaryError, ConfigError
from cairn.ports import BlobStore, CalibratedEnvironment, Environment
from cairn.testing.calibration_check import Calibration, NamedCodec, check_coordinates
from cairn.testing.environment_report import Check, EnvironmentReport, Finding, Result, Verdict
from cairn.testing.leaks import footprint, leaks_since, private_temporary_directory
from cairn.testing.playing import Player
from cairn.testing.template_checks import TEMPLATE_CHECKS, Bench, CheckOptions

_EVERYTHING = CheckOptions()


async def check_environment(
    environment: Environment,
    *,
    options: CheckOptions = _EVERYTHING,
    blobs: BlobStore | None = None,
    codecs: Sequence[NamedCodec] = (),
    progress: Callable[[Result], None] | None = None,
) -> EnvironmentReport:
    """Check every template, then the coordinates, then close the environment and look for what it left.

    The environment must be new and is closed at the end: leaks are counted from before its first use, and for the
    time of the check temporary files go to a directory of their own. `blobs` is the store it writes screenshots to;
    `progress` is called with every result as it comes. A failure outside (a `BoundaryError`) is the finding of the
    check it happened in; any other error is a bug of the environment and passes through, after closing it.
    """
    if len(options.indices) < 2:
        raise ConfigError(f"at least two task indices are needed to tell seeds apart, got {options.indices}")
    started = time.perf_counter()
    player = Player(environment=environment, patience_s=options.patience_s)
    results: list[Result] = []

    async def record(check: Check, template: TemplateId | None, finding: Awaitable[Finding]) -> None:
        results.append(Result(check=check, template=template, finding=await _attributed(finding)))
        if progress is not None:
            progress(results[-1])

    with private_temporary_directory() as temporary:
        before = footprint(temporary=temporary)
        try:
            bench = Bench(environment=environment, options=options, player=player, blobs=blobs)
            for template in _chosen(environment, options):
                for check, examine in TEMPLATE_CHECKS:
                    await record(check, template.id, examine(bench, template))
            await record(Check.COORDINATES, None, _coordinates(environment, player, blobs, codecs))
        finally:
            await environment.close()
        left = partial(leaks_since, before, temporary=temporary, patience_s=options.leak_patience_s)
        await record(Check.LEAKS, None, _leaks(environment, left))
    return EnvironmentReport(
        environment=environment.name,
        results=tuple(results),
        latencies=player.latencies,
        seconds=time.perf_counter() - started,
    )


def _chosen(environment: Environment, options: CheckOptions) -> Sequence[Template]:
    return environment.templates if options.templates is None else options.templates


async def _attributed(finding: Awaitable[Finding]) -> Finding:
    try:
        return await finding
    except BoundaryError as error:
        return Finding(verdict=Verdict.FAIL, reason=f"{type(error).__name__}: {error}")


async def _coordinates(
    environment: Environment, player: Player, blobs: BlobStore | None, codecs: Sequence[NamedCodec]
) -> Finding:
    if not isinstance(environment, CalibratedEnvironment):
        return Finding(verdict=Verdict.SKIP, reason="the environment cannot draw a target")
    return await check_coordinates(
        Calibration(environment=environment, player=player, blobs=blobs, codecs=codecs),
    )


async def _leaks(environment: Environment, left: Callable[[], Awaitable[list[str]]]) -> Finding:
    await environment.close()  # again: closing is idempotent
    found = await left()
    if found:
        return Finding(verdict=Verdict.FAIL, reason=f"after closing, there are still {', '.join(found)}")
    return Finding(verdict=Verdict.OK, reason="no process, descriptor, temporary entry or task is left")
