"""SDPA's kernels by name, FlexAttention under our conventions, and who ran."""

import math
import warnings

import numpy as np
import pytest
import torch
from oracle import close, plain_formula, random_qkv, worst
from test_package import BLOCKER, python

from attnlib import (
    AttnError,
    MaskError,
    ShapeError,
    attention,
    attention_steps,
    backends,
    causal_mask,
    padding_mask,
    sliding_window_mask,
    to_additive,
    torch_path,
)
from attnlib.backends import flex_attention, sdpa_backend, which_ran, why_not


def flash(*arrays, **how):
    return sdpa_backend("flash", *arrays, **how)


def plain(*arrays, **how):
    return sdpa_backend("math", *arrays, **how)


CALLS = {"flash": flash, "math": plain, "flex": flex_attention}
every = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def qkv(lead, n_q, n_k, width, d_v=None, dtype=torch.float64, seed=0):
    arrays = random_qkv(seed, lead, n_q, n_k, width, d_v or width)
    return [torch.asarray(a).to(dtype) for a in arrays]


def mask_of(*shape, seed=1):
    return torch.asarray(np.random.default_rng(seed).random(shape) < 0.6)


@pytest.fixture(autouse=True)
def _rules_as_they_are(monkeypatch):
    """FlexAttention without its half compiled way, which takes a second for each new rule."""
    module = torch.nn.attention.flex_attention
    monkeypatch.setattr(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


# --- values -----------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 1, 3)], ids=str)
def test_any_leading_axes(call, lead):
    arrays = qkv(lead, 5, 7, 8)
    close(call(*arrays), attention(*arrays))


@every
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize("n_q, n_k", [(17, 17), (7, 33), (33, 7), (1, 65), (130, 129)])
def test_N03_N04_causal_in_both_alignments(call, n_q, n_k, align):
    how = {"is_causal": True, "causal_align": align}
    arrays = qkv((2, 2), n_q, n_k, 8)
    close(call(*arrays, **how), attention(*arrays, **how))


SHAPES = [(7,), (5, 7), (1, 7), (3, 5, 7), (3, 1, 7), (2, 1, 5, 7), (1, 3, 5, 7), (2, 3, 5, 7), (2, 1, 1, 7)]


@every
def test_masks_over_more_than_one_batch_axis(call):
    arrays = qkv((2, 3, 4), 5, 7, 8)
    for shape in ((2, 1, 4, 5, 7), (1, 3, 1, 1, 7), (3, 4, 5, 7), (4, 5, 7)):
        close(call(*arrays, mask_of(*shape)), attention(*arrays, mask_of(*shape)))


@every
def test_N01_N13_a_row_that_sees_nothing_is_zero_and_hidden_numbers_stay_hidden(call):
    query, key, value = qkv((1, 2), 4, 6, 8)
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[2], mask[:, 3] = False, False
    want = attention(query, key, value, mask)
    assert (want[..., 2, :] == 0).all()
    key[..., 3, :], value[..., 3, :], query[..., 2, :] = math.nan, math.inf, math.nan
    close(call(query, key, value, mask), want)
    close(call(query, key, value, to_additive(mask)), want)


@every
def test_N13_keys_beyond_the_diagonal_may_hold_anything(call):
    query, key, value = qkv((1, 2), 4, 7, 8)
    how = {"is_causal": True, "causal_align": "top_left"}
    want = attention(query, key, value, **how)
    key[..., 4:, :], value[..., 4:, :] = math.nan, math.nan
    close(call(query, key, value, **how), want)
    how["causal_align"], query = "bottom_right", qkv((1, 2), 9, 7, 8)[0]
    query[..., :2, :] = math.nan
    close(call(query, *qkv((1, 2), 9, 7, 8)[1:], **how), attention(query, *qkv((1, 2), 9, 7, 8)[1:], **how))


@every
@pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"mask": (6, 5, 5)}, {"mask": (5, 5)}], ids=str)
def test_N08_grouped_heads(call, how):
    query, key, value = qkv((2, 6), 5, 5, 8)[0], *qkv((2, 2), 5, 5, 8)[1:]
    mask = mask_of(*how["mask"]) if "mask" in how else None
    how = {k: v for k, v in how.items() if k != "mask"} | {"enable_gqa": True}
    close(call(query, key, value, mask, **how), attention(query, key, value, mask, **how))


@pytest.mark.parametrize("call", [plain, flex_attention], ids=["math", "flex"])
def test_N40_values_of_another_width(call):
    arrays = qkv((1, 2), 5, 7, 8, 3)
    close(call(*arrays), attention(*arrays))


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_N32_low_precision_errs_at_most_twice_the_plain_formula(call, dtype):
    arrays = qkv((1, 2), 33, 65, 40, dtype=dtype)
    mask = causal_mask(33, 65, align="bottom_right", like=arrays[0])
    got = call(*arrays, is_causal=True, causal_align="bottom_right")
    want = attention(*(a.double() for a in arrays), mask)
    assert got.dtype == dtype
    assert worst(got, want) <= 2 * worst(plain_formula(*arrays, mask), want)


