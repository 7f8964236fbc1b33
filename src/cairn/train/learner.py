"""Turns batches into policies: behaviour cloning and clipped policy gradient by one path of code.

Every loss is a plain sum over tokens, because the batch's credits and weights hold their global denominators; so
neither micro-batches nor the sharing of prompts can change what is computed, but for rounding.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cairn.algo import losses
from cairn.data.ids import PolicyVersion
from cairn.data.sample import Appraisal, Batch, CreditedSample, Preference, Sample
from cairn.errors import InvariantError
from cairn.models.memory import release_memory
from cairn.models.policy import Policy
from cairn.models.scoring import Scores
from cairn.ports import LearnerStep
from cairn.train import shards, state
from cairn.train.critic import Critic, CriticSettings, explained
from cairn.train.examples import Example, Tokens, by_example, example, tokens, uncredited
from cairn.train.guard import Agreement, Bounds, ImageTokens, check_sampled, check_shape, check_vocabulary
from cairn.train.objective import Objective, correction_weights, divergence, policy_cost
from cairn.train.optimisation import Optimisation, Optimiser
from cairn.train.parts import appraisal, from_all, own_parts
from cairn.train.preference import PreferenceObjective, Sides, cost_and_slopes, sides_of
from cairn.train.ranks import Alone, Group, Ranks
from cairn.train.reference import Following, Reference
from cairn.train.refused import keep_refused
from cairn.train.survey import Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a `GradientLearner` is made with beside its policy."""

    imitation: Optimisation
    improvement: Optimisation
    objective: Objective = field(default_factory=Objective)
    preference: PreferenceObjective = field(default_factory=PreferenceObjective)
    following: Following = field(default_factory=Following)  # of the policy that both hold on to
    critic: CriticSettings | None = None  # None: no critic
    bounds: Bounds = field(default_factory=Bounds)
    max_tokens: int = 2048  # of one forward pass: memory grows with it, results do not change
    placeholder_id: int | None = None  # the token that stands for an image
    image_tokens: ImageTokens | None = None  # where an image has several
    foreign: bool = False  # what is learned from was sampled by another run's policies
    seed: int = 0  # of the order of minibatches
    refused: Path | None = None  # where a batch is kept that an update refused; None: nowhere


