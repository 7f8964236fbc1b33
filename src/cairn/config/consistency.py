"""Which keys of `[reinforcement]` and of what it learns from go together."""

from cairn.algo.correction_bounds import PUBLISHED_BOUNDS
from cairn.config.stored import StoredOptions
from cairn.config.tables import AdaptiveTable, CriticOptions, ReinforcementOptions, ReplayTable, TrackOptions


def check_estimation(options: ReinforcementOptions) -> None:
    """Raise a `ValueError` where keys do not go together, or one would be passed over in silence."""
    name = f'reinforcement.estimator = "{options.estimator}"'
    _check_own_keys(options, name)
    _check_compared(options, name)
    _check_loss(options)
    _check_correction(options)


def check_stored(options: ReinforcementOptions, stored: StoredOptions) -> None:
    """Raise a `ValueError` where a stored run is named and not learned from, or the other way round."""
    if (options.scheduler == "stored") != (stored.run is not None):
        raise ValueError('reinforcement.scheduler = "stored" and stored.run, the directory of a run, need each other')
    if stored.run is not None and not options.prefers and options.estimator != "rft":
        raise ValueError(
            'reinforcement.scheduler = "stored" needs reinforcement.loss = "dpo", "ipo" or "kto", or '
            'reinforcement.estimator = "rft": the other methods need answers of the policy itself'
        )


def check_starts(scheduler: str, tracks: TrackOptions, adaptive: AdaptiveTable, replay: ReplayTable) -> None:
    """Raise a `ValueError` where what is learned from, and how far, cannot be as the keys say."""
    if adaptive.tau_low > adaptive.tau_high:
        low, high = adaptive.tau_low, adaptive.tau_high
        raise ValueError(f"adaptive.tau_low must not be above adaptive.tau_high; got {low} and {high}")
    if adaptive.signal == "disagreement" and adaptive.threshold is not None and adaptive.threshold >= 1:
        raise ValueError(f"adaptive.threshold = {adaptive.threshold} leaves no pivot: disagreement is at most 1")
    for key, wanted, of in (
        ("tracks.shrink_above", tracks.shrink_above is not None, "tasks"),
        ("tracks.cool_down_after", tracks.cool_down_after is not None, "tasks"),
        ("adaptive.weighted", adaptive.weighted, "pivots"),
    ):
        if wanted and scheduler != of:
            raise ValueError(f'{key} is of reinforcement.scheduler = "{of}", not "{scheduler}"')
    if replay.capacity and scheduler == "pivots":
        raise ValueError('reinforcement.scheduler = "pivots" needs replay.capacity = 0: single answers replay nothing')
    if not replay.capacity and replay != ReplayTable():
        raise ValueError("replay.trigger and replay.first need replay.capacity >= 1")


def _check_own_keys(options: ReinforcementOptions, name: str) -> None:
    if (options.whitens or options.estimator == "rft") and (options.negative_scale != 1 or options.negative_slope):
        raise ValueError(f"{name} needs reinforcement.negative_scale = 1 and negative_slope = 0")
    if options.deviation != "auto" and options.estimator not in {"grpo", "gigpo"}:
        raise ValueError(f"{name} has no reinforcement.deviation: leave it at auto")
    if options.deviation == "population" and options.estimator == "gigpo":
        raise ValueError(f'{name} knows reinforcement.deviation = "unbiased" and "none"')
    for key, wanted in (
        ("anchors", options.anchors != "structure"),
        ("episodes_by_step", options.episodes_by_step),
    ):
        if wanted and options.estimator != "gigpo":
            raise ValueError(f'reinforcement.{key} is of reinforcement.estimator = "gigpo", not "{options.estimator}"')
    if options.anchor_bits and options.anchors != "picture":
        raise ValueError('reinforcement.anchor_bits needs reinforcement.anchors = "picture"')
    if options.successes_per_group is not None and options.estimator != "rft":
        raise ValueError(f'reinforcement.successes_per_group is of estimator = "rft", not "{options.estimator}"')


def _check_compared(options: ReinforcementOptions, name: str) -> None:
    if options.group_size < 2 and (options.prefers or not options.by_token):
        raise ValueError(f"reinforcement.group_size = 1 leaves nothing to compare with: set at least 2 with {name}")
    if options.groups_at_most is not None and (options.by_token or options.estimator == "rft"):
        raise ValueError(f"{name} needs reinforcement.groups_at_most unset: groups that agree teach it, too")
    if options.estimator in {"rft", "gpg"} and options.loss != "reinforce":
        raise ValueError(f'{name} needs reinforcement.loss = "reinforce"')
    if options.critic != CriticOptions() and options.estimator != "gae":
        raise ValueError(f'reinforcement.critic is of reinforcement.estimator = "gae", not "{options.estimator}"')
    if options.kl_in == "reward" and (not options.kl or options.prefers or options.estimator == "rft"):
        raise ValueError('reinforcement.kl_in = "reward" needs reinforcement.kl, and an estimator of advantages')
    if options.anchors == "picture" and options.scheduler == "recorded":
        raise ValueError('reinforcement.anchors = "picture" compares turns, and recorded states have one answer each')
    if options.weight_floor > options.weight_cap:
        raise ValueError("reinforcement.weight_floor must not be above reinforcement.weight_cap")


def _check_loss(options: ReinforcementOptions) -> None:
    if options.prefers and options.estimator != "grpo":  # the default, which nobody needs to have chosen
        raise ValueError(
            f'reinforcement.loss = "{options.loss}" needs reinforcement.estimator unset: it compares pairs, and '
            f'"{options.estimator}" would estimate advantages for nobody'
        )
    if options.dual_clip is not None and options.loss != "ppo":
        raise ValueError(f'reinforcement.dual_clip is of reinforcement.loss = "ppo", not "{options.loss}"')
    normed = "seq_mean_token_sum_norm"
    if options.norm is None and options.aggregation == normed:
        raise ValueError(
            f'reinforcement.aggregation = "{normed}" needs reinforcement.norm, such as the longest answer that can be '
            "sampled"
        )
    if options.norm is not None and options.aggregation != normed:
        raise ValueError(
            f'reinforcement.norm is of reinforcement.aggregation = "{normed}", not "{options.aggregation}"'
        )


def _check_correction(options: ReinforcementOptions) -> None:
    low, high = options.correction_low, options.correction_high
    if options.correction not in PUBLISHED_BOUNDS:
        if low is not None or high is not None:
            raise ValueError("bounds without reinforcement.correction: choose one, such as token_masked")
        return
    name = f'reinforcement.correction = "{options.correction}"'
    least, most = PUBLISHED_BOUNDS[options.correction]
    if least is None:
        if low is not None:
            raise ValueError(f"{name} needs reinforcement.correction_low unset: it has an upper bound alone")
        return
    least, most = least if low is None else low, most if high is None else high
    if least > most:
        raise ValueError(
            "reinforcement.correction_low must not be above reinforcement.correction_high; "
            f"{name} has {least:g} and {most:g}, where what is unset is as published"
        )
