"""Real vision-language classes through the policy's wrapper: every path computes what one plain forward pass does."""

import numpy as np
import pytest
import torch

from cairn.data.action import Click, Point
from cairn.data.trajectory import Prompt
from cairn.engines.prefixes import PrefixCache
from cairn.errors import InvariantError
from cairn.models.vision.families import Family
from tiny_vision import TESTED, Mind, answered, looked_at, mind, screen

each_family = pytest.mark.parametrize("family", TESTED)


def conversations(own: Mind) -> list[Prompt]:
    """Prompts with one, two and three screenshots, two of the same ids with different screenshots, of two sizes."""
    wide = screen(7, size=(210, 120))
    first = answered(own, [], screen(1), Click(Point(0.5, 0.25)))
    second = answered(own, [first], screen(2), Click(Point(0.1, 0.9)))
    return [
        own.codec.prompt("press ok", [], screen(1)),
        own.codec.prompt("press ok", [], screen(2)),
        own.codec.prompt("press cancel", [first], wide),
        own.codec.prompt("press ok", [first, second], screen(3)),
    ]


def plain_logits(own: Mind, prompt: Prompt, answer: np.ndarray) -> torch.Tensor:
    """Logits [A, V] of the answer's tokens by the model alone: its processor's pixels, its own positions, no cache."""
    ids = torch.from_numpy(np.concatenate([prompt.token_ids, answer])).long()[None]
    pictures = [own.processor.picture(image) for image in prompt.images]
    processed = dict(own.processor.images(images=pictures, return_tensors="pt"))
    if own.processor.family.rotates_in_space:
        processed["mm_token_type_ids"] = (ids == own.processor.placeholder_id).int()
        own.policy.model.model.rope_deltas = None
    processed.pop("rows", None)
    processed.pop("cols", None)
    out = own.policy.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **processed)
    if own.processor.family.rotates_in_space:
        own.policy.model.model.rope_deltas = None
    logits = out.logits[0, len(prompt.token_ids) - 1 : -1].float()
    return logits.index_fill(-1, torch.tensor(sorted(own.codec.forbidden_ids)), -torch.inf)


def answers(count: int) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    return [random.integers(60, 300, 2 + i).astype(np.int32) for i in range(count)]


@each_family
@torch.no_grad()
def test_every_path_computes_the_plain_forward_pass(family: Family) -> None:
    own = mind(family)
    prompts = conversations(own)
    said = answers(len(prompts))
    expected = [plain_logits(own, prompt, answer) for prompt, answer in zip(prompts, said, strict=True)]
    whole = own.policy.answer_logits(prompts, said)  # prompt and answer in one pass
    shared = own.policy.answer_logits([*prompts, prompts[0]], [*said, said[0]])  # prompts first, then the answers
    prefix = own.policy.prefill(prompts)
    stepwise = [prefix.logits]
    for at in range(max(map(len, said)) - 1):
        step = torch.tensor([[int(a[at]) if at < len(a) else 0] for a in said])
        logits, prefix = own.policy.extend(prefix, step)
        stepwise.append(logits[:, -1])
    decoded = torch.stack(stepwise, 1)
    for row, wanted in enumerate(expected):
        for found in (whole, shared, decoded):
            torch.testing.assert_close(found[row, : len(wanted)], wanted, atol=2e-4, rtol=2e-4)


@each_family
@torch.no_grad()
def test_prompts_that_were_read_before_give_the_same_logits(family: Family) -> None:
    own = mind(family)
    prompts = conversations(own)
    kept = PrefixCache(own.policy, max_tokens=10_000)
    fresh = own.policy.prefill(prompts).logits
    kept.prefill(prompts[:2])
    again = kept.prefill([prompts[3], prompts[0], prompts[2], prompts[1]])
    assert kept.hits == 2
    torch.testing.assert_close(again.logits, fresh[[3, 0, 2, 1]], atol=2e-4, rtol=2e-4)
    step = torch.full((4, 1), 70)
    more = kept.prefill([prompts[3], prompts[0], prompts[2], prompts[1]])
    extended, _ = own.policy.extend(more, step)
    direct, _ = own.policy.extend(own.policy.prefill(prompts), step)
    torch.testing.assert_close(extended, direct[[3, 0, 2, 1]], atol=2e-4, rtol=2e-4)


