"""Every key that a recipe may hold, by table. Frozen, strict, and without any component or heavy library."""

from typing import Literal

from pydantic import Field

from cairn.config.estimation import EstimationOptions, SchedulerName
from cairn.config.learner import LearnerOptions, OptimizerOptions
from cairn.config.table import Table


class EnvironmentOptions(Table):
    """Where the agent acts."""

    name: Literal["miniwob", "miniwob-chain", "states", "scripted"] = "miniwob"
    templates: list[str] = Field(default_factory=list)
    """Task names without the environment's prefix, as `cairn env tasks NAME` lists them; none: all of them."""
    browsers: int = Field(default=2, ge=1)
    pages_per_browser: int = Field(default=4, ge=1, le=8)
    browser: str | None = None
    """Path of a Chrome or Chromium; default: that in the variable CAIRN_BROWSER, else the best one found."""
    accessibility: bool = False
    """Also read the accessibility tree (slower; no shipped codec needs it)."""


class PolicyOptions(LearnerOptions):
    """The model and how it reads and answers."""

    model: Literal["pixel", "smollm2", "path"] = "pixel"
    path: str | None = None
    """A local Hugging Face directory, for `model = "path"`."""
    start: str | None = None
    """The directory of a saved policy of that kind, such as `RUN/checkpoints/imitate`, to go on from."""
    codec: Literal[
        "pixel",
        "text",
        "thinking",
        "ui-tars",
        "qwen-computer",
        "qwen-mobile",
        "gui-r1",
        "infigui",
        "mobilegym",
        "browsergym",
    ] = "pixel"
    """After `text` and `thinking`, the dialects of vision-language models (docs/models.md)."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the engine's copy; the learner's master weights are float32."""
    autocast: bool = False
    """Learner computes in bfloat16 under autocast."""
    threads: int = Field(default=2, ge=1)
    think: bool = True
    """Of the codecs `thinking`, `gui-r1`, `infigui` and `mobilegym`: ask for a thought before the action; false: for
    the action alone (UI-R1-E's NOTHINK)."""
    verbs: list[str] | None = None
    """Of the pixel codec: what may be said besides clicking and typing; default: everything."""
    history: Literal["actions", "compressed", "full"] = "actions"
    """Of the codecs text and thinking: what prompts tell of earlier turns. The last few actions; or every answer in its
    own tokens, after a few words in the place of its page (WebAgent-R1's dynamic context compression), or after its
    page."""
    images: int = Field(default=2, ge=1)
    """Of vision-language models: screenshots in a prompt, the newest included; older ones become a few words."""
    past_turns: int = Field(default=8, ge=0)
    """Of vision-language models, and of a history of exchanges: how many earlier ones a prompt tells."""
    instructions: bool = True
    """Of vision-language models and the thinking codec: whether prompts explain how to answer. What learns it by
    imitation needs no telling."""
    coordinates: Literal["auto", "fractions", "thousandths", "pixels"] = "auto"
    """Of vision-language models: what the numbers of a place count; `auto`: as the model's family was taught."""
    max_image_tokens: int = Field(default=4096, ge=1)
    """Of vision-language models: placeholders of one screenshot; a larger one is refused."""
    token_budget: int = Field(default=8192, ge=1)
    """Tokens (padding included) that the learner computes at once; more are accumulated. Only memory depends on it."""
    temperature: float = Field(default=1.0, gt=0)
    max_answer_tokens: int | None = Field(default=None, ge=1)
    """Default: the codec's own limit."""

    @property
    def sees(self) -> bool:
        """Whether the codec is one of vision-language models."""
        return self.codec not in {"pixel", "text", "thinking"}

    def check(self) -> None:
        """Raise a `ValueError` where model, path and codec do not go together."""
        if self.sees and self.model != "path":
            raise ValueError(
                f'policy.codec = "{self.codec}" needs policy.model = "path" and policy.path, the directory of a '
                "vision-language model"
            )
        if self.model == "pixel" and self.codec != "pixel":
            raise ValueError(f'the pixel policy speaks policy.codec = "pixel" alone, not "{self.codec}"')
        if self.model != "pixel" and self.codec == "pixel":
            raise ValueError('policy.codec = "pixel" is the pixel policy\'s: choose "text" or "thinking"')
        if not self.think and self.codec not in {"thinking", "gui-r1", "infigui", "mobilegym"}:
            raise ValueError('policy.think = false needs policy.codec = "thinking", "gui-r1", "infigui" or "mobilegym"')
        if self.history != "actions" and self.codec not in {"text", "thinking"}:
            raise ValueError(f'policy.history = "{self.history}" needs policy.codec = "text" or "thinking"')
        if self.model == "path" and self.path is None:
            raise ValueError('policy.model = "path" needs policy.path, a Hugging Face directory')
        self.check_learner(small=self.model == "pixel")


