"""One path for sampling and training: shared prompts, padding and passes change nothing but the cost."""

import numpy as np
import pytest
import torch

from cairn.data.ids import ImageId
from cairn.data.trajectory import Prompt
from cairn.errors import InvariantError
from cairn.models.policy import Policy
from tiny_policy import FORBIDDEN, flat_logprobs, llama, policy, prompt

LENGTHS = [5, 200, 9, 9, 60]
ANSWERS = [[11, 12, 1], [30], [8, 9], [45, 46, 47, 1], [20, 21]]


def rows():
    """Eight rows over five prompts, two of them of one length, in no order."""
    prompts = [prompt(n, seed=i) for i, n in enumerate(LENGTHS)]
    picks = [1, 0, 2, 1, 4, 3, 0, 2]
    answers = [np.array(ANSWERS[(i + 2) % 5], np.int32) for i in range(len(picks))]
    return [prompts[i] for i in picks], answers


def chosen_logprobs(tested: Policy, prompts, answers) -> list[torch.Tensor]:
    log_probs = tested.answer_logits(prompts, answers).log_softmax(-1)
    return [log_probs[i, : len(a)].gather(-1, torch.from_numpy(a[:, None]).long())[:, 0] for i, a in enumerate(answers)]


def flat_chosen(tested: Policy, prompts, answers) -> list[torch.Tensor]:
    found = []
    for asked, answer in zip(prompts, answers, strict=True):
        ids = np.concatenate([asked.token_ids, answer])
        log_probs = flat_logprobs(tested, ids)[-len(answer) :]
        found.append(log_probs.gather(-1, torch.from_numpy(answer[:, None]).long())[:, 0])
    return found


def test_shared_prompts_equal_the_flat_computation() -> None:
    tested = policy()
    prompts, answers = rows()
    for got, expected in zip(
        chosen_logprobs(tested, prompts, answers), flat_chosen(tested, prompts, answers), strict=True
    ):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_the_gradient_of_shared_prompts_equals_that_of_the_flat_computation() -> None:
    shared, flat = policy(), policy()
    prompts, answers = rows()
    weights = torch.linspace(-1, 1, sum(map(len, answers)))
    (torch.cat(chosen_logprobs(shared, prompts, answers)) * weights).sum().backward()
    (torch.cat(flat_chosen(flat, prompts, answers)) * weights).sum().backward()
    for (name, got), expected in zip(shared.model.named_parameters(), flat.model.parameters(), strict=True):
        assert expected.grad is not None
        assert expected.grad.abs().max() > 0, name
        torch.testing.assert_close(got.grad, expected.grad, atol=2e-4, rtol=1e-3, msg=name)


def test_prompts_that_nobody_shares_are_read_with_their_answers_in_one_pass() -> None:
    whole = CountingPolicy(forbidden=FORBIDDEN)
    prompts = [prompt(n, seed=i) for i, n in enumerate([5, 60, 9, 700, 9])]
    answers = [np.array(ANSWERS[i], np.int32) for i in range(5)]
    got = chosen_logprobs(whole, prompts, answers)
    assert sorted(shape[0] for shape in whole.passes) == [1, 4]
    for mine, expected in zip(got, flat_chosen(Policy(model=whole.model), prompts, answers), strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-5)
    again = Policy(model=llama())
    weights = torch.linspace(-1, 1, sum(map(len, answers)))
    (torch.cat(got) * weights).sum().backward()
    (torch.cat(flat_chosen(again, prompts, answers)) * weights).sum().backward()
    for (name, mine), expected in zip(whole.model.named_parameters(), again.model.parameters(), strict=True):
        assert expected.grad is not None
        torch.testing.assert_close(mine.grad, expected.grad, atol=2e-4, rtol=1e-3, msg=name)


