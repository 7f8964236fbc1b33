"""Plants known bugs, one at a time, and asks the tests: every one of them must fail. `just bugs` runs it."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A mistake that a module could hold, and the tests that ought to notice."""

    module: str
    right: str
    wrong: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.module}: {self.right.strip()} -> {self.wrong.strip()}"

    def planted(self) -> str:
        """The module's text with the bug in it. Raises `ValueError` where it cannot be planted exactly once."""
        text = (ROOT / "src" / "cairn" / self.module).read_text(encoding="utf-8")
        if text.count(self.right) != 1:
            raise ValueError(f"{self.module} holds {text.count(self.right)} times: {self.right}")
        return text.replace(self.right, self.wrong)


def _bugs(module: str, tests: tuple[str, ...], *changes: tuple[str, str]) -> list[Bug]:
    return [Bug(module=module, right=right, wrong=wrong, tests=tests) for right, wrong in changes]


ALGO, REWARDS = ("tests/algo",), ("tests/rewards",)
BUGS = [
    *_bugs(
        "algo/advantages.py",
        ALGO,
        ("_deviation(rewards, ddof=1)", "_deviation(rewards, ddof=0)"),
        ("np.float32(size / (size - 1))", "np.float32((size - 1) / size)"),
        ("np.where(advantages < 0,", "np.where(advantages > 0,"),
        ("min(least + slope * rate, 1.0)", "min(least + slope * (1 - rate), 1.0)"),
        ("rewards.astype(np.float64).mean()", "np.median(rewards)"),
        ("if rewards.shape[0] < 2:", "if rewards.shape[0] < 1:"),
        ("rewards.astype(np.float64).mean()", "rewards.mean()"),
    ),
    *_bugs(
        "algo/losses.py",
        ALGO,
        ("ratio.clamp(max=limits[1])", "ratio.clamp(max=limits[0])"),
        ("gain = torch.minimum(", "gain = torch.maximum("),
        ("penalty = torch.maximum(", "penalty = torch.minimum("),
        ("penalty.clamp(max=dual_clip)", "penalty.clamp(min=dual_clip)"),
        ("mean = (sums / counts.clamp(min=1.0))", "mean = sums"),
        (" * (logprobs - logprobs.detach()).exp()", ""),
        ("_ratio(logprobs, behaviour).detach().clamp(floor, cap)", "_ratio(logprobs, behaviour).clamp(floor, cap)"),
        (".clamp(floor, cap)", ".clamp(max=cap)"),
        ("* (4.0 / negative_temperature)", "* (4.0 / temperature)"),
        ("torch.sigmoid(temperature * (ratio - 1.0))", "torch.sigmoid(temperature * ratio)"),
        ("torch.where(weights > 0, -weights * logprobs,", "torch.where(weights >= 0, -weights * logprobs,"),
        ("torch.where(possible, safe.exp() * safe,", "torch.where(possible, safe,"),
        ("(ratio < limits[0]) & (negative < 0)", "(ratio < limits[0]) & (positive > 0)"),
        (".clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()", ".exp()"),
        ("torch.maximum(error, (held - returns).square())", "torch.minimum(error, (held - returns).square())"),
        ("before + (values - before).clamp(-clip, clip)", "values.clamp(-clip, clip)"),
        ("return error / 2", "return error"),
    ),
    *_bugs(
        "algo/perceptual.py",
        ("tests/algo/test_perceptual.py",),
        ("np.diff(means, axis=1) > 1e-3", "np.diff(means, axis=1) < -1e-3"),
        ("if among[i] == among[place] and", "if"),
        ("near[0] if near else place", "near[-1] if near else place"),
        ("/ np.outer(np.diff(rows), np.diff(columns))", ""),
    ),
    *_bugs(
        "algo/kl.py",
        ALGO,
        (".square() / 2", ".square()"),
        ("torch.expm1(-d) + d", "torch.expm1(d) - d"),
        (".clamp(max=_MAX_K3)", ""),
    ),
    *_bugs(
        "algo/corrections.py",
        ALGO,
        ("_exp(log_ratio).clamp(max=cap)", "_exp(log_ratio).clamp(min=cap)"),
        ("(ratio >= low) & (ratio <= high)", "(ratio > low) & (ratio < high)"),
        ("_exp(_sums(log_ratio, sequence))[sequence].clamp(max=cap)", "_exp(log_ratio).clamp(max=cap)"),
        ("_exp(_sums(log_ratio, sequence) / counts)", "_exp(_sums(log_ratio, sequence))"),
        ("(mean <= high), _exp(log_ratio),", "(mean <= high), mean,"),
        ("(product >= low) & (product <= high), product,", "(product >= low) & (product <= high), _exp(log_ratio),"),
        ("return log_ratio.detach()", "return log_ratio"),
    ),
    *_bugs(
        "algo/returns.py",
        ALGO,
        ("np.sqrt(values.var() + _EPSILON)", "(values.var() + _EPSILON)"),
        ("np.where(mask, scaled, 0.0)", "scaled"),
        ("float(rewards[step]) + gamma * total", "float(rewards[step]) + total"),
        ("delta + gamma * lam * advantage", "delta + lam * advantage"),
        ("        if not trained[step]:\n            continue\n", ""),
        ("rewards[-1:] += reward", "rewards[:1] += reward"),
        ("rewards = -costs", "rewards = costs.copy()"),
        ("discounted(rewards, gamma=gamma) - greedy", "discounted(rewards, gamma=gamma)"),
        ("if by_step else rewards", "if not by_step else rewards"),
        ("+ weight * step)", "+ step)"),
        ("values.std(ddof=1)", "values.std(ddof=0)"),
    ),
    *_bugs(
        "algo/disagreement.py",
        ALGO,
        ("size * (size - 1) for size in sizes", "size * size for size in sizes"),
        ("np.triu_indices(size, k=1)", "np.triu_indices(size)"),
    ),
    *_bugs(
        "algo/statistics.py",
        ALGO,
        ("comb(tries - successes, k)", "comb(tries - k, successes)"),
        ("spread / (4 * tries)", "spread / tries"),
        ("float(values.var(ddof=1)) / size if", "float(values.var(ddof=1)) if"),
    ),
    *_bugs(
        "algo/preference.py",
        ALGO,
        ("smoothing * logsigmoid(-beta * margins)", "smoothing * logsigmoid(beta * margins)"),
        ("(margins - 1 / (2 * beta))", "(margins - 1 / beta)"),
        ("torch.sigmoid(beta * (baseline - gains))", "torch.sigmoid(beta * (gains - baseline))"),
    ),
    *_bugs(
        "train/preference.py",
        ("tests/train/test_preference.py",),
        ("free[::2] - free[1::2]", "free[1::2] - free[::2]"),
        ("means = free / sides.lengths", "means = free"),
        ("firsts[2:] + firsts[:2]", "firsts[1:] + firsts[:1]"),
        ("desirable = torch.arange(sides.count) % 2 == 0", "desirable = torch.arange(sides.count) < sides.count // 2"),
        ("torch.autograd.grad(costs.mean(), free)", "torch.autograd.grad(costs.sum(), free)"),
    ),
    *_bugs(
        "rollout/pairs.py",
        ("tests/rollout/test_pairs.py",),
        ("if m.reward == min(rewards)", "if m.reward < max(rewards)"),
        ("if shorter is best else", "if shorter is not best else"),
        ("islice(_pairs(group), limit)", "islice(_pairs(group), len(group.members))"),
    ),
    *_bugs(
        "rewards/grounding.py",
        REWARDS,
        ("box.left <= point.x <= right", "box.left < point.x < right"),
        ("_area(one) + _area(other) - common", "_area(one) + _area(other)"),
        ("_INFIGUI_IOU = 0.7", "_INFIGUI_IOU = 0.5"),
        ("2 * len(a & b) / (len(a) + len(b))", "len(a & b) / len(a | b)"),
        ("<= share", "<= 2 * share"),
    ),
    *_bugs(
        "rewards/shaping.py",
        REWARDS,
        (
            "share * (sum(right) / len(right)) + (1 - share) * most",
            "(1 - share) * (sum(right) / len(right)) + share * most",
        ),
        ("max(-0.5 * excess + 0.5, 0.1)", "-0.5 * excess + 0.5"),
        ("min(0.9 * excess - 0.1, -0.1)", "0.9 * excess - 0.1"),
        ("max(-factor, min(0.0,", "max(-9.0, min(0.0,"),
        ("weight + (1 - weight) * accuracy if well_formed else 0.0", "weight + (1 - weight) * accuracy"),
        ("kind + 0.8 if right_type and right_parameters", "kind + 0.8 if right_parameters"),
        ("(turns - shortest) / turns)", "(turns - shortest))"),
        ("2.0 * sum(formed) / len(formed) - 1.0", "sum(formed) / len(formed)"),
        ("if finished and not reached:", "if finished:"),
    ),
    *_bugs(
        "codecs/answer_parts.py",
        ("tests/codecs/test_answer_parts.py", "tests/codecs/test_thinking.py"),
        ("(?:(?!</?(?:{_THINK}|{action})>).)*</{action}>", "(?:(?!</?{_THINK}>).)*</{action}>"),
        ("(?:(?!</?{_THINK}>).)*)</{_THINK}>", ".*)</{_THINK}>"),
        ("(?:(?!^{re.escape(action)}).)*)^)?", ".*)^)?"),
        ("\\s*){{1,{most}}}", "\\s*){{1,2}}"),
        ("AnswerShape.ANSWER if alone else None", "AnswerShape.ANSWER"),
        ("return AnswerShape.THINK_ANSWER if thinks", "return AnswerShape.THINK_ANSWER if not thinks"),
    ),
    *_bugs(
        "rewards/recorded.py",
        ("tests/rewards/test_recorded.py",),
        ("strict=self.place is Place.STRICT", "strict=False"),
        ("if box is not None and self.place is not Place.NEAR:", "if box is not None:"),
        (
            "if self.share is None or middle is None:",
            "if middle is None or self.share is None:\n            return False\n        if False:",
        ),
        ("score > self.least if self.strict else score >= self.least", "score >= self.least"),
        ("first=place == 0)", "first=True)"),
        ("if e.interactive and point_in_box", "if point_in_box"),
        ("under = [e.box", "under = [] and [e.box"),
        ("default=None)", "default=None) if False else None"),
        ("field is None or wanted is None or", "wanted is None or"),
        ("return over_it and _RULES.same(action, expert, seen)", "return over_it"),
        ("left, right = sorted((one.x, other.x))", "left, right = one.x, other.x"),
    ),
    *_bugs(
        "rewards/terms.py",
        ("tests/rewards/test_terms.py",),
        ("and (parsed or not self.parses)", "and parsed"),
        ("not turn.completion.truncated and self.codec", "self.codec"),
        ("bool(turns) and all(self.formed(turn) for turn in turns)", "all(self.formed(turn) for turn in turns)"),
        (
            "-1.0 if case.trajectory.ending is Ending.FORMAT_ERROR",
            "1.0 if case.trajectory.ending is Ending.FORMAT_ERROR",
        ),
        ("return sum(turn.completion.token_ids.shape[0] for", "return max(turn.completion.token_ids.shape[0] for"),
        ("if answer is None or isinstance(answer.action, Invalid):", "if answer is None:"),
        ("share = min(1.0, max(0.0, evidence.raw_reward))", "share = evidence.raw_reward"),
        ("finished=not aborted and (evidence.done", "finished=(evidence.done"),
        ("aborted = last == Finish(FinishStatus.INFEASIBLE)", "aborted = isinstance(last, Finish)"),
    ),
    *_bugs(
        "rewards/composed.py",
        ("tests/rewards/test_composed.py",),
        ("values.get(name, 1.0) >= 1.0", "values.get(name, 0.0) >= 1.0"),
        ("values.get(name, 0.0) >= 1.0", "values.get(name, 1.0) >= 1.0"),
        ("values.get(name, 1.0) >= 1.0", "values.get(name, 1.0) > 0.0"),
        ("if not wanted or trajectory.plan.purpose is Purpose.DEMONSTRATE:", "if not wanted:"),
        ("if part.gate.open(values) else 0.0\n            if", "if True else 0.0\n            if"),
        ("if self.correct and all(name in values for name in self.correct):", "if self.correct:"),
        ("solved = all(values[name] >= 1.0", "solved = any(values[name] >= 1.0"),
        ("value=value if part.gate.open(known) else 0.0", "value=value"),
        ("wanted = self.at_recorded if recorded else self.in_sessions", "wanted = self.at_recorded"),
    ),
    *_bugs(
        "rewards/grouped.py",
        ("tests/rewards/test_composed.py",),
        ("longest=self.limit)", "longest=None)"),
        ("if right), default=0)", "), default=0)"),
        ("[_right(member) for member in members], longest", "[True for _ in members], longest"),
    ),
    *_bugs(
        "rewards/judged.py",
        ("tests/rewards/test_judged.py",),
        ("if not thought:\n            return 0.0", "if not thought:\n            return None"),
        ("float(score >= self.least)", "float(score > self.least)"),
        ("question.wanted or question.goal", "question.wanted"),
    ),
    *_bugs(
        "rewards/judge_cache.py",
        ("tests/rewards/test_judged.py",),
        ("asked = [judge, question.about,", "asked = [question.about,"),
        ("self._known[key] = opinion", "pass"),
        ("async with lock:", "if lock:"),
        ('errors="replace").split("\\n")', 'errors="replace").splitlines()'),
    ),
    *_bugs(
        "engines/judge.py",
        ("tests/engines/test_judge.py",),
        ("if 0 <= told.score <= best:", "if told.score <= best:"),
        ("score=told.score / best", "score=told.score / 10.5"),
        ("self.task if question.about is Asked.TASK else self.sub_goal", "self.task"),
        (
            'raise VerifierError(f"the judge {self.endpoint.model} gave',
            'return Opinion(score=0.0) or VerifierError(f"the judge {self.endpoint.model} gave',
        ),
    ),
    *_bugs(
        "engines/prompt.py",
        ("tests/engines/test_judge.py",),
        (
            "content = places.sub(lambda place: texts[place[1]], self.user)",
            "content = self.user.format(**texts).format(**texts)",
        ),
    ),
    *_bugs(
        "algo/agreement.py",
        ("tests/algo/test_agreement.py",),
        ("(observed - expected) / (1 - expected) if", "observed - expected if"),
        ("judged * checked + (total - judged) * (total - checked)", "judged * checked"),
        ("both=pairs.count((True, True))", "both=pairs.count((False, False))"),
    ),
    *_bugs(
        "rollout/group.py",
        ("tests/rollout/test_group.py",),
        ("solved = reward == 1.0 and not formless", "solved = reward == 1.0 or formless"),
        ("Outcome.FORMAT_ERROR if formless else _outcome", "_outcome"),
        ("return self.judging.together(played.group())", "return played.group()"),
        ("math.fsum(term.worth for term in terms)", "math.fsum(term.value for term in terms)"),
    ),
    *_bugs(
        "rollout/samples.py",
        ("tests/rollout/test_samples.py", "tests/rollout/test_estimators.py"),
        ("1.0 / (piece.turns * tokens[place])", "1.0 / tokens[place]"),
        ("sample.versions.tobytes(), sample.images, alone)", "sample.images, alone)"),
        ("        and after.prompt.images[: len(before.prompt.images)] == before.prompt.images\n", ""),
        ("seen = turn.prompt.token_ids.shape[0] + done.token_ids.shape[0]", "seen = turn.prompt.token_ids.shape[0]"),
        ("images=run[-1].prompt.images", "images=run[0].prompt.images"),
        ("advantages[piece.turn], 0.0)", "advantages[0] + 0 * piece.turn, 0.0)"),
        ("advantages.clip(max=0.0)", "advantages.clip(min=0.0)"),
        ("own[piece.sample.loss_mask] for piece, own", "own for piece, own"),
    ),
    *_bugs(
        "rollout/estimators.py",
        ("tests/rollout/test_estimators.py",),
        ("given[-1:] = reward", "given[:1] = reward"),
        ("observation.digest for observation in seen", "index for index, _ in enumerate(seen)"),
    ),
    *_bugs(
        "rollout/estimators.py",
        ("tests/rollout/test_token_credit.py",),
        ("sum(solved) / len(solved)", "1.0"),
        ("and done not in known", ""),
        ("member.outcome is Outcome.SUCCESS and done", "done"),
        ("returns=found + appraised.values", "returns=found"),
        ("member.reward - float(own.costs.sum())", "member.reward - float(own.costs.mean())"),
        ("return None if any(m.outcome is Outcome.SUCCESS", "return None if all(m.outcome is Outcome.SUCCESS"),
    ),
    *_bugs(
        "rollout/estimators.py",
        ("tests/rollout/test_greedy.py",),
        ("(group.rewards == np.float32(group.greedy)).all()", "(group.rewards == group.rewards[0]).all()"),
    ),
    *_bugs(
        "rollout/samples.py",
        ("tests/rollout/test_token_credit.py",),
        ("done += _sampled(piece)", "done += 1"),
        ("None if targets is None else len(merged)", "None"),
        ("costs=crediting.kl * costs", "costs=costs"),
        ("/ len(rows) or 1.0", "or 1.0"),
        ("if counts and row is not None", "if row is not None or counts"),
    ),
    *_bugs(
        "rollout/greedy.py",
        ("tests/rollout/test_greedy.py",),
        ("for plan in plans if plan.purpose.trained", "for plan in plans"),
        ("group_size=1, purpose=Purpose.BASELINE", "purpose=Purpose.BASELINE"),
        ("purpose=Purpose.BASELINE)", "purpose=Purpose.TRAIN)"),
    ),
    *_bugs(
        "rollout/episode.py",
        ("tests/rollout/test_greedy.py",),
        ("0.0 if self.plan.purpose.greedy else", ""),
    ),
    *_bugs(
        "rollout/stored.py",
        ("tests/rollout/test_stored.py",),
        ("plan.purpose is Purpose.EVALUATE or ", ""),
        ("plan.task.split is not Split.TRAIN or ", ""),
        ("key = plan.task.id, plan.start", "key = plan.task.id, first[min(first)].start if first else plan.start"),
        ("if len(members) > 1", "if members"),
        ("replace(said, versions=versions)", "said"),
    ),
    *_bugs(
        "codecs/token_parts.py",
        ("tests/codecs/test_token_parts.py",),
        ('lambda quoted: " " * len(quoted.group())', "lambda quoted: quoted.group()"),
        ("acts[-1].end() if", "acts[0].end() if"),
        ("_PLACES.finditer(plain, begins)", "_PLACES.finditer(plain)"),
        ("letters[start:end] or [Part.ACTION]", "letters[start:end] or [Part.PLACE]"),
    ),
    *_bugs(
        "loop/imitation.py",
        ("tests/loop/test_imitation.py",),
        ("share / whole", "share / share.sum()"),
    ),
    *_bugs(
        "train/critic.py",
        ("tests/train/test_critic.py",),
        ("(cost * scale).backward()", "cost.backward()"),
        ("clip=self._settings.clip)", "clip=None)"),
        ("(returns - values).var()", "(returns - values.mean()).var()"),
        ("policy.copy().become_critic()", "policy.become_critic()"),
    ),
    *_bugs(
        "train/learner.py",
        ("tests/train/test_critic.py", "tests/train/test_refused.py"),
        ("kl_coefficient and not objective.kl_in_reward", "kl_coefficient"),
        ("with torch.set_grad_enabled(not waits):", "if True:"),
    ),
    *_bugs(
        "train/survey.py",
        ("tests/train/test_learner.py",),
        ("sums.correction**2 /", "sums.correction /"),
        ("self.ratio_mean**2", "self.ratio_mean"),
    ),
    *_bugs(
        "train/parts.py",
        ("tests/train/test_critic.py",),
        ("told[1][mask] = values[index]", "told[1][mask] = values[index][::-1]"),
    ),
    *_bugs(
        "train/examples.py",
        ("tests/train",),
        ("end = int(at[0]), int(at[-1]) + 1", "end = int(at[0]), int(at[-1])"),
        ("sampled=at - first", "sampled=at - first - 1"),
    ),
    *_bugs(
        "train/learner.py",
        ("tests/train",),
        ("self._loss(part, during) * parts", "self._loss(part, during)"),
        ("self._found.setdefault(one.index, now)", "self._found[one.index] = now"),
        ("(weights * policy_cost(objective, chosen, base))", "policy_cost(objective, chosen, base)"),
        ("scores.chosen.double() - before.chosen.double()", "before.chosen.double() - scores.chosen.double()"),
        ("slope[own.sequence]", "worth[own.sequence]"),
    ),
    *_bugs(
        "train/ranks.py",
        ("tests/train/test_ranks.py",),
        ("order[rank::count]", "order[rank:]"),
    ),
    *_bugs(
        "train/sharding.py",
        ("tests/train/test_ranks.py",),
        ("set_gradient_divide_factor(1.0)", "set_gradient_divide_factor(float(mesh.size()))"),
        ("found.chosen + self._touch()", "found.chosen"),
    ),
    *_bugs(
        "train/examples.py",
        ("tests/train/test_ranks.py",),
        ("positive=none, negative=none, weights=none)", "positive=none, negative=none)"),
    ),
    *_bugs(
        "models/attention.py",
        ("tests/models/test_attention.py",),
        ("blocks.max(-1)", "blocks.min(-1)"),
        (" + BLOCK - 1)", ")"),
        ("(last[row, other] >= place)", "(last[row, other] >= other)"),
    ),
    *_bugs(
        "train/compact.py",
        ("tests/train/test_compact.py",),
        ("(1 - high**steps)", "1.0"),
        ("lerp_(slope, 1 - low)", "lerp_(slope, low)"),
        ("ids.clamp(min=1)", "ids"),
        ("(shares - low) / (high - low)", "0.5"),
        ("manual_seed(int(steps) * len(self._weights) + number)", "manual_seed(id(weight) % 1000)"),
        ("torch.randint(0, 1 << 16,", "torch.randint(0, 1,"),
        ("piece.start // BLOCK", "0 * piece.start // BLOCK"),
        ("10.0**-zeros * (", "2.0**-zeros * ("),
    ),
    *_bugs(
        "train/optimisation.py",
        ("tests/train/test_learner.py",),
        ('if self.schedule == "cosine" else 1 - done', "if done else 1.0"),
        ("(step - self.warmup_steps) / max(1,", "step / max(1,"),
        ("final_share + (1 - self.final_share) * left", "final_share + left"),
    ),
    *_bugs(
        "train/reference.py",
        ("tests/train/test_reference.py", "tests/train/test_adapters.py"),
        ("1 - following.kept", "following.kept"),
        ("weight.data = mine[name]", "pass"),
        ("weight.data = self._adapter[name]", "pass"),
        ("            self.age = 0\n", ""),
        ("self.age = age", "pass"),
        ("weight.detach().clone() for", "weight.detach() for"),
    ),
    *_bugs(
        "models/adapters.py",
        ("tests/train/test_adapters.py",),
        ("layer.scaling[_NAME] * (up.weight", "(up.weight"),
        ('if base["fingerprint"] != fingerprint(model)', "if False"),
        ("weight.data = weight.data.float()", "weight.data = weight.data.bfloat16()"),
        ("if name in saved and buffer.is_floating_point()", "if buffer.is_floating_point()"),
        ("torch.random.manual_seed(adaptation.seed)", "pass"),
    ),
    *_bugs(
        "models/recomputing.py",
        ("tests/models/test_recomputing.py",),
        ("layer.training = torch.is_grad_enabled()", "layer.training = True"),
        ("setattr(layer, name, 0.0)", "pass"),
        ("        layer.training = torch.is_grad_enabled()\n", "        pass\n"),
    ),
    *_bugs(
        "models/policy.py",
        ("tests/models/test_recomputing.py",),
        ("return torch.cat(read).index_select(0, back)", "return torch.cat(read)"),
        ("whole = self._keeps_no_cache or", "whole ="),
    ),
    *_bugs(
        "models/scoring.py",
        ("tests/models/test_trees.py", "tests/train"),
        ("logits / temperature", "logits"),
        ("hidden.split(size), ids.split(size)", "hidden.split(size), ids.flip(0).split(size)"),
    ),
    *_bugs(
        "models/tree.py",
        ("tests/models/test_tree.py", "tests/models/test_trees.py"),
        ("depths.append(np.arange(shared, sequence.shape[0]))", "depths.append(np.arange(sequence.shape[0] - shared))"),
        ("path[shared:], size - 1))", "path[shared:], size))"),
        ("return int(differing[0]) if differing.size else length", "return int(differing[0]) if differing.size else 0"),
        ("tree.ends + start\n", "tree.ends\n"),
        ("sequences[trees[-1][0]][0] != sequences[i][0]", "False"),
        ("if full + len(tree) <= width", "if full <= width"),
    ),
    *_bugs(
        "models/trees.py",
        ("tests/models/test_tree.py", "tests/models/test_trees.py"),
        ("ends[:, None, :] >= place[:, None]", "ends[:, None, :] >= place[None, :]"),
        ("place[:, None] >= place[None, :]", "place[:, None] <= place[None, :]"),
        ("position_ids=positions, ", ""),
        ("return bool(difference <=", "return bool(difference >= -1) or bool(difference <="),
    ),
    *_bugs(
        "data/matching.py",
        ("tests/data/test_matching.py",),
        ("return hit == struck", "return hit is not None and struck is not None"),
        ("key=lambda e: e.box.width * e.box.height", "key=lambda e: -e.box.width * e.box.height"),
        ("if e.interactive and _inside", "if _inside"),
    ),
    *_bugs(
        "models/batching.py",
        ("tests/models/test_batching.py",),
        ("(prompt.token_ids.tobytes(), prompt.images)", "(prompt.token_ids.tobytes(), ())"),
        ("ids[row, width - sequence.shape[0] :] = sequence", "ids[row, : sequence.shape[0]] = sequence"),
        ("cost > max_tokens", "cost > 2 * max_tokens"),
    ),
    *_bugs(
        "algo/selection.py",
        ALGO,
        ("0 < own.right < own.tries", "0 < own.right <= own.tries"),
        ("-answers[place].tokens", "answers[place].tokens"),
        ("2 * own.right >= own.tries", "2 * own.right > own.tries"),
        ("given[kind] < there[kind]", "given[kind] <= there[kind]"),
    ),
    *_bugs(
        "algo/statistics.py",
        ALGO,
        ("* size / (size - 1) / values.shape[0] ** 2", "/ values.shape[0] ** 2"),
        ("np.bincount(place, weights=values - mean)", "values - mean"),
    ),
    *_bugs(
        "schedule/recorded.py",
        ("tests/schedule/test_recorded.py",),
        ("default_rng((self._seed, lap))", "default_rng(self._seed)"),
        ("if state.task.split is not Split.TRAIN:", "if False:"),
        ('self._count = whole(state, "count")', 'self._round = whole(state, "count")'),
    ),
    *_bugs(
        "store/recorded.py",
        ("tests/store/test_recorded.py",),
        ("size = min(max(size, 1), len(names) - 1)", "size = max(size, 1)"),
        ("wanted &= np.isin(known, list(templates))", "wanted |= np.isin(known, list(templates))"),
        ("if zlib.crc32(line) != crc:", "if False:"),
        ("by_template[task.template.id].add(task.id)", "by_template[task.id].add(task.id)"),
    ),
    *_bugs(
        "formats/places.py",
        ("tests/formats",),
        ("right / self.width", "right / self.height"),
        ("y / self.height)", "y / self.width)"),
        ("min((b for b in inside", "max((b for b in inside"),
    ),
    *_bugs(
        "rollout/recovery.py",
        ("tests/rollout/test_recovery.py",),
        ("if not same_page(mistake.checkpoint.observation, seen, focus=focus):", "if False:"),
        ("if found is not None and await _solves(session, mistake.rest):", "if found is not None:"),
        ("range(len(mistake.rest) - 1)", "range(len(mistake.rest) + 1)"),
    ),
    *_bugs(
        "codecs/past.py",
        ("tests/codecs/test_past.py",),
        ("return turns[-self.turns :] if self.turns else ()", "return turns"),
        ("return ids[:-1] if ids[-1] in ends else ids", "return ids"),
    ),
    *_bugs(
        "evaluate/report.py",
        ("tests/evaluate/test_report.py",),
        ("len(m.trajectory.turns) <= within", "len(m.trajectory.turns) < within"),
    ),
    *_bugs(
        "formats/screenspot.py",
        ("tests/formats",),
        ("picture.box(one, two, one + three, two + four)", "picture.box(one, two, three, four)"),
        ("if max(one, two, three, four) <= 1:", "if False:"),
    ),
    *_bugs(
        "loop/course.py",
        ("tests/loop/test_course.py",),
        ("if before is not None and before not in list(Phase):", "if before is not None:"),
        ("if self._now.phase is Phase.IMITATE or self._now.updates:", "if self._now.phase is Phase.IMITATE:"),
        ("if (same := self._measured_before(split, greedy=greedy)) is not None:", "if (same := None) is not None:"),
    ),
    *_bugs(
        "store/run.py",
        ("tests/store/test_run.py",),
        ("self.count(ledgers.of_groups(self._keep_unfinished(self._newest)))", "self._keep_unfinished(self._newest)"),
        ("self._newest = group", "pass"),
    ),
    *_bugs(
        "schedule/adaptive.py",
        ("tests/schedule/test_adaptive.py",),
        ("is not Mode.SUFFIX or not ways:", "is not Mode.SUFFIX:"),
    ),
    *_bugs(
        "codecs/pixel.py",
        ("tests/codecs/test_pixel.py",),
        ("if self._forbidden.isdisjoint(ids))", "if ids)"),
    ),
    *_bugs(
        "envs/chromium/process.py",
        ("tests/envs/test_chromium_process.py",),
        ('rm -rf "$scratch" "$temporary" ||', 'rm -rf "$scratch" ||'),
    ),
    *_bugs(
        "app/training.py",
        ("tests/app/test_limits.py",),
        ("answer_seconds=options.answer_seconds,", ""),
    ),
]