class GradientLearner:
    """Trains the module of `policy` in place, in float32 (under the policy's autocast, if any).

    Imitation and improvement keep moments and schedules of their own. All randomness derives from (seed, version), so
    that a checkpoint needs no generator's state.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        settings: Settings,
        save_processor: Callable[[Path], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        ranks: Ranks | None = None,
    ) -> None:
        """Start at version 0. `save_processor` writes the tokenizer or processor beside a saved model.

        With `ranks` every one of them is asked for the same, with the same batches, and computes its part of them; the
        policy is a sharded one.
        """
        self._policy = policy
        self._ranks = ranks or Alone()
        self._settings = settings
        self._save_processor = save_processor
        self._clock = clock
        self._version = PolicyVersion(0)
        self._optimisers: dict[state.Phase, Optimiser] = {}
        self._reference: Reference | None = None
        self._critic: Critic | None = None
        self._found: dict[int, Tensor] = {}  # log-probabilities before an update's first step, by example

    @property
    def version(self) -> PolicyVersion:
        return self._version

    @property
    def policy(self) -> Policy:
        """What is trained: the same object for the learner's whole life."""
        return self._policy

    @property
    def moment_bytes(self) -> int:
        """Memory of all that optimisers keep between updates."""
        return sum(t.numel() * t.element_size() for o in self._optimisers.values() for _, t in o.tensors())

    def imitate(self, batch: Batch) -> LearnerStep:
        with self._refusing(batch.samples):
            return self._imitate(batch)

    def appraise(self, samples: Sequence[Sample]) -> Sequence[Appraisal]:
        """The KL to the reference, and a critic's values, where this learner's settings have them; else zeros."""
        batch = Batch(samples=tuple(uncredited(sample, weight=1.0) for sample in samples))
        with self._refusing(batch.samples):
            return self._appraise(batch)

    def improve(self, batch: Batch) -> LearnerStep:
        with self._refusing(batch.samples):
            return self._improve(batch)

    def prefer(self, pairs: Sequence[Preference]) -> LearnerStep:
        """A pass that measures both sides, and one in which every token is worth its side's slope of the cost.

        So a pair need not fit into one forward pass, and the gradient is exact.
        """
        sides = sides_of(pairs)
        with self._refusing(sides.batch.samples):
            return self._prefer(sides)

    def _imitate(self, batch: Batch) -> LearnerStep:
        started = self._clock()
        self._check_shape(batch)
        survey = self._survey()
        for part in self._parts([example(i, s) for i, s in enumerate(batch.samples)]):
            own = tokens(part, self._policy.device)
            scores = self._score(self._policy, part, temperature=1.0)
            loss = losses.likelihood(scores.chosen, own.weights).sum()
            loss.backward()
            survey.sums.loss += float(loss.detach())
            survey.add(part, own, scores)
        survey.join(self._ranks)
        norm, rate = self._optimiser("imitate").step()
        return self._finish(started, survey, survey, norm=norm, rate=rate)

    @torch.no_grad()
    def _appraise(self, batch: Batch) -> Sequence[Appraisal]:
        self._check_shape(batch)
        objective = self._settings.objective
        examples = [example(i, s) for i, s in enumerate(batch.samples)]
        divergences: dict[int, Tensor] = {}
        if objective.kl_coefficient and objective.kl_in_reward:
            reference = self._held_reference()
            for part in self._parts(examples, beside=reference):
                now, before = (
                    self._score(one, part, temperature=objective.temperature).chosen
                    for one in (self._policy, reference)
                )
                found = divergence(objective, now, before).cpu()
                divergences |= {one.index: own for one, own in by_example(part, found)}
            divergences = from_all(divergences, examples, self._ranks)
        critic = self._held_critic()
        values = critic.values(examples) if critic is not None else {}
        return [appraisal(s, i, divergences, values) for i, s in enumerate(batch.samples)]

    def _improve(self, batch: Batch) -> LearnerStep:
        started = self._clock()
        self._check_shape(batch)
        check_sampled(batch, version=self._version, foreign=self._settings.foreign)
        if self._settings.objective.kl_coefficient:
            self._held_reference()
        critic = self._held_critic()
        examples = [example(i, s) for i, s in enumerate(batch.samples)]
        rounds = self._rounds(examples)
        self._found = {}
        before = self._survey()  # at the sampling version: a pass of its own where several steps follow
        during = before
        if len(rounds) > 1:
            during = self._survey()
            with torch.no_grad():
                for part in self._parts(examples, beside=self._in_loss()):
                    self._loss(part, before)
            before.join(self._ranks)
            self._found = from_all(self._found, examples, self._ranks)
            before.agreement.verify()
        norm = rate = missed = 0.0
        parts = self._settings.objective.minibatches
        for minibatch in rounds:
            waits = critic is not None and critic.alone  # the policy waits for its critic
            with torch.set_grad_enabled(not waits):
                for part in self._parts(minibatch, beside=self._in_loss()):
                    loss = self._loss(part, during) * parts
                    if not waits:
                        loss.backward()
            if during is before:
                before.join(self._ranks)
                before.agreement.verify()
            if critic is not None:
                missed += critic.learn(minibatch, scale=parts)
                critic.optimiser.step()
            if not waits:
                norm, rate = self._optimiser("improve").step()
        during.join(self._ranks)
        during.sums.loss /= self._settings.objective.epochs
        self._follow()
        step = self._finish(started, before, during, norm=norm, rate=rate)
        return replace(step, value_loss=missed / self._settings.objective.epochs, explained=explained(batch))

    def _prefer(self, sides: Sides) -> LearnerStep:
        started = self._clock()
        self._check_shape(sides.batch)
        check_sampled(sides.batch, version=self._version, foreign=self._settings.foreign)
        survey = self._survey()
        gains = self._gains(sides.examples, self._held_reference(), survey)
        survey.join(self._ranks)
        survey.agreement.verify()
        objective = self._settings.preference
        baseline = 0.0
        if objective.loss == "kto" and (mismatched := sides.mismatched()):
            baseline = max(0.0, float(np.mean(self._gains(mismatched, self._held_reference(), None))))
        survey.sums.loss, slopes = cost_and_slopes(objective, sides.totals(gains), sides, baseline=baseline)
        worth = slopes.float()[list(sides.of)].to(self._policy.device)  # of every token of each example
        for part in self._parts(sides.examples):
            scores = self._score(self._policy, part, temperature=self._settings.objective.temperature)
            own = tokens(part, self._policy.device)
            of = [0.0 if e.idle else 1.0 for e in part]
            slope = worth[[max(0, e.index) for e in part]] * torch.tensor(of, device=worth.device)
            (slope[own.sequence] * scores.chosen).sum().backward()
        norm, rate = self._optimiser("improve").step()
        self._follow()
        return self._finish(started, survey, survey, norm=norm, rate=rate)

    @torch.no_grad()
    def _gains(self, examples: Sequence[Example], reference: Reference, survey: Survey | None) -> list[float]:
        """By how much each answer is likelier than under `reference`, in nats."""
        found: dict[int, Tensor] = {}
        temperature = self._settings.objective.temperature
        for part in self._parts(examples, beside=reference):
            own = tokens(part, self._policy.device)
            scores = self._score(self._policy, part, temperature=temperature)
            before = self._score(reference, part, temperature=temperature)
            sums = torch.zeros(len(part), dtype=torch.float64, device=own.sequence.device)
            sums.index_add_(0, own.sequence, scores.chosen.double() - before.chosen.double())
            found |= zip((e.index for e in part), sums[:, None], strict=True)
            if survey is not None:
                survey.add(part, own, scores)
        whole = from_all(found, examples, self._ranks)
        return [float(whole[e.index]) for e in examples]

    def save(self, path: Path) -> None:
        if isinstance(self._ranks, Group):
            shards.save_shards(path, self._state(), group=self._ranks, save_processor=self._save_processor)
        else:
            state.save(path, self._state(), save_processor=self._save_processor)

    def load(self, path: Path) -> None:
        header = shards.load_shards(path, self._state(), optimiser=self._optimiser)
        self._version = PolicyVersion(header.version)
        if header.reference is not None:
            self._reference = Reference(self._policy)
            shards.load_reference(header.reference, self._reference, age=header.reference_age)
        if header.critic is not None:
            state.load_critic(header.critic, self._held_critic())

    def _state(self) -> state.LearnerState:
        return state.LearnerState(
            version=self._version,
            model=self._policy.model,
            reference=self._reference,
            optimisers=self._optimisers,
            critic=self._critic,
        )

    def _held_reference(self) -> Reference:
        """The policy that is held on to: as it was when it was first asked for."""
        if self._reference is None:
            self._reference = Reference(self._policy)
        return self._reference

    def _in_loss(self) -> Reference | None:
        """The policy whose KL is a part of the loss; None where there is no such part."""
        objective = self._settings.objective
        wanted = objective.kl_coefficient and not objective.kl_in_reward
        return self._held_reference() if wanted else None

    def _held_critic(self) -> Critic | None:
        """The critic, begun from the policy as it was when it was first asked for; None where there is none."""
        wanted = self._settings.critic
        if self._critic is None and wanted is not None:
            self._critic = Critic(policy=self._policy, settings=wanted, max_tokens=self._settings.max_tokens)
        return self._critic

    @contextmanager
    def _refusing(self, samples: Sequence[CreditedSample]) -> Generator[None]:
        """Keep the samples where the block finds them, or what comes of them, not fit to learn from."""
        try:
            yield
        except InvariantError as error:
            self._policy.model.zero_grad(set_to_none=True)
            if self._settings.refused is None:
                raise
            path = keep_refused(self._settings.refused, samples, why=str(error), version=self._version)
            raise InvariantError(f"{error}; nothing was learned from the batch, which is kept in {path}") from error

    def _loss(self, part: Sequence[Example], survey: Survey) -> Tensor:
        """The summed cost of one micro-batch, measured into `survey`."""
        survey = self._survey() if part[0].idle else survey
        objective = self._settings.objective
        own = tokens(part, self._policy.device)
        scores = self._score(self._policy, part, temperature=objective.temperature)
        chosen = scores.chosen
        base = own if objective.correction == "none" else replace(own, behaviour=self._before(part, chosen))
        weights = correction_weights(objective, base.behaviour - own.behaviour, own.sequence)
        cost = (weights * policy_cost(objective, chosen, base)).sum()
        cost = cost + self._regularisation(part, own, scores)
        survey.sums.loss += float(cost.detach())
        survey.add(part, own, scores)
        with torch.no_grad():
            survey.note_ratios(chosen - base.behaviour)
            survey.note_clipped(losses.at_clip(chosen, base.behaviour, own.credit, limits=objective.limits))
            survey.note_weights(weights)
        return cost

    def _before(self, part: Sequence[Example], chosen: Tensor) -> Tensor:
        """What the chosen tokens' log-probabilities [T] were when this update first saw them."""
        for one, now in by_example(part, chosen.detach()):
            self._found.setdefault(one.index, now)
        return torch.cat([self._found[one.index] for one in part])

    def _regularisation(self, part: Sequence[Example], own: Tokens, scores: Scores) -> Tensor:
        objective = self._settings.objective
        cost = torch.zeros((), device=scores.chosen.device)
        if (reference := self._in_loss()) is not None:
            before = self._score(reference, part, temperature=objective.temperature)
            apart = divergence(objective, scores.chosen, before.chosen)
            cost = cost + objective.kl_coefficient * (own.weights * apart).sum()
        if objective.entropy_coefficient:
            cost = cost - objective.entropy_coefficient * (own.weights * scores.entropy).sum()
        return cost

    def _score(self, policy: Policy | Reference, part: Sequence[Example], *, temperature: float) -> Scores:
        prompts, answers, sampled = ([e.prompt for e in part], [e.answer for e in part], [e.sampled for e in part])
        return policy.scores(prompts, answers, sampled, temperature=temperature)

    def _check_shape(self, batch: Batch) -> None:
        settings = self._settings
        check_vocabulary(batch, size=self._policy.vocabulary)
        check_shape(batch, placeholder_id=settings.placeholder_id, image_tokens=settings.image_tokens)

    def _parts(self, examples: Sequence[Example], *, beside: Reference | None = None) -> Iterator[list[Example]]:
        """Micro-batches, which see each image of `examples` once, also where they are scored by `beside`.

        Leave it to the loop's end.
        """
        images = [image for e in examples for image in e.prompt.images]
        parts = own_parts(self._policy, examples, self._ranks, max_tokens=self._settings.max_tokens)
        with self._policy.looking(images), nullcontext() if beside is None else beside.looking(images):
            yield from parts

    def _rounds(self, examples: list[Example]) -> list[list[Example]]:
        """The examples of each optimiser step, in order."""
        objective = self._settings.objective
        if objective.epochs == objective.minibatches == 1:
            return [examples]
        order = np.random.Generator(np.random.Philox(key=[self._settings.seed, self._version]))
        rounds: list[list[Example]] = []
        for _ in range(objective.epochs):
            shuffled = order.permutation(len(examples))
            parts = np.array_split(shuffled, min(objective.minibatches, len(examples)))
            rounds.extend([examples[i] for i in part] for part in parts)
        return rounds

    def _follow(self) -> None:
        if self._reference is not None:
            self._reference.follow(self._settings.following)

    def _survey(self) -> Survey:
        return Survey(Agreement(version=self._version, bounds=self._settings.bounds))

    def _optimiser(self, phase: state.Phase) -> Optimiser:
        if phase not in self._optimisers:
            optimisation = self._settings.imitation if phase == "imitate" else self._settings.improvement
            self._optimisers[phase] = Optimiser(model=self._policy.model, optimisation=optimisation)
        return self._optimisers[phase]

    def _finish(self, started: float, before: Survey, during: Survey, *, norm: float, rate: float) -> LearnerStep:
        self._version = PolicyVersion(self._version + 1)
        release_memory()
        return LearnerStep(
            version=self._version,
            loss=during.sums.loss,
            grad_norm=norm,
            learning_rate=rate,
            entropy=before.entropy,
            kl=before.kl,
            clipped=during.clipped,
            effective=during.effective,
            ratio_mean=during.ratio_mean,
            ratio_deviation=during.ratio_deviation,
            mismatch_mean=before.agreement.mean,
            mismatch_max=before.agreement.worst,
            trained_tokens=int(during.sums.computed),
            seconds=self._clock() - started,
        )