class DemonstrationOptions(Table):
    """What experts show: scripts, or a model behind an OpenAI-compatible URL."""

    per_template: int = Field(default=30, ge=0)
    url: str | None = None
    """Of a chat endpoint that plays in place of the scripts, up to and with /v1."""
    model: str = ""
    """As the endpoint calls it."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable with the endpoint's key; none is sent where it is unset."""

    def check(self) -> None:
        """Raise a `ValueError` where the endpoint cannot be asked."""
        if self.url is None:
            return
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f'demonstrations.url must begin with http:// or https://, got "{self.url}"')
        if not self.model:
            raise ValueError("demonstrations.url needs demonstrations.model, as the endpoint calls it")


class CriticOptions(Table):
    """Of `reinforcement.estimator = "gae"` (PPO): a model of its own, begun as a copy of the policy."""

    lam: float = Field(default=0.95, ge=0, le=1)
    """GAE's lambda: 1 trusts what happened alone, 0 the critic alone."""
    clip: float | None = Field(default=0.2, gt=0)
    """How far a value may move in an update before its error counts in full; published: 0.2 and 0.5."""
    alone: int = Field(default=0, ge=0)
    """Updates at first in which the critic learns and the policy does not."""
    optimizer: OptimizerOptions = Field(default_factory=OptimizerOptions)


class ImitationOptions(Table):
    """Behaviour cloning on the demonstrations."""

    minutes: float | None = Field(default=None, gt=0)
    updates: int | None = Field(default=None, ge=0)
    batch_size: int = Field(default=32, ge=1)
    """Turns in an update."""
    answers_per_turn: int = Field(default=1, ge=1)
    """Where an expert's action can be said in several ways (any point of a button), how many are imitated at once."""
    action_weight: float = Field(default=1.0, gt=0)
    """What a token of the action counts beside one of the thought, and what one of its place does (GUI-Libra: 2, 4)."""
    place_weight: float = Field(default=1.0, gt=0)
    optimizer: OptimizerOptions = Field(default_factory=OptimizerOptions)