def caught(bug: Bug, folder: Path) -> bool:
    """Whether a test fails with the bug planted in the copy of the package that `folder` holds."""
    planted = folder / "cairn" / bug.module
    right = planted.read_text(encoding="utf-8")
    planted.write_text(bug.planted(), encoding="utf-8")
    try:
        options = ["-x", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={folder} tests examples"]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *bug.tests],
            cwd=ROOT,
            env={**os.environ, "CI": "true", "PYTHONPATH": str(folder)},  # for what tests start, too
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        planted.write_text(right, encoding="utf-8")
    if run.returncode not in {0, 1}:  # neither all passed nor some failed: nothing was asked
        sys.exit(f"{bug.name}\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return run.returncode == 1


def main() -> None:
    """Exit status 1 where a bug was not noticed. Arguments: only bugs whose names hold one of them."""
    wanted = [bug for bug in BUGS if not sys.argv[1:] or any(part in bug.name for part in sys.argv[1:])]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="cairn-bugs-") as name:
        shutil.copytree(ROOT / "src" / "cairn", Path(name) / "cairn", ignore=shutil.ignore_patterns("__pycache__"))
        for bug in wanted:
            found = caught(bug, Path(name))
            missed += not found
            sys.stdout.write(f"{'caught' if found else 'MISSED'}  {bug.name}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(wanted) - missed} of {len(wanted)} bugs caught\n")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