def test_N31_flex_skips_tiles_and_takes_a_window():
    arrays, mask = qkv((1, 1), 300, 300, 8), torch.asarray(sliding_window_mask(300, 300, 10))
    close(flex_attention(*arrays, mask), attention(*arrays, mask))
    rules = backends._rules(mask[None, None], *arrays[:2])
    assert rules["block_mask"].kv_num_blocks.sum() + rules["block_mask"].full_kv_num_blocks.sum() == 5
    assert "score_mod" not in rules
    causal = backends._causal_tiles(256, 512, 256, torch.device("cpu"))
    assert causal.kv_num_blocks.tolist() == [[[1, 1]]] and causal.full_kv_num_blocks.tolist() == [[[2, 3]]]


def test_N19_flex_gives_the_lse():
    arrays = qkv((2, 3), 5, 7, 8)
    for mask, how in (
        (None, {"is_causal": True, "causal_align": "bottom_right"}),
        (padding_mask([3, 0], 7, like=arrays[0]), {}),
        (to_additive(mask_of(5, 7)) + 1.5, {}),
    ):
        want = attention_steps(*arrays, mask, **how)
        output, lse = flex_attention(*arrays, mask, **how, return_lse=True)
        close(output, want.output)
        close(lse, want.lse)
    how = {"is_causal": True, "causal_align": "bottom_right"}
    arrays = qkv((), 9, 4, 8)
    output, lse = flex_attention(*arrays, **how, return_lse=True)
    close(lse, attention_steps(*arrays, **how).lse)
    assert (lse[:5] == -math.inf).all() and (output[:5] == 0).all()
    assert flex_attention(*qkv((1, 2), 3, 0, 8), return_lse=True)[1].tolist() == [[[-math.inf] * 3] * 2]


@pytest.mark.parametrize("call", [flash, plain], ids=["flash", "math"])
def test_gradients(call):
    mine = [a.requires_grad_() for a in qkv((2, 3), 5, 7, 8)]
    theirs = [a.detach().clone().requires_grad_() for a in mine]
    how = {"is_causal": True, "causal_align": "bottom_right"}
    weights = torch.randn(2, 3, 5, 8).double()
    (call(*mine, **how) * weights).sum().backward()
    (attention(*theirs, **how) * weights).sum().backward()
    for a, b in zip(mine, theirs, strict=True):
        close(a.grad, b.grad)


# --- refusals, and who ran --------------------------------------------------------------------------------


def test_kernels_that_this_machine_lacks_say_so():
    arrays = qkv((1, 2), 5, 5, 8, dtype=torch.float32)
    for name in ("efficient", "cudnn"):
        reason = f"torch has it for cuda only, and these tensors are on {arrays[0].device.type}"
        assert why_not(name, *arrays) == reason
        with pytest.raises(AttnError, match=f"torch's '{name}' kernel refuses these inputs here: {reason}"):
            sdpa_backend(name, *arrays)
    for call in (why_not, sdpa_backend):
        with pytest.raises(AttnError, match="no kernel called 'fast', wanted one of flash, efficient, cudnn"):
            call("fast", *arrays)