class ReinforcementOptions(EstimationOptions):
    """Group-relative policy gradient."""

    minutes: float | None = Field(default=None, gt=0)
    updates: int | None = Field(default=None, ge=0)
    groups_per_update: int = Field(default=8, ge=1)
    groups_at_most: int | None = Field(default=None, ge=1)
    """Groups that give no gradient are replaced, until `groups_per_update` give one or so many were played (DAPO's
    dynamic sampling). Default: they are not."""
    group_size: int = Field(default=8, ge=1)
    scheduler: SchedulerName = "variance"
    """`round_robin` and `variance` roll out tasks never seen before; `tasks` (vanilla GRPO) and `adaptive` the same
    ones, `tracks.per_template` of each template, over and over; `pivots` answers at states on experts' ways alone;
    `progress` draws starts on experts' ways by how fast their success is changing; `recorded` asks for single answers
    at the states of `recorded.path`, without any environment; `stored` plays nothing: it takes `stored.run`."""
    aggregation: Literal[
        "token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm", "trajectory_mean"
    ] = "trajectory_mean"
    """`trajectory_mean` is M-GRPO's triple mean."""
    norm: float | None = Field(default=None, gt=0)
    """What `seq_mean_token_sum_norm` divides by, such as the longest answer that can be sampled."""
    loss: Literal["ppo", "gspo", "cispo", "reinforce", "sapo", "dpo", "ipo", "kto"] = "ppo"
    """GSPO wants clips of 3e-4 and 4e-4, and `aggregation = "seq_mean_token_mean"`. `dpo`, `ipo` and `kto` compare the
    best with the worst of each group, and know no advantages, clips or corrections."""
    beta: float = Field(default=0.1, gt=0)
    """Of `dpo`, `ipo` and `kto`: how strongly the policy at the end of imitation is held on to."""
    smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Of `dpo`: the share of pairs that are thought to be the wrong way round."""
    pairs_per_group: int = Field(default=4, ge=1)
    """Of `dpo`, `ipo` and `kto`."""
    dual_clip: float | None = Field(default=None, gt=1)
    """Of `ppo`: what a failure's ratio counts at most; the field's 3."""
    weight_cap: float = Field(default=5.0, gt=0)
    """Of `cispo`: between which bounds a token's weight is kept."""
    weight_floor: float = Field(default=0.0, ge=0)
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.28, gt=0)
    correction: Literal[
        "none",
        "recomputed",
        "token_truncated",
        "token_masked",
        "sequence_truncated",
        "sequence_masked",
        "geometric_mask",
    ] = "none"
    """For tokens sampled in another precision, or by an earlier policy: the clip then looks at what the update itself
    has moved (decoupled PPO), and a weight at the rest. Truncated weights are bounded (TIS); a mask drops what lies
    outside its bounds (IcePop); `recomputed` has no weights: what others sampled counts as the policy's own (ARPO)."""
    correction_low: float | None = Field(default=None, ge=0)
    """Bounds of the weights; default: the published ones of each correction."""
    correction_high: float | None = Field(default=None, gt=0)
    kl: float = Field(default=0.0, ge=0)
    """Weight of the KL to the policy at the end of imitation; 0: no reference model is kept."""
    reference_ema: float | None = Field(default=None, gt=0, lt=1)
    """The policy that `kl`, `dpo`, `ipo` and `kto` hold on to follows the trained one: what it keeps of its weights
    after each update (0.99); default: it stays."""
    reference_every: int | None = Field(default=None, ge=1)
    """Updates, after which that policy becomes the trained one."""
    entropy: float = Field(default=0.0, ge=0)
    epochs: int = Field(default=1, ge=1)
    """Passes over one round of rollouts."""
    minibatches: int = Field(default=1, ge=1)
    """Optimiser steps in a pass."""
    rehearsal: int = Field(default=0, ge=0)
    """Updates of imitation after each update of reinforcement. What is solved altogether gives no gradient, and a small
    policy forgets it within minutes; a little rehearsal prevents that."""
    format_penalty: float = Field(default=0.0, ge=0)
    """Taken from the reward of a trajectory that ended in a format error."""
    optimizer: OptimizerOptions = Field(default_factory=OptimizerOptions)
    critic: CriticOptions = Field(default_factory=CriticOptions)

    @property
    def prefers(self) -> bool:
        """Whether pairs are compared, rather than advantages spread."""
        return self.loss in {"dpo", "ipo", "kto"}

    def check(self) -> None:
        """Raise a `ValueError` where keys do not go together, or one would be passed over in silence."""
        if self.groups_at_most is not None and self.groups_at_most < self.groups_per_update:
            raise ValueError("reinforcement.groups_at_most must not be below reinforcement.groups_per_update")
        self._check_reference()
        for unheard, wanted in (
            ("kl = 0", self.kl > 0),
            ("entropy = 0", self.entropy > 0),
            ("epochs = 1", self.epochs > 1),
            ("minibatches = 1", self.minibatches > 1),
            ('correction = "none"', self.correction != "none"),
            ("dual_clip unset", self.dual_clip is not None),
        ):
            if wanted and self.prefers:
                raise ValueError(f'reinforcement.loss = "{self.loss}" needs reinforcement.{unheard}')

    def _check_reference(self) -> None:
        moving = self.reference_ema is not None, self.reference_every is not None
        if all(moving):
            raise ValueError("reinforcement.reference_ema and reinforcement.reference_every exclude each other")
        if any(moving) and not self.kl and not self.prefers:
            name = "reference_ema" if moving[0] else "reference_every"
            raise ValueError(f"reinforcement.{name} needs reinforcement.kl: nothing else holds on to a reference")


