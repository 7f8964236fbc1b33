"""What FlexAttention is told of a tree is what a square mask says of it, and computes the same."""

from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from cairn.models.attention import BLOCK, dense, flex, flex_works, register_tree_attention, tree_blocks
from cairn.models.tree import packed, token_trees
from cairn.models.trees import Mask, TreeReader, tree_reader, visible

CPU = torch.device("cpu")
LENGTHS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 180)), min_size=1, max_size=5)


def rows_of(lengths: list[tuple[int, int]]) -> np.ndarray:
    """Ends of the trees of sequences that share the first part of a prompt, or nothing."""
    prompt = np.arange(150)
    sequences = [
        np.concatenate([[kind], prompt[: 50 * kind], 1000 + 7 * n + np.arange(length)])
        for n, (kind, length) in enumerate(lengths)
    ]
    trees = token_trees(sequences)
    width = -(-max(len(tree) for tree in trees) // BLOCK) * BLOCK
    return packed(trees, width=width).ends


@settings(max_examples=40)
@given(LENGTHS)
def test_blocks_say_what_the_square_mask_says(lengths: list[tuple[int, int]]) -> None:
    ends = rows_of(lengths)
    blocks = tree_blocks(ends, CPU)
    seen = visible(torch.from_numpy(ends))
    assert torch.equal(dense(blocks)[:, 0], seen)
    count = ends.shape[1] // BLOCK
    by_block = seen.reshape(seen.shape[0], count, BLOCK, count, BLOCK)
    partial, full = (
        listed(blocks.kv_num_blocks, blocks.kv_indices),
        listed(blocks.full_kv_num_blocks, blocks.full_kv_indices),
    )
    assert not (partial & full).any()
    assert by_block.all(4).all(2)[full].all()  # what is said to be seen whole is
    assert not by_block.any(4).any(2)[~(partial | full)].any()  # and nothing that is seen is left out


def listed(counts: torch.Tensor | None, indices: torch.Tensor | None) -> torch.Tensor:
    """A square of blocks, True where one is listed."""
    assert counts is not None
    assert indices is not None
    found = torch.zeros(indices.shape, dtype=torch.bool)
    for at in np.ndindex(*counts.shape):
        found[at][indices[at][: int(counts[at])].long()] = True
    return found[:, 0]


@pytest.fixture
def plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention by plain torch, gradients too: its kernels are for GPUs."""
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)


@pytest.mark.usefixtures("plainly")
def test_flex_attention_computes_what_masked_attention_does_and_its_gradients() -> None:
    ends = rows_of([(1, 20), (1, 90), (2, 100), (2, 60)])
    blocks = tree_blocks(ends, CPU)
    random = torch.Generator().manual_seed(0)
    shape = (ends.shape[0], 4, ends.shape[1], 16)
    inputs = [torch.randn(shape, generator=random)[:, :heads].requires_grad_() for heads in (4, 2, 2)]
    query, key, value = inputs
    ours = flex(query, key, value, blocks, None)
    mine = torch.autograd.grad(ours.square().sum(), inputs)
    theirs = scaled_dot_product_attention(query, key, value, attn_mask=dense(blocks), enable_gqa=True)
    expected = torch.autograd.grad(theirs.square().sum(), inputs)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for one, other in zip(mine, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def llama() -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=64,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, attn_implementation=register_tree_attention())


@pytest.mark.usefixtures("plainly")
def test_a_model_reads_a_tree_by_blocks_as_by_a_square_mask() -> None:
    model = llama()
    head = cast("torch.nn.Module", model.get_output_embeddings())
    sequences = [np.concatenate([np.arange(30), np.full(n, 35)]) for n in (3, 9, 120)]
    everywhere = [np.arange(len(sequence)) for sequence in sequences]

    def read(mask: Mask) -> tuple[torch.Tensor, list[torch.Tensor]]:
        model.zero_grad()
        states, _ = TreeReader(model=model, head=head, mask=mask).read(sequences, everywhere)
        logits = head(states)
        logits.log_softmax(-1)[:, 5].sum().backward()
        return logits.detach(), [cast("torch.Tensor", p.grad).clone() for p in model.parameters()]

    ours, theirs = read("blocks"), read("boolean")
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-4)
    for one, other in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_without_a_gpu_a_model_of_this_attention_is_told_by_a_square_mask() -> None:
    found = tree_reader(llama())
    assert found is not None
    assert found.mask == "boolean"
    assert not flex_works(CPU, torch.float32)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_flex_attention_is_chosen() -> None:
    model = llama()
    torch.nn.Module.to(model, "cuda")
    found = tree_reader(model)
    assert found is not None
    assert found.mask == "blocks"