def test_tokens_one_by_one_equal_tokens_at_once() -> None:
    tested = policy()
    prompts, _ = rows()
    ids = torch.arange(8, 8 + 3 * len(prompts)).reshape(len(prompts), 3)
    with torch.no_grad():
        at_once, _ = tested.extend(tested.prefill(prompts), ids)
        prefix = tested.prefill(prompts)
        for at in range(3):
            logits, prefix = tested.extend(prefix, ids[:, at : at + 1])
            torch.testing.assert_close(logits[:, 0], at_once[:, at], atol=1e-4, rtol=1e-4)


def test_selected_rows_go_on_as_they_would_have() -> None:
    tested = policy()
    prompts, _ = rows()
    kept = [6, 1, 1, 3]
    ids = torch.tensor([[9], [10], [11], [12]])
    with torch.no_grad():
        selected, _ = tested.extend(tested.prefill(prompts).select(kept), ids)
        fresh, _ = tested.extend(tested.prefill([prompts[i] for i in kept]), ids)
    torch.testing.assert_close(selected, fresh, atol=1e-4, rtol=1e-4)


class CountingPolicy(Policy):
    """Counts padded tokens and passes."""

    def __init__(self, *, forbidden: frozenset[int] = frozenset()) -> None:
        super().__init__(model=llama(), forbidden_ids=forbidden)
        self.passes: list[tuple[int, ...]] = []

    def _forward(self, ids, *args, **kwargs):
        self.passes.append(tuple(ids.shape))
        return super()._forward(ids, *args, **kwargs)


def test_each_different_prompt_is_read_once_and_long_ones_apart() -> None:
    tested = CountingPolicy()
    prompts, _ = rows()
    tested.prefill(prompts)
    assert sorted(tested.passes) == [(1, 200), (4, 60)] or sorted(tested.passes) == [(1, 60), (1, 200), (3, 9)]


def test_forbidden_tokens_have_no_probability_and_take_none() -> None:
    tested = policy()
    logits = tested.answer_logits(*rows())
    probabilities = logits.softmax(-1)
    assert (probabilities[..., sorted(FORBIDDEN)] == 0).all()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(logits.shape[:2]))


def test_a_copy_has_weights_of_its_own_and_keeps_the_head_tied() -> None:
    original = policy()
    copied = original.copy(dtype=torch.bfloat16)
    assert copied.model.dtype == torch.bfloat16
    assert copied.model.lm_head.weight is copied.model.model.embed_tokens.weight
    assert not any(p.requires_grad for p in copied.model.parameters())
    assert all(p.requires_grad and p.dtype == torch.float32 for p in original.model.parameters())
    with torch.no_grad():
        assert torch.isinf(copied.prefill([prompt(3)]).logits[0, sorted(FORBIDDEN)]).all()


def test_autocast_is_close_to_float32() -> None:
    exact = policy()
    rounded = Policy(model=exact.model, forbidden_ids=FORBIDDEN, autocast=torch.bfloat16)
    prompts, answers = rows()
    with torch.no_grad():
        a, b = exact.answer_logits(prompts, answers), rounded.answer_logits(prompts, answers)
    assert b.dtype == torch.float32
    difference = (a.softmax(-1) - b.softmax(-1)).abs()
    assert 0 < difference.max() < 0.1


def seeing(*images: str) -> Prompt:
    return Prompt(token_ids=prompt(4).token_ids, images=tuple(map(ImageId, images)))


def test_images_go_to_the_model_in_the_order_of_the_different_prompts() -> None:
    asked: list[list[str]] = []

    def features(images):
        asked.append(list(images))
        return {}

    tested = Policy(model=llama(), image_features=features)
    first, second = (
        seeing("a", "b"),
        seeing("c"),
    )
    tested.prefill([second, first, second])
    assert asked == [["c", "a", "b"]]


def test_an_image_for_a_policy_that_cannot_see_is_refused() -> None:
    blind = policy()
    with pytest.raises(InvariantError, match="no way to see"):
        blind.prefill([seeing("a")])
