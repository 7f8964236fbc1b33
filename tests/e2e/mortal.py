"""A training run of scripted parts, slow enough to be killed in the middle: `mortal.py RUN WITNESS`.

Every trajectory that the store has promised to keep is written to WITNESS, one line each.
"""

import asyncio
import sys
from pathlib import Path

from cairn.data.trajectory import LostTrajectory, ScoredTrajectory
from cairn.store.run import RunWriter
from cairn.testing.faults import Call, Fault
from cairn.testing.scripted_policy import uniform
from loop.journey import Journey, options, updates


def main(folder: Path, witness: Path) -> None:
    begun = (folder / "run.json").exists()
    run = RunWriter.resume(folder) if begun else RunWriter.create(folder, recipe="", seed=0)
    lines = witness.open("a", buffering=1)

    def note(result: ScoredTrajectory | LostTrajectory) -> None:
        run.note(result)
        one = result.trajectory
        lines.write(f"{one.plan.group_id} {one.sibling} {one.attempt}\n")

    journey = Journey(
        folder=folder,
        answers=uniform(1, 2, 3, 4),
        faults=[Fault(call=Call.ACT, delay=0.02)],
        options=options(imitation=updates(2), reinforcement=updates(25), save_every=2),
        store=run.trajectories,
        note=note,
        record=run.record,
    )
    if begun:
        journey.course.resume()
    asyncio.run(journey.course.run())
    lines.close()
    run.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
