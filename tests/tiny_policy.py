"""A Llama of a few thousand weights, and what tests ask of it."""

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from cairn.data.sample import Batch, CreditedSample, Sample
from cairn.data.trajectory import Prompt
from cairn.models.policy import Policy

torch.set_num_threads(1)  # threads cost such models more than they bring, and many times more on a busy machine

VOCABULARY = 61
FORBIDDEN = frozenset({0, 7})
STOPS = frozenset({1, 2, 3})


def llama(*, seed: int = 0, tied: bool = True) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        vocab_size=VOCABULARY,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def policy(*, seed: int = 0, tied: bool = True) -> Policy:
    return Policy(model=llama(seed=seed, tied=tied), forbidden_ids=FORBIDDEN)


def prompt(length: int, *, seed: int = 0) -> Prompt:
    ids = np.random.default_rng((length, seed)).integers(8, VOCABULARY, length).astype(np.int32)
    return Prompt(token_ids=ids, images=())


def flat_logprobs(policy: Policy, ids: np.ndarray) -> torch.Tensor:
    """Log-probabilities [L - 1, V] of every next token by one plain forward pass, without padding or cache."""
    logits = policy.model(input_ids=torch.from_numpy(ids[None]).long()).logits[0, :-1].float()
    logits = logits.index_fill(-1, torch.tensor(sorted(FORBIDDEN)), -torch.inf)
    return logits.log_softmax(-1)


def credited(
    prompt: Prompt, answer: list[int], *, policy: Policy | None = None, credit: float = 1.0, version: int = 0
) -> CreditedSample:
    """A sample whose answer `policy` sampled; credit of either sign, spread evenly."""
    ids = np.concatenate([prompt.token_ids, np.array(answer, np.int32)])
    mask = np.arange(len(ids)) >= len(prompt.token_ids)
    logprobs = np.zeros(len(ids), np.float32)
    if policy is not None:
        with torch.no_grad():
            chosen = flat_logprobs(policy, ids).gather(-1, torch.from_numpy(ids[1:, None]).long())[:, 0].numpy()
        logprobs[1:] = np.where(mask[1:], chosen, 0)
    sample = Sample(
        token_ids=ids,
        loss_mask=mask,
        logprobs=logprobs,
        versions=np.where(mask, version, -1).astype(np.int32),
        images=prompt.images,
    )
    share = mask.astype(np.float32) / len(answer)
    return CreditedSample(
        sample=sample, positive=share * max(credit, 0.0), negative=share * min(credit, 0.0), weights=share * abs(credit)
    )


def batch(policy: Policy, *, seed: int = 0, version: int = 0) -> Batch:
    """Three prompts of different lengths with four answers each, sampled by `policy`."""
    random = np.random.default_rng(seed)
    samples = []
    for length in (5, 9, 30):
        for _ in range(4):
            answer = random.integers(8, VOCABULARY, random.integers(1, 5)).tolist()
            credit = float(random.normal()) / 12
            samples.append(credited(prompt(length, seed=seed), answer, policy=policy, credit=credit, version=version))
    return Batch(samples=tuple(samples))