class TrackOptions(Table):
    """Training tasks that are learned over and over; where `adaptive` starts rollouts on their experts' ways."""

    per_template: int = Field(default=0, ge=0)
    """Tasks of each template, after those that are demonstrated."""
    own_tries: int = Field(default=0, ge=0)
    """Rollouts of the policy, such as that of `policy.start`, at a task whose expert fails or that has none; the
    shortest success is gone through again and is the task's way, as an expert's would be."""
    valuable_tries: int = Field(default=0, ge=0)
    """Rollouts of the policy at each task; those that it solves at least once are learned, and no others (ARPO; 16).
    They count as interactions."""
    shrink_above: float | None = Field(default=None, ge=0, lt=1)
    """Of `tasks`: success of a task from which its groups shrink, down to two (DART-GUI; 0.6)."""
    cool_down_after: int | None = Field(default=None, ge=1)
    """Of `tasks`: visits in a row without a success, after which a task comes up ever less, and then no more
    (MobileRL's curriculum; 2)."""


class AdaptiveTable(Table):
    """Where `reinforcement.scheduler = "adaptive"` learns and how far it rolls out. Defaults: the published values."""

    signal: Literal["disagreement", "variance", "entropy", "all", "random"] = "disagreement"
    """What makes a state on an expert's way a pivot, measured by `answers` sampled answers."""
    threshold: float | None = Field(default=None, ge=0)
    """Of the signal; default: its usual one (0.45 for disagreement)."""
    tolerance: float = Field(default=0.05, ge=0, lt=1)
    """Share of the screen within which two places are one."""
    places: Literal["near", "element"] = "near"
    """When two clicks are the same: within the tolerance (published), or, beyond the paper, on one element."""
    text: Literal["any", "exact", "overlap"] = "any"
    """When two typed texts are the same: always (published), but for case, or where half of their words are shared."""
    tau_low: float = Field(default=0.25, ge=0, le=1)
    tau_high: float = Field(default=0.75, ge=0, le=1)
    tau_suffix: float = Field(default=0.5, ge=0, lt=1)
    """0.5 in the paper's appendix, 0.75 in its main text."""
    answers: int = Field(default=8, ge=2)
    suffixes: int = Field(default=8, ge=2)
    estimate: int = Field(default=4, ge=1)
    probes: int = Field(default=2, ge=2)
    local_pivots: int = Field(default=4, ge=1)
    estimate_every: int = Field(default=5, ge=1)
    suffix_window: int = Field(default=1, ge=1)
    rescue_after: int | None = Field(default=None, ge=1)
    """Beyond the paper: estimates without a gradient in between, after which suffixes begin anyway."""
    demote_below: float | None = Field(default=None, gt=0, le=1)
    """Beyond the paper: success of the last probes that sends a task back to suffixes."""
    probe_window: int = Field(default=8, ge=1)
    lenient: bool = False
    """Beyond the paper: another answer than the expert's is right, too, where it leads to a later state of the expert's
    way, or to success; it is executed in a session opened at the state. Needs `snapshots.store`."""
    survey_every: int | None = Field(default=None, ge=1)
    """Of `pivots`: rounds, after which every state is measured again."""
    weighted: bool = False
    """Of `pivots`, beyond the paper: states are drawn by their scores, without a threshold."""


