"""A tree of answers is computed as each of its sequences is: scores, and the gradient of every parameter."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from cairn.data.trajectory import Prompt
from cairn.models import scoring
from cairn.models.policy import Policy
from cairn.models.trees import tree_reader

VOCABULARY = 40
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
CONFIGS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SMALL),
    "qwen2": Qwen2Config(**SMALL),
    "qwen3": Qwen3Config(**SMALL, head_dim=8),
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=64),
}


def model(config: PretrainedConfig, *, attention: str = "sdpa") -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def policy(kind: str = "llama", *, sharing: bool = True, attention: str = "sdpa") -> Policy:
    whole = model(CONFIGS[kind], attention=attention)
    return Policy(model=whole, forbidden_ids=frozenset({3}), sharing=sharing)


Group = tuple[list[Prompt], list[np.ndarray], list[np.ndarray]]


def group(*sequences: tuple[list[int], list[int]]) -> Group:
    """Prompts, answers, and the places of all answers' tokens."""
    prompts = [Prompt(token_ids=np.array(prompt, np.int32), images=()) for prompt, _ in sequences]
    answers = [np.array(answer, np.int32) for _, answer in sequences]
    return prompts, answers, [np.arange(len(answer)) for answer in answers]


TOKENS = st.integers(4, 9)
GROUPS = st.lists(
    st.tuples(st.lists(TOKENS, min_size=1, max_size=6), st.lists(TOKENS, min_size=1, max_size=5)),
    min_size=1,
    max_size=7,
).map(lambda sequences: group(*sequences))


def measured(tested: Policy, data: Group) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Log-probabilities, entropies, and the gradients of something that depends on both."""
    tested.model.zero_grad()
    scores = tested.scores(*data, temperature=1.3)
    worth = torch.linspace(-1, 2, scores.chosen.shape[0])
    ((scores.chosen * worth).sum() + (scores.entropy * worth.flip(0)).sum()).backward()
    gradients = [p.grad.clone() for p in tested.model.parameters() if p.grad is not None]
    return scores.chosen.detach(), scores.entropy.detach(), gradients


def same(one: Policy, other: Policy, data: Group) -> None:
    a, b = measured(one, data), measured(other, data)
    torch.testing.assert_close(a[0], b[0], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(a[1], b[1], atol=2e-5, rtol=1e-4)
    for left, right in zip(a[2], b[2], strict=True):
        torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-3)


@settings(max_examples=25)
@given(GROUPS)
def test_random_groups_score_alike_shared_or_not(data: Group) -> None:
    same(policy(), policy(sharing=False), data)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_every_family_computes_trees_as_it_computes_sequences(kind: str, attention: str) -> None:
    tested = policy(kind, attention=attention)
    assert tested.packs
    data = group(*(([5, 6, 7, 8, *range(10, 10 + n)], [4, 5, 6, n + 4]) for n in (0, 0, 1, 3)), ([9], [9]))
    same(tested, policy(kind, sharing=False), data)


def test_a_tree_agrees_with_the_logits_of_each_sequence_alone() -> None:
    tested = policy()
    prompts, answers, sampled = group(([5, 6, 7], [8, 9]), ([5, 6, 7], [8, 4, 9]), ([5, 6], [7, 9]))
    scores = tested.scores(prompts, answers, sampled, temperature=1.0)
    expected: list[torch.Tensor] = []
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.from_numpy(np.concatenate([prompt.token_ids, answer]).astype(np.int64))
        logits = tested.model(input_ids=ids[None]).logits[0].index_fill(-1, torch.tensor([3]), -torch.inf)
        log_probs = logits.log_softmax(-1)[prompt.token_ids.shape[0] - 1 : -1]
        expected.append(log_probs.gather(-1, ids[prompt.token_ids.shape[0] :, None])[:, 0])
    torch.testing.assert_close(scores.chosen, torch.cat(expected), atol=1e-5, rtol=1e-5)
    assert scores.computed == 3 + 1 + 1  # the prompt, what two of them say first, and the longest one's second


@contextmanager
def chunks_of(size: int) -> Generator[None]:
    before = scoring._CHUNK_LOGITS
    scoring._CHUNK_LOGITS = size * VOCABULARY
    try:
        yield
    finally:
        scoring._CHUNK_LOGITS = before


def test_some_tokens_at_a_time_score_as_all_at_once() -> None:
    data = group(*(([5, 6, 7], [8, 9, n]) for n in range(4, 12)))
    whole = measured(policy(), data)
    with chunks_of(5):
        parts = measured(policy(), data)
    for one, other in zip((*whole[:2], *whole[2]), (*parts[:2], *parts[2]), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        MambaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, state_size=4),
        MistralConfig(**SMALL, sliding_window=4),
    ],
    ids=["recurrent", "windowed"],
)
def test_a_model_that_cannot_read_trees_is_found_out(config: PretrainedConfig) -> None:
    assert tree_reader(model(config, attention="eager")) is None


def test_a_model_that_ignores_the_mask_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = policy()
    inner = tested.model.base_model
    whole = inner.forward
    monkeypatch.setattr(inner, "forward", lambda **given: whole(**{**given, "attention_mask": None}))
    assert tree_reader(tested.model) is None


def test_parts_keep_siblings_together_and_to_the_limit() -> None:
    tested = policy()
    prompts, answers, sampled = group(*(([5] * 20 + [p], [8, 9, n]) for n in range(4, 12) for p in (6, 7)))
    parts = tested.parts(prompts, answers, max_tokens=40)
    assert sorted(i for part in parts for i in part) == list(range(16))
    for part in parts:
        held = ([prompts[i] for i in part], [answers[i] for i in part], [sampled[i] for i in part])
        assert tested.scores(*held, temperature=1.0).computed <= 40
    assert len(parts) == 1
