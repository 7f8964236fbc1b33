"""How far rollouts may run ahead of the updates that use them. Pure arithmetic."""


def admissible(*, running: int, accepted: int, version: int, batch_size: int, ahead: int, places: int) -> int:
    """How many trajectories may be started now (AReaL, arXiv:2505.24298, section 5.1).

    `accepted` counts those that were finished and kept, used ones included; none of them may be needed by an update
    more than `ahead` versions after `version`, the policy's own. 0 `ahead` is synchronous training.
    """
    return max(0, min(places - running, (ahead + version + 1) * batch_size - (accepted + running)))
