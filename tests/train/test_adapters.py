"""Learning by adapters: what moves, what it is held on to by, what is saved, and what an engine is given."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from torch import nn
from transformers import LlamaForCausalLM

from cairn.data.ids import PolicyVersion
from cairn.engines.transformers import TransformersEngine
from cairn.errors import ConfigError
from cairn.models.adapters import Adaptation, adapt, adapter, merge, plain_copy, plain_weights
from cairn.models.policy import Policy
from cairn.train.learner import GradientLearner, Settings
from cairn.train.objective import Objective
from cairn.train.optimisation import Optimisation
from cairn.train.preference import PreferenceLoss, PreferenceObjective
from cairn.train.reference import Reference
from tiny_policy import FORBIDDEN, STOPS, batch, credited, flat_logprobs, llama, policy, prompt
from train.test_learner import SETTINGS, assert_same, weights
from train.test_preference import pairs, replace_versions

RANK4 = Adaptation(rank=4, alpha=8.0)


def adapted(*, seed: int = 0, wanted: Adaptation = RANK4, sharing: bool = True) -> Policy:
    model = llama(seed=seed)
    adapt(model, wanted)
    return Policy(model=model, forbidden_ids=FORBIDDEN, sharing=sharing)


def learner(settings: Settings = SETTINGS, *, own: Policy | None = None) -> GradientLearner:
    return GradientLearner(policy=own or adapted(), settings=settings)


def stirred(*, seed: int = 3, sharing: bool = True) -> Policy:
    """With adapters that change something."""
    own = adapted(sharing=sharing)
    random = torch.Generator().manual_seed(seed)
    for weight in adapter(own.model).values():
        weight.data += 0.1 * torch.randn(weight.shape, generator=random)
    return own


def plain(own: Policy) -> Policy:
    return Policy(model=plain_copy(own.model, dtype=None), forbidden_ids=FORBIDDEN)


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(8, 40)[None]).logits


def test_new_adapters_change_nothing_and_are_in_every_linear_layer_of_the_language_model() -> None:
    own = adapted()
    assert torch.equal(logits(own.model), logits(llama()))
    assert {name.split(".")[-4] for name in adapter(own.model)} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    }
    assert len(adapter(own.model)) == 2 * 7 * 2
    assert all(weight.dtype is torch.float32 for weight in adapter(own.model).values())


def test_the_same_seed_makes_the_same_adapters_and_leaves_chance_alone() -> None:
    torch.random.manual_seed(5)
    expected = torch.rand(3)
    torch.random.manual_seed(5)
    a, b, c = adapted(), adapted(), adapted(wanted=replace(RANK4, seed=1))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(x, y) for x, y in zip(adapter(a.model).values(), adapter(b.model).values(), strict=True))
    assert any(not torch.equal(x, y) for x, y in zip(adapter(a.model).values(), adapter(c.model).values(), strict=True))


def test_targets_are_chosen_by_the_ends_of_their_names() -> None:
    own = adapted(wanted=Adaptation(rank=2, alpha=1.0, targets=("q_proj", "mlp.down_proj")))
    assert {name.split(".")[-4] for name in adapter(own.model)} == {"q_proj", "down_proj"}
    with pytest.raises(ConfigError, match="'c_attn'; there are: down_proj, gate_proj"):
        adapted(wanted=Adaptation(rank=2, alpha=1.0, targets=("c_attn",)))


def test_only_adapters_learn_and_the_policy_does() -> None:
    trained = learner()
    before = weights(trained)
    good = credited(prompt(6), [10, 11], policy=policy(), credit=1)
    trained.improve(type(batch(policy()))(samples=(good,)))
    moved = {name for name, weight in weights(trained).items() if not torch.equal(weight, before[name])}
    assert moved
    assert all(".lora_" in name for name in moved)


@pytest.mark.parametrize("sharing", [True, False])
def test_gradients_are_those_of_the_merged_model(*, sharing: bool) -> None:
    own = stirred(sharing=sharing)
    seen: dict[str, torch.Tensor] = {}
    for name, weight in adapter(own.model).items():
        weight.register_post_accumulate_grad_hook(lambda p, n=name: seen.update({n: p.grad.clone()}))
    merged = plain(own)
    data = batch(merged)
    for weight in merged.model.parameters():
        weight.requires_grad_()
    ups = {name: weight.detach().clone() for name, weight in adapter(own.model).items()}
    learner(own=own).improve(data)
    total = torch.zeros(())
    for one in data.samples:
        ids = one.sample.token_ids
        chosen = flat_logprobs(merged, ids).gather(-1, torch.from_numpy(ids[1:, None]).long())[:, 0]
        credit = torch.from_numpy(one.positive + one.negative)[1:]
        total = total - (credit * torch.where(chosen > -1e9, chosen, 0.0)).sum()
    total.backward()
    whole = dict(merged.model.named_parameters())
    for name, gradient in seen.items():
        layer, which = name.split(".lora_")[0], name.split(".lora_")[1][0]
        down, up = ups[f"{layer}.lora_A.default.weight"], ups[f"{layer}.lora_B.default.weight"]
        of_merged = whole[f"{layer}.weight"].grad
        assert of_merged is not None
        expected = 2.0 * (up.T @ of_merged if which == "A" else of_merged @ down.T)
        torch.testing.assert_close(gradient, expected, atol=1e-4, rtol=1e-3, msg=name)


# ── the reference ─────────────────────────────────────────────────────────────


def test_a_reference_is_the_policy_as_it_was_and_shares_the_weights_beneath() -> None:
    own = stirred()
    before = plain(own)
    reference = Reference(own)
    for weight in adapter(own.model).values():
        weight.data += 0.2
    asked = ([prompt(9), prompt(9)], [np.array([10, 11], np.int32), np.array([12, 1], np.int32)])
    sampled = [np.arange(2), np.arange(2)]
    held = reference.scores(*asked, sampled, temperature=1.0).chosen
    assert not held.requires_grad
    torch.testing.assert_close(held, before.scores(*asked, sampled, temperature=1.0).chosen, atol=1e-5, rtol=1e-5)
    now = own.scores(*asked, sampled, temperature=1.0).chosen.detach()
    assert float((now - held).abs().max()) > 0.05
    torch.testing.assert_close(now, plain(own).scores(*asked, sampled, temperature=1.0).chosen, atol=1e-5, rtol=1e-5)


def test_before_anything_is_learned_the_reference_is_the_model_without_adapters() -> None:
    asked = ([prompt(9)], [np.array([10, 11], np.int32)], [np.arange(2)])
    held = Reference(adapted()).scores(*asked, temperature=1.0).chosen
    assert torch.equal(held, policy().scores(*asked, temperature=1.0).chosen.detach())


def test_a_kl_term_has_the_gradient_that_it_has_with_a_copy() -> None:
    """The reference is asked between the policy's forward and backward pass, with the same weights beneath."""
    objective = Objective(kl_coefficient=1.0)
    gradients: list[dict[str, torch.Tensor]] = []
    for copied in (False, True):
        own = stirred()
        trained = learner(replace(SETTINGS, objective=objective), own=own)
        held = Reference(plain(own) if copied else own)
        for weight in adapter(own.model).values():
            weight.data += 0.05 * torch.sin(torch.arange(weight.numel(), dtype=torch.float32)).view(weight.shape)
        trained._reference = held
        seen: dict[str, torch.Tensor] = {}
        for name, weight in adapter(own.model).items():
            weight.register_post_accumulate_grad_hook(lambda p, n=name, s=seen: s.update({n: p.grad.clone()}))
        trained.improve(batch(plain(own)))
        gradients.append(seen)
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=1e-5, rtol=1e-3, msg=name)


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto"])
def test_preferences_move_adapters_away_from_their_reference(loss: PreferenceLoss) -> None:
    trained = learner(replace(SETTINGS, preference=PreferenceObjective(loss=loss)))
    costs = [
        trained.prefer([replace_versions(pair, version) for pair in pairs(plain(trained.policy))]).loss
        for version in range(4)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.97 * costs[0]


# ── directories ───────────────────────────────────────────────────────────────

RESUMED = replace(
    SETTINGS,
    improvement=Optimisation(learning_rate=1e-3, warmup_steps=3, schedule="cosine", steps=10, weight_decay=0.1),
    objective=Objective(kl_coefficient=0.1, minibatches=2),
)


def run(trained: GradientLearner, steps: range) -> None:
    for step in steps:
        if step < 2:
            trained.imitate(batch(policy(), seed=step))
        else:
            trained.improve(batch(policy(), seed=step, version=0))


@pytest.mark.parametrize("cut", [1, 3])
def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(tmp_path: Path, cut: int) -> None:
    straight, first = learner(RESUMED), learner(RESUMED)
    run(straight, range(6))
    run(first, range(cut))
    first.save(tmp_path / "checkpoint")
    second = learner(RESUMED, own=adapted(wanted=replace(RANK4, seed=9)))
    second.load(tmp_path / "checkpoint")
    assert_same(first, second)
    run(second, range(cut, 6))
    assert_same(straight, second)


def test_a_checkpoint_holds_the_adapter_alone_and_peft_reads_it(tmp_path: Path) -> None:
    base = tmp_path / "base"
    llama().save_pretrained(base)
    model = LlamaForCausalLM.from_pretrained(base)
    adapt(model, RANK4)
    trained = learner(own=Policy(model=model, forbidden_ids=FORBIDDEN))
    trained.imitate(batch(policy()))
    trained.save(tmp_path / "checkpoint")
    names = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    assert "model.safetensors" not in names
    assert "config.json" not in names
    assert json.loads((tmp_path / "checkpoint" / "adapter_base.json").read_text())["path"] == str(base)
    read = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(base), tmp_path / "checkpoint")
    torch.testing.assert_close(logits(read), logits(model), atol=1e-6, rtol=1e-6)
    assert not torch.equal(logits(read), logits(llama()))