def test_flash_on_the_cpu_says_why_in_one_clean_sentence():
    arrays = qkv((1, 2), 5, 5, 8, 3, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing escapes as a warning, a second call says the same
        first, again = why_not("flash", *arrays), why_not("flash", *arrays)
        assert first == again == (
            "Flash attention requires q,k,v to have the same last dimension. "
            "Got Query.size(-1): 8, Key.size(-1): 8, Value.size(-1): 3 instead."
        )  # fmt: skip
        with pytest.raises(AttnError, match="torch's 'flash' kernel refuses these inputs here: Flash attent"):
            sdpa_backend("flash", *arrays)
        assert why_not("math", *arrays) is None
        assert why_not("flash", *qkv((2,), 5, 7, 8), is_causal=True, causal_align="top_left") is None


HEARD = {
    "flash": "Flash attention kernel not used because:",
    "efficient": "Memory efficient kernel not used because:",
    "cudnn": "cuDNN attention kernel not used because:",
}


@pytest.mark.parametrize("name", HEARD)
def test_of_all_that_cuda_says_the_reason_is_the_one_about_this_kernel(name, monkeypatch):
    """What torch prints on a GPU, in its own order and words."""
    said = {
        "efficient": "Mem Efficient attention wants something else.",
        "flash": "Flash attention wants something else.",
        "cudnn": "cuDNN attention has been runtime disabled.",
    }
    said[name] = "Expected a head of 8, got 7. (Triggered internally at /b/sdp_utils.cpp:77.)"

    def refuse(*arrays, **how):
        for kernel in ("efficient", "flash", "cudnn"):
            warnings.warn(HEARD[kernel] + " (Triggered internally at /b/sdp.cpp:8.)", stacklevel=2)
            warnings.warn(said[kernel], stacklevel=2)
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setitem(backends.KERNELS, name, (backends.KERNELS[name][0], ("cpu",)))
    monkeypatch.setattr(torch_path, "sdpa", refuse)
    assert why_not(name, *qkv((1, 1), 2, 2, 8)) == "Expected a head of 8, got 7."


def test_other_failures_pass_through(monkeypatch):
    for problem in (RuntimeError("device-side assert"), torch.OutOfMemoryError("No available kernel memory")):

        def fail(*arrays, problem=problem, **how):
            raise problem

        monkeypatch.setattr(torch_path, "sdpa", fail)
        with pytest.raises(type(problem), match=str(problem)):
            why_not("math", *qkv((1, 1), 2, 2, 8))


@every
def test_what_attention_refuses_is_refused(call):
    arrays = qkv((1, 2), 3, 5, 8)
    with pytest.raises(MaskError, match="causal_align"):
        call(*arrays, is_causal=True)
    with pytest.raises(MaskError, match="together could mean two things"):
        call(*arrays, mask_of(3, 5), is_causal=True, causal_align="top_left")
    with pytest.raises(MaskError, match="attn_mask has type"):
        call(*arrays, torch.ones(3, 5, dtype=torch.int64))
    with pytest.raises(ShapeError, match="query is a ndarray, wanted a torch tensor"):
        call(*(a.numpy() for a in arrays))


def test_flex_refuses_what_torch_cannot_in_our_words():
    arrays = qkv((1, 2), 3, 5, 8)
    with pytest.raises(AttnError, match="a head is 8 wide, compiled FlexAttention wants at least 16"):
        flex_attention(*arrays, compiled=True)
    arrays[1].requires_grad_()
    with pytest.raises(AttnError, match=r"no gradients on cpu: detach\(\) the inputs"):
        flex_attention(*arrays)


def test_flex_is_compiled_where_it_should_be(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda f, **how: asked.append(how) or f)
    whole = {"fullgraph": True}  # torch compiles something of its own too, with a named backend
    backends._flex.cache_clear()
    arrays = qkv((1, 2), 3, 5, 16)
    flex_attention(*arrays)
    assert whole not in asked
    close(flex_attention(*arrays, compiled=True), attention(*arrays))
    flex_attention(*arrays, compiled=True)
    assert asked.count(whole) == 1  # once, and never silently not compiled
    backends._flex.cache_clear()


def test_which_ran():
    arrays = qkv((1, 2), 5, 5, 8, dtype=torch.float32)
    assert which_ran(torch_path.sdpa, *arrays) == "flash"
    assert which_ran(torch_path.sdpa, *arrays, is_causal=True) == "flash"
    assert which_ran(torch_path.sdpa, *qkv((1, 2), 5, 5, 8, 3)) == "math"
    assert which_ran(flash, *arrays) == "flash"
    assert which_ran(plain, *arrays) == "math"
    assert which_ran(torch.nn.functional.scaled_dot_product_attention, *arrays) == "flash"
    with pytest.raises(AttnError, match="no attention ran: torch executed aten.add"):
        which_ran(lambda x: x + x, arrays[0])
    with pytest.raises(AttnError, match="torch executed nothing"):
        which_ran(lambda: None)


@pytest.mark.parametrize("operator, name", [
    ("aten._scaled_dot_product_flash_attention.default", "flash"),
    ("aten._scaled_dot_product_efficient_attention.default", "efficient"),
    ("aten._efficient_attention_forward.default", "efficient"),
    ("aten._scaled_dot_product_cudnn_attention.default", "cudnn"),
    ("attnlib.flash_attention.default", "ours"),
])  # fmt: skip
def test_which_ran_knows_the_names_of_the_gpu(operator, name, monkeypatch):
    class Heard:
        """A listener's base that hears of one operator, whatever runs."""

        def __enter__(self):
            self.__torch_dispatch__(Named(), ())

        def __exit__(self, *error):
            return False

    class Named:
        def __call__(self, *args):
            return None

        def __str__(self):
            return operator

    monkeypatch.setattr(backends, "TorchDispatchMode", Heard)
    assert which_ran(lambda: None) == name


def test_N37_without_torch_one_clear_message_when_a_function_is_called():
    code = """
from attnlib import AttnError, backends
for call in (backends.flex_attention, backends.which_ran, lambda *x: backends.why_not("math", *x),
             lambda *x: backends.sdpa_backend("math", *x)):
    try:
        call(1, 2, 3)
    except AttnError as refusal:
        print(refusal)
"""
    assert (
        python(BLOCKER + code, "-W", "error").splitlines()
        == ["attnlib.torch_path needs torch: pip install torch"] * 4
    )
