"""Turns batches into policies: behaviour cloning and clipped policy gradient by one path of code.

Every loss is a plain sum over tokens, because the batch's credits and weights hold their global denominators; so
neither micro-batches nor the sharing of prompts can change what is computed, but for rounding.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cairn.algo import kl, losses
from cairn.data.ids import PolicyVersion
from cairn.data.sample import Batch, Preference
from cairn.models.memory import release_memory
from cairn.models.policy import Policy
from cairn.models.scoring import Scores
from cairn.ports import LearnerStep
from cairn.train import shards, state
from cairn.train.examples import Example, Tokens, example, tokens
from cairn.train.guard import Agreement, Bounds, ImageTokens, check_sampled, check_shape
from cairn.train.objective import Objective, correction_weights, policy_cost
from cairn.train.optimisation import Optimisation, Optimiser
from cairn.train.preference import PreferenceObjective, cost_and_slopes, sides_of
from cairn.train.ranks import Alone, Group, Ranks, shares
from cairn.train.survey import Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a `GradientLearner` is made with beside its policy."""

    imitation: Optimisation
    improvement: Optimisation
    objective: Objective = field(default_factory=Objective)
    preference: PreferenceObjective = field(default_factory=PreferenceObjective)
    bounds: Bounds = field(default_factory=Bounds)
    max_tokens: int = 2048  # of one forward pass: memory grows with it, results do not change
    placeholder_id: int | None = None  # the token that stands for an image
    image_tokens: ImageTokens | None = None  # where an image has several
    seed: int = 0  # of the order of minibatches


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
        self._reference: Policy | None = None
        self._found: dict[int, Tensor] = {}  # log-probabilities before an update's first step, by example

    @property
    def version(self) -> PolicyVersion:
        return self._version

    @property
    def policy(self) -> Policy:
        """What is trained: the same object for the learner's whole life."""
        return self._policy

    def imitate(self, batch: Batch) -> LearnerStep:
        started = self._clock()
        self._check_shape(batch)
        survey = self._survey()
        for part in self._parts([example(i, s) for i, s in enumerate(batch.samples)]):
            own = tokens(part, self._policy.device)
            scores = self._score(self._policy, part, temperature=1.0)
            loss = losses.likelihood(scores.chosen, own.weights).sum()
            loss.backward()
            survey.loss += float(loss.detach())
            survey.add(part, own, scores)
        survey.join(self._ranks)
        norm, rate = self._optimiser("imitate").step()
        return self._finish(started, survey, survey, norm=norm, rate=rate)

    def improve(self, batch: Batch) -> LearnerStep:
        started = self._clock()
        self._check_shape(batch)
        check_sampled(batch, version=self._version)
        if self._settings.objective.kl_coefficient and self._reference is None:
            self._reference = self._policy.copy()
        examples = [example(i, s) for i, s in enumerate(batch.samples)]
        rounds = self._rounds(examples)
        self._found = {}
        before = self._survey()  # at the sampling version: a pass of its own where several steps follow
        during = before
        if len(rounds) > 1:
            during = self._survey()
            with torch.no_grad():
                for part in self._parts(examples):
                    self._loss(part, before)
            before.join(self._ranks)
            self._found = self._shared(self._found, examples)
            before.agreement.verify()
        norm = rate = 0.0
        for minibatch in rounds:
            for part in self._parts(minibatch):
                loss = self._loss(part, during) * self._settings.objective.minibatches
                loss.backward()
            if during is before:
                before.join(self._ranks)
                before.agreement.verify()
            norm, rate = self._optimiser("improve").step()
        during.join(self._ranks)
        during.loss /= self._settings.objective.epochs
        return self._finish(started, before, during, norm=norm, rate=rate)

    def prefer(self, pairs: Sequence[Preference]) -> LearnerStep:
        """A pass that measures both sides, and one in which every token is worth its side's slope of the cost.

        So a pair need not fit into one forward pass, and the gradient is exact.
        """
        started = self._clock()
        sides = sides_of(pairs)
        self._check_shape(sides.batch)
        check_sampled(sides.batch, version=self._version)
        if self._reference is None:
            self._reference = self._policy.copy()
        survey = self._survey()
        gains = self._gains(sides.examples, self._reference, survey)
        survey.join(self._ranks)
        survey.agreement.verify()
        objective = self._settings.preference
        baseline = 0.0
        if objective.loss == "kto" and (mismatched := sides.mismatched()):
            baseline = max(0.0, float(np.mean(self._gains(mismatched, self._reference, None))))
        survey.loss, slopes = cost_and_slopes(objective, sides.totals(gains), sides, baseline=baseline)
        worth = slopes.float()[list(sides.of)].to(self._policy.device)  # of every token of each example
        for part in self._parts(sides.examples):
            scores = self._score(self._policy, part, temperature=self._settings.objective.temperature)
            own = tokens(part, self._policy.device)
            of = [0.0 if e.idle else 1.0 for e in part]
            slope = worth[[max(0, e.index) for e in part]] * torch.tensor(of, device=worth.device)
            (slope[own.sequence] * scores.chosen).sum().backward()
        norm, rate = self._optimiser("improve").step()
        return self._finish(started, survey, survey, norm=norm, rate=rate)

    @torch.no_grad()
    def _gains(self, examples: Sequence[Example], reference: Policy, survey: Survey | None) -> list[float]:
        """By how much each answer is likelier than under `reference`, in nats."""
        found: dict[int, Tensor] = {}
        temperature = self._settings.objective.temperature
        for part in self._parts(examples):
            own = tokens(part, self._policy.device)
            scores = self._score(self._policy, part, temperature=temperature)
            before = self._score(reference, part, temperature=temperature)
            sums = torch.zeros(len(part), dtype=torch.float64, device=own.sequence.device)
            sums.index_add_(0, own.sequence, scores.chosen.double() - before.chosen.double())
            found |= zip((e.index for e in part), sums[:, None], strict=True)
            if survey is not None:
                survey.add(part, own, scores)
        if self._ranks.count > 1:
            known = [float(found[e.index]) if e.index in found else 0.0 for e in examples]
            return self._ranks.total(torch.tensor(known, dtype=torch.float64)).tolist()
        return [float(found[e.index]) for e in examples]

    def _shared(self, found: dict[int, Tensor], examples: Sequence[Example]) -> dict[int, Tensor]:
        """What any rank has found, by example."""
        if self._ranks.count == 1:
            return found
        sizes = [e.sampled.shape[0] for e in examples]
        own = [
            found[e.index].cpu().double() if e.index in found else torch.zeros(size, dtype=torch.float64)
            for e, size in zip(examples, sizes, strict=True)
        ]
        every = self._ranks.total(torch.cat(own)).float().to(self._policy.device).split(sizes)
        return dict(zip((e.index for e in examples), every, strict=True))

    def save(self, path: Path) -> None:
        if isinstance(self._ranks, Group):
            shards.save_shards(path, self._state(), group=self._ranks, save_processor=self._save_processor)
        else:
            state.save(path, self._state(), save_processor=self._save_processor)

    def load(self, path: Path) -> None:
        header = shards.load_shards(path, self._state(), optimiser=self._optimiser)
        self._version = PolicyVersion(header.version)
        if header.reference is not None:
            self._reference = self._policy.copy()
            shards.load_reference(header.reference, self._reference.model)

    def _state(self) -> state.LearnerState:
        return state.LearnerState(
            version=self._version,
            model=self._policy.model,
            reference=self._reference.model if self._reference else None,
            optimisers=self._optimisers,
        )

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
        survey.loss += float(cost.detach())
        survey.add(part, own, scores)
        with torch.no_grad():
            survey.note_clipped(losses.at_clip(chosen, base.behaviour, own.credit, limits=objective.limits))
            survey.note_weights(weights)
        return cost

    def _before(self, part: Sequence[Example], chosen: Tensor) -> Tensor:
        """What the chosen tokens' log-probabilities [T] were when this update first saw them."""
        ends = np.cumsum([e.sampled.shape[0] for e in part])[:-1].tolist()
        for one, now in zip(part, chosen.detach().tensor_split(ends), strict=True):
            self._found.setdefault(one.index, now)
        return torch.cat([self._found[one.index] for one in part])

    def _regularisation(self, part: Sequence[Example], own: Tokens, scores: Scores) -> Tensor:
        objective = self._settings.objective
        cost = torch.zeros((), device=scores.chosen.device)
        if self._reference is not None and objective.kl_coefficient:
            with torch.no_grad():
                reference = self._score(self._reference, part, temperature=objective.temperature)
            estimate = kl.k2 if objective.kl_estimator == "k2" else kl.k3
            cost = cost + objective.kl_coefficient * (own.weights * estimate(scores.chosen, reference.chosen)).sum()
        if objective.entropy_coefficient:
            cost = cost - objective.entropy_coefficient * (own.weights * scores.entropy).sum()
        return cost

    def _score(self, policy: Policy, part: Sequence[Example], *, temperature: float) -> Scores:
        prompts, answers, sampled = ([e.prompt for e in part], [e.answer for e in part], [e.sampled for e in part])
        return policy.scores(prompts, answers, sampled, temperature=temperature)

    def _check_shape(self, batch: Batch) -> None:
        settings = self._settings
        check_shape(batch, placeholder_id=settings.placeholder_id, image_tokens=settings.image_tokens)

    def _parts(self, examples: Sequence[Example]) -> Iterator[list[Example]]:
        """Micro-batches, which see each image of `examples` once: leave it to the loop's end."""
        images = [image for e in examples for image in e.prompt.images]
        parts = self._own_parts(examples)
        reference = nullcontext() if self._reference is None else self._reference.looking(images)
        with self._policy.looking(images), reference:
            yield from parts

    def _own_parts(self, examples: Sequence[Example]) -> list[list[Example]]:
        """Those that this rank computes: as many on every rank, with idle ones where there are not enough."""
        prompts, answers, limit = [e.prompt for e in examples], [e.answer for e in examples], self._settings.max_tokens
        sizes = [p.token_ids.shape[0] + a.shape[0] for p, a in zip(prompts, answers, strict=True)]
        count = self._ranks.count
        parts = self._policy.parts(prompts, answers, max_tokens=limit)
        limit = min(limit, sum(sizes))
        while count > 1 and len(parts) < min(count, len(examples)) and limit > 1:  # work for everyone
            limit //= 2
            parts = self._policy.parts(prompts, answers, max_tokens=limit)
        if count == 1:
            return [[examples[i] for i in part] for part in parts]
        every = shares(parts, sizes, count=count)
        own = [[examples[i] for i in part] for part in every[self._ranks.rank]]
        shortest = examples[int(np.argmin(sizes))]
        return own + [[shortest.as_idle()]] * (len(every[0]) - len(own))

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
            loss=during.loss,
            grad_norm=norm,
            learning_rate=rate,
            entropy=before.entropy,
            kl=before.kl,
            clipped=during.clipped,
            effective=during.effective,
            mismatch_mean=before.agreement.mean,
            mismatch_max=before.agreement.worst,
            trained_tokens=during.computed,
            seconds=self._clock() - started,
        )