class ReplayTable(Table):
    """Success replay (ARPO): a group of whole rollouts that failed altogether is given a stored success."""

    capacity: int = Field(default=0, ge=0)
    """Successes kept of each task; the paper's 8. 0: no replay."""
    trigger: Literal["all_failed", "thresholds"] = "all_failed"
    """The paper's, or that of its code."""
    first: bool = False
    """Replace the first member, as the code does; else one drawn from the group."""


class RolloutOptions(Table):
    """Limits of one trajectory, and what is done about outside failures."""

    concurrency: int | None = Field(default=None, ge=1)
    """Trajectories in flight; default: as many as the environment has places."""
    max_turns: int | None = Field(default=None, ge=1)
    """Default: the template's own."""
    max_tokens: int = Field(default=4096, ge=1)
    """Sampled tokens in a trajectory."""
    max_seconds: float = Field(default=120.0, gt=0)
    """From an opened session to its evidence."""
    answer_seconds: float = Field(default=120.0, gt=0)
    """Until the engine's answer to one turn; other trajectories, whose turn is before it, have it wait."""
    invalid_limit: int = Field(default=1, ge=1)
    """The invalid answer that ends a trajectory; earlier ones get a message."""
    retries: int = Field(default=2, ge=0)
    """Of a trajectory lost to an outside failure, each on another session."""
    breaker_share: float = Field(default=0.5, gt=0, le=1)
    """The run stops when this share of the last `breaker_window` trajectories was lost outside."""
    breaker_window: int = Field(default=64, ge=1)


class SnapshotOptions(Table):
    """How the states of sessions are kept, for rollouts that start in the middle."""

    store: Literal["none", "auto", "criu", "podman", "native", "replay"] = "none"
    """`auto` takes the most exact one that this host and the environment support, and says which; `none`: no session
    can be saved."""
    browser: Literal["shell", "full"] = "shell"
    """In containers: the headless shell, or the whole Chromium, whose images are larger and slower to open."""
    container_memory_mb: int = Field(default=1024, ge=128)
    container_disk_mb: int = Field(default=256, ge=16)
    """Of files that a container writes, which lie in memory."""
    container_processes: int = Field(default=512, ge=64)
    """Threads included."""
    podman_runtime: Literal["auto", "runc", "crun"] = "auto"
    podman_compression: Literal["none", "zstd"] = "none"
    memory_gb: float = Field(default=2.0, gt=0)
    """Images of containers in memory; more are compressed and moved to the run's directory, the least recently used
    first."""
    tolerance: float = Field(default=0.0, ge=0, le=1)
    """Share of a screenshot's pixels in which an opened state may differ from the saved one."""


class EvaluationOptions(Table):
    """Episodes on held-out seeds."""

    per_template: int = Field(default=40, ge=1)
    """Held-out tasks for each template, sampled (T = 1) and greedy alike."""
    train_per_template: int = Field(default=0, ge=0)
    tries: int = Field(default=1, ge=1)
    """Sampled tries of each task, for Avg@k and Pass@k."""
    budgets: list[int] = Field(default_factory=list)
    """Interaction budgets: turns within which success is told, all of them from the same episodes, which go on up to
    the largest, whatever `rollout.max_turns` is."""
    curve_per_template: int = Field(default=0, ge=0)
    """Held-out tasks for the points between the ends of the learning curve; 0: none."""
    curve_every_minutes: float = Field(default=3.0, gt=0)

    def check(self) -> None:
        """Raise a `ValueError` where a budget is none."""
        if any(budget < 1 for budget in self.budgets) or len(set(self.budgets)) < len(self.budgets):
            raise ValueError("evaluation.budgets are different numbers of turns, each at least 1")