@each_family
def test_each_different_image_is_looked_at_once(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    own = mind(family)
    prompts = conversations(own)
    looked = looked_at(own.eyes, monkeypatch)
    shown = {image for prompt in prompts for image in prompt.images}
    with torch.no_grad():
        own.policy.prefill(prompts)
        assert sorted(looked) == sorted(shown)
        looked.clear()
        kept = PrefixCache(own.policy, max_tokens=0)
        for prompt in prompts:
            kept.prefill([prompt])
        assert sorted(looked) == sorted(shown)
        kept.clear()
        kept.prefill(prompts[:1])
        assert len(looked) == len(shown) + 1


@each_family
def test_looking_once_for_several_passes_changes_no_gradient(family: Family) -> None:
    own = mind(family)
    prompts = conversations(own)
    said = answers(len(prompts))

    def gradients(*, together: bool) -> dict[str, torch.Tensor]:
        own.policy.model.zero_grad()
        images = [image for prompt in prompts for image in prompt.images] if together else []
        with own.policy.looking(images):
            for prompt, answer in zip(prompts, said, strict=True):
                logits = own.policy.answer_logits([prompt], [answer])[0].log_softmax(-1)
                (-logits.gather(-1, torch.from_numpy(answer).long()[:, None])).sum().backward()
        return {n: p.grad.clone() for n, p in own.policy.model.named_parameters() if p.grad is not None}

    apart, once = gradients(together=False), gradients(together=True)
    assert apart.keys() == once.keys()
    assert any("vision" in name or "visual" in name for name in once)
    for name, gradient in apart.items():
        torch.testing.assert_close(once[name], gradient, atol=1e-4 * float(gradient.abs().max()) + 1e-6, rtol=1e-3)


@each_family
@torch.no_grad()
def test_turns_that_share_a_sample_are_computed_as_if_each_had_its_own(family: Family) -> None:
    """An answer, the next screenshot and the next answer as one row."""
    own = mind(family)
    first = answered(own, [], screen(1), Click(Point(0.5, 0.25)))
    second = answered(own, [first], screen(2), Click(Point(0.1, 0.9)))
    before = len(first.prompt.token_ids)
    merged = np.concatenate([second.prompt.token_ids[before:], second.completion.token_ids])
    apart = own.policy.answer_logits(
        [first.prompt, second.prompt], [first.completion.token_ids, second.completion.token_ids]
    )
    row = Prompt(token_ids=first.prompt.token_ids, images=second.prompt.images)
    together = own.policy.answer_logits([row], [merged])[0]
    length = len(first.completion.token_ids)
    torch.testing.assert_close(together[:length], apart[0, :length], atol=2e-4, rtol=2e-4)
    tail = len(second.completion.token_ids)
    torch.testing.assert_close(together[-tail:], apart[1, :tail], atol=2e-4, rtol=2e-4)


@each_family
@torch.no_grad()
def test_another_screenshot_gives_other_logits(family: Family) -> None:
    own = mind(family)
    one, other = (own.codec.prompt("press ok", [], screen(seed)) for seed in (1, 2))
    np.testing.assert_array_equal(one.token_ids, other.token_ids)
    logits = own.policy.prefill([one, other]).logits
    assert float((logits[0].softmax(-1) - logits[1].softmax(-1)).abs().max()) > 1e-3


@each_family
@torch.no_grad()
def test_too_few_placeholders_are_refused(family: Family) -> None:
    own = mind(family)
    whole = own.codec.prompt("press ok", [], screen(1))
    at = int(np.argmax(whole.token_ids == own.processor.placeholder_id))
    short = Prompt(token_ids=np.delete(whole.token_ids, at), images=whole.images)
    with pytest.raises(InvariantError, match="image placeholders"):
        own.policy.prefill([short])


@pytest.mark.parametrize("family", [Family.QWEN2_5_VL, Family.QWEN3_VL])
@torch.no_grad()
def test_positions_go_on_after_an_image_where_its_longer_side_ends(family: Family) -> None:
    own = mind(family)
    prompt = own.codec.prompt("press ok", [], screen(1))
    layout = own.processor.layout(prompt.images[0])
    prefix = own.policy.prefill([prompt])
    text = len(prompt.token_ids) - layout.tokens
    assert int(prefix.length[0]) == text + max(layout.grid[1:]) // 2 < len(prompt.token_ids)


@each_family
def test_a_tree_with_images_computes_what_its_sequences_do(family: Family) -> None:
    """Siblings, a turn that extends another one, equal ids with different screenshots: values and gradients."""
    own = mind(family)
    assert own.policy.packs
    prompts = conversations(own)
    prompts = [*prompts, prompts[0], prompts[3]]
    said = answers(len(prompts))
    first = answered(own, [], screen(1), Click(Point(0.5, 0.25)))
    second = answered(own, [first], screen(2), Click(Point(0.1, 0.9)))
    merged = np.concatenate([second.prompt.token_ids[len(first.prompt.token_ids) :], second.completion.token_ids])
    prompts.append(Prompt(token_ids=first.prompt.token_ids, images=second.prompt.images))
    said.append(merged)
    sampled = [np.flatnonzero(answer != own.processor.placeholder_id) for answer in said]
    sampled[-1] = sampled[-1][-len(second.completion.token_ids) :]  # in between, some tokens may not be sampled

    def gradients(*, tree: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        own.policy.model.zero_grad()
        if tree:
            scores = own.policy.scores(prompts, said, sampled, temperature=1.0)
            assert scores.computed < sum(p.token_ids.shape[0] + a.shape[0] for p, a in zip(prompts, said, strict=True))
            chosen = scores.chosen
        else:
            rows = [own.policy.answer_logits([p], [a])[0].log_softmax(-1) for p, a in zip(prompts, said, strict=True)]
            ids = [torch.from_numpy(a[at]).long()[:, None] for a, at in zip(said, sampled, strict=True)]
            at = [torch.from_numpy(places) for places in sampled]
            chosen = torch.cat([r[a].gather(-1, i)[:, 0] for r, a, i in zip(rows, at, ids, strict=True)])
        chosen.sum().backward()
        found = {n: p.grad.clone() for n, p in own.policy.model.named_parameters() if p.grad is not None}
        return chosen.detach(), found

    flat, flat_gradients = gradients(tree=False)
    tree, tree_gradients = gradients(tree=True)
    torch.testing.assert_close(tree, flat, atol=5e-4, rtol=5e-4)
    assert flat_gradients.keys() == tree_gradients.keys()
    for name, gradient in flat_gradients.items():
        torch.testing.assert_close(
            tree_gradients[name], gradient, atol=1e-3 * float(gradient.abs().max()) + 1e-6, rtol=1e-3
        )