def test_an_adapter_is_refused_by_another_model_and_by_another_shape(tmp_path: Path) -> None:
    learner().save(tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match=r"was trained on .*, which .* is not"):
        learner(own=adapted(seed=1)).load(tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match="another rank or other targets"):
        learner(own=adapted(wanted=Adaptation(rank=8, alpha=16.0))).load(tmp_path / "checkpoint")


# ── plain weights ─────────────────────────────────────────────────────────────


def test_a_plain_copy_computes_the_same_without_any_adapter() -> None:
    own = stirred().model
    copied = plain_copy(own, dtype=None)
    torch.testing.assert_close(logits(copied), logits(own), atol=1e-5, rtol=1e-5)
    assert copied.state_dict().keys() == llama().state_dict().keys()
    assert not any(weight.requires_grad for weight in copied.parameters())
    theirs = {weight.data_ptr() for weight in own.parameters()}
    assert not any(weight.data_ptr() in theirs for weight in copied.parameters())


def test_a_copy_in_bfloat16_rounds_weights_once_and_no_position() -> None:
    own = stirred().model
    copied = plain_copy(own, dtype=torch.bfloat16)
    whole = plain_weights(own)
    assert all(torch.equal(weight, whole[name].bfloat16()) for name, weight in copied.state_dict().items())
    assert copied.lm_head.weight is copied.model.embed_tokens.weight  # tied as before
    assert all(buffer.dtype is torch.float32 for name, buffer in copied.named_buffers() if "inv_freq" in name)


def test_merging_in_place_leaves_a_plain_model() -> None:
    own = stirred().model
    before = logits(own)
    merge(own)
    assert not adapter(own)
    assert own.state_dict().keys() == llama().state_dict().keys()
    torch.testing.assert_close(logits(own), before, atol=1e-5, rtol=1e-5)


async def test_an_engine_with_weights_of_its_own_serves_what_the_adapters_have_learned() -> None:
    trained = learner(replace(SETTINGS, imitation=Optimisation(learning_rate=1e-2)))
    served = trained.policy.copy()
    engine = TransformersEngine(
        policy=served,
        stop_ids=STOPS,
        version=PolicyVersion(0),
        weights=lambda: plain_weights(trained.policy.model),
    )
    trained.imitate(batch(policy()))
    assert float((logits(served.model) - logits(trained.policy.model)).abs().max()) > 0.01
    await engine.update(PolicyVersion(1))
    torch.testing.assert_close(logits(served.model), logits(trained.policy.model), atol=1e-5, rtol=1e-5)
    await engine.close()
