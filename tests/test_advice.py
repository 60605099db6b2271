"""A message's advice is tried: read it out of the message, follow it, and the right answer must come.

Every ``raise`` of the library's own errors in the modules below is listed here once, by one of its messages:
in ADVICE with a way to follow it, or in PLAIN if it says only what was got and what was wanted.
"""

import ast
import functools
import re
import traceback
from pathlib import Path

import numpy
import numpy as np
import pytest
import torch
from oracle import close, plain_attention, random_qkv, to_numpy

import attnlib
from attnlib import (
    AttnError,
    attention,
    backends,
    causal_mask,
    combine_masks,
    core,
    cost,
    counter,
    heads,
    kernels,
    masks,
    online,
    tiled,
    to_additive,
    to_ignore,
    torch_path,
)

Q, K, V = random_qkv(1, (), 3, 3, 4, 4)
CAUSAL = causal_mask(3, 3)
EYE = np.eye(3, dtype=int)
WHOLE = [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]]
BIAS = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0], [2.0, 0.5, 0.0]])
WORDS = {"numpy": numpy, "torch": torch, "attnlib": attnlib, "combine_masks": combine_masks} | {
    "causal_mask": causal_mask,
    "attention": attention,
}


def follow(message, pattern, **values):
    """The expression that `pattern` finds in the message, computed."""
    found = re.search(pattern, message, re.S)
    assert found, f"no {pattern!r} in {message!r}"
    return eval(found[1].strip("`"), dict(WORDS), values)


def tensors(*arrays):
    return [torch.from_numpy(np.array(a)) for a in arrays]


# Each: a call that is refused; a function of its message that follows the advice; what must come out.
ADVICE = {}


def advice(name, call, want):
    """Register how the advice of one refusal is followed; `want` may be a function that says it later."""

    def register(function):
        assert name not in ADVICE
        ADVICE[name] = (call, function, want)
        return function

    return register


AS_IN = r"as in (\S+?\(.*\)|\w+ \* 1\.0)$"


def plain(mask=None, **how):
    return lambda: plain_attention(Q, K, V, mask, **how)[0]


@advice("lists", lambda: attention(Q.tolist(), K, V), plain())
def _(message):
    return attention(follow(message, AS_IN, query=Q.tolist(), key=K), K, V)


@advice("lists alone", lambda: core.softmax([[1.0, 2.0]]), lambda: core.softmax(np.array([[1.0, 2.0]])))
def _(message):
    return core.softmax(follow(message, AS_IN, masked=[[1.0, 2.0]]))


@advice("F6 a boolean mask as a list", lambda: attention(Q, K, V, CAUSAL.tolist()), plain(CAUSAL))
def _(message):
    return attention(Q, K, V, follow(message, AS_IN, attn_mask=CAUSAL.tolist(), query=Q))


@advice("a mask of 0 and 1 as a list", lambda: attention(Q, K, V, CAUSAL.astype(int).tolist()), plain(CAUSAL))
def _(message):
    return attention(Q, K, V, follow(message, AS_IN, attn_mask=CAUSAL.astype(int).tolist(), query=Q))


@advice(
    "whole numbers as a bias in a list",
    lambda: attention(Q, K, V, WHOLE),
    lambda: plain_attention(Q, K, V, 1.0 * np.array(WHOLE))[0],
)
def _(message):
    return attention(Q, K, V, follow(message, AS_IN, attn_mask=WHOLE, query=Q))


@advice("a bias as a list", lambda: attention(Q, K, V, BIAS.tolist()), plain(BIAS))
def _(message):
    return attention(Q, K, V, follow(message, AS_IN, attn_mask=BIAS.tolist(), query=Q))


@advice("a list beside tensors", lambda: attention(*tensors(Q, K, V), CAUSAL.tolist()), plain(CAUSAL))
def _(message):
    query, key, value = tensors(Q, K, V)
    mask = follow(message, AS_IN, attn_mask=CAUSAL.tolist(), query=query)
    return attention(query, key, value, mask)


@advice("two libraries", lambda: attention(torch.from_numpy(Q), K, torch.from_numpy(V)), plain())
def _(message):
    query, value = tensors(Q, V)
    return attention(query, follow(message, AS_IN, key=K), value)


@advice(
    "whole numbers",
    lambda: attention(Q, K, np.eye(3, dtype=int)),
    lambda: plain_attention(Q, K, np.eye(3))[0],
)
def _(message):
    return attention(Q, K, follow(message, AS_IN, value=np.eye(3, dtype=int)))


@advice(
    "F6 masks in one list",
    lambda: combine_masks([CAUSAL, np.eye(3, dtype=bool)]),
    lambda: np.eye(3).astype(bool),
)
def _(message):
    return follow(message, r": (combine_masks\(.*\))$", masks=[CAUSAL, np.eye(3, dtype=bool)])


@advice(
    "F5 a boolean mask and is_causal",
    lambda: attention(Q, K, V, BIAS > 0.4, is_causal=True),
    plain((BIAS > 0.4) & CAUSAL),
)
def _(message):
    return attention(
        Q, K, V, follow(message, r"attn_mask=(combine_masks\(.*\))$", attn_mask=BIAS > 0.4, query=Q)
    )


@advice(
    "F5 a bias and is_causal",
    lambda: attention(Q, K, V, BIAS, is_causal=True),
    plain(np.where(CAUSAL, BIAS, -np.inf)),
)
def _(message):
    return attention(Q, K, V, follow(message, r"attn_mask=(numpy\.where\(.*\))$", attn_mask=BIAS, query=Q))


@advice(
    "F5 a bias and is_causal, other lengths, in torch",
    lambda: attention(
        *tensors(Q[:2], K, V), torch.from_numpy(BIAS[:2]), is_causal=True, causal_align="bottom_right"
    ),
    lambda: plain_attention(Q[:2], K, V, np.where(CAUSAL[1:], BIAS[:2], -np.inf))[0],
)
def _(message):
    query, key, value, mask = tensors(Q[:2], K, V, BIAS[:2])
    mask = follow(message, r"attn_mask=(torch\.where\(.*\))$", attn_mask=mask, query=query)
    return attention(query, key, value, mask)


@advice("an integer mask", lambda: attention(Q, K, V, CAUSAL.astype(int)), plain(CAUSAL))
def _(message):
    return attention(Q, K, V, follow(message, r"with (`.*`) if 1 means", attn_mask=CAUSAL.astype(int)))


@advice("F5 combining 1 and 0", lambda: combine_masks(CAUSAL * 1.0, CAUSAL), lambda: CAUSAL)
def _(message):
    return combine_masks(follow(message, r"(`mask == 1`) if it holds 1 and 0", mask=CAUSAL * 1.0), CAUSAL)


@advice("F5 combining 0 and -inf", lambda: to_ignore(to_additive(CAUSAL)), lambda: ~CAUSAL)
def _(message):
    return to_ignore(follow(message, r"(`mask == 0`) if it holds 0 and -inf", mask=to_additive(CAUSAL)))


@advice("F5 combining a bias", lambda: combine_masks(CAUSAL, BIAS), lambda: np.where(CAUSAL, BIAS, -np.inf))
def _(message):
    return follow(message, r"mask into it with (`.*`)$", mask=BIAS, other=CAUSAL, where=np.where, inf=np.inf)


@advice("combining whole numbers", lambda: to_ignore(CAUSAL.astype(int)), lambda: ~CAUSAL)
def _(message):
    return to_ignore(follow(message, r"(`mask == 1`) if 1 means", mask=CAUSAL.astype(int)))


@advice(
    "a (batch, keys) mask",
    lambda: attention(*(a[None, None] for a in (Q, K, V)), np.array([[[True, True, False]]] * 2)),
    lambda: plain_attention(Q, K, V, np.array([True, True, False]))[0][None, None],
)
def _(message):
    mask = follow(message, r"is written (mask\[.*\])$", mask=np.array([[True, True, False]]))
    return attention(*(a[None, None] for a in (Q, K, V)), mask)


@advice(
    "which corner",
    lambda: attention(Q[:2], K, V, is_causal=True),
    lambda: plain_attention(Q[:2], K, V, CAUSAL[:2])[0],
)
def _(message):
    return attention(Q[:2], K, V, is_causal=True, causal_align=follow(message, r"Say causal_align=('\w+')"))


@advice(
    "which corner, the other",
    lambda: causal_mask(2, 3),
    lambda: CAUSAL[1:],
)
def _(message):
    return causal_mask(2, 3, align=follow(message, r"or align=('\w+')"))


@advice("an unknown corner", lambda: causal_mask(3, 3, align="right"), lambda: CAUSAL)
def _(message):
    return causal_mask(3, 3, align=follow(message, r"wanted ('\w+')"))


@advice("a length instead of lengths", lambda: masks.padding_mask(2, 3), lambda: [[[[True, True, False]]]])
def _(message):
    return masks.padding_mask(follow(message, r"as in (\[.*\])$"), 3)


@advice(
    "fewer key heads",
    lambda: attention(np.stack([Q, Q]), K[None, None].repeat(3, 1)[0], V[None].repeat(3, 0)),
    lambda: plain_attention(np.stack([Q] * 6), K, V)[0],
)
def _(message):
    assert re.search(r"need attention\(\.\.\., enable_gqa=True\)$", message)
    return attention(np.stack([Q] * 6), np.stack([K] * 3), np.stack([V] * 3), enable_gqa=True)


@advice(
    "a scale that learns",
    lambda: attention(*tensors(Q, K, V), scale=torch.tensor(0.5, requires_grad=True)),
    plain(scale=0.5),
)
def _(message):
    assert "multiply the query by it, and give scale=1.0" in message
    query, key, value = tensors(Q, K, V)
    return attention(query * torch.tensor(0.5, requires_grad=True), key, value, scale=1.0)


@advice("a scale that is no number", lambda: attention(Q, K, V, scale=np.inf), plain())
def _(message):
    return attention(Q, K, V, scale=follow(message, r"such as (1 / sqrt\(d_h\))", sqrt=np.sqrt, d_h=4))


@advice(
    "a transposed weight",
    lambda: heads.project(Q, torch.nn.Linear(4, 2).weight.detach().numpy().astype(float)),
    lambda: Q @ np.arange(8.0).reshape(2, 4).T,
)
def _(message):
    assert "a torch nn.Linear weight must be transposed first" in message
    return heads.project(Q, np.arange(8.0).reshape(2, 4).T)


@advice(
    "heads that do not divide", lambda: heads.split_heads(Q, 3), lambda: Q.reshape(3, 2, 2).swapaxes(0, 1)
)
def _(message):
    width = follow(message, r"choose n_heads that divides (\d+)$")
    return heads.split_heads(Q, width // 2)


@advice(
    "widths that differ", lambda: attention(Q, K[:, :2], V), lambda: plain_attention(Q[:, :2], K[:, :2], V)[0]
)
def _(message):
    assert "split both into the same number of heads" in message
    return attention(heads.split_heads(Q, 2)[0], heads.split_heads(K, 2)[0], V)


@advice(
    "a narrow state",
    lambda: online.update(online.start((3,), 4, like=np.float32([1])), Q @ K.T, V),
    plain(scale=1.0),
)
def _(message):
    assert "start it like the wider of the two" in message
    return online.finish(online.update(online.start((3,), 4, like=V), Q @ K.T, V))[0]


def _penalty(call):
    query, key, value = (a.requires_grad_() for a in tensors(Q, K, V))
    (gradient,) = torch.autograd.grad(call(query, key, value).sum(), query, create_graph=True)
    return torch.autograd.grad(gradient.square().sum(), query)[0]


@advice("a second derivative", lambda: _penalty(tiled.flash_attention), lambda: _penalty(core.attention))
def _(message):
    return _penalty(follow(message, r"use (attnlib\.\w+), which has$"))


def _vmap(call):
    return torch.func.vmap(call)(*(torch.stack([a, 2 * a]) for a in tensors(Q, K, V)))


@advice(
    "a transform of torch",
    lambda: _vmap(tiled.flash_attention),
    lambda: plain_attention(*(np.stack([a, 2 * a]) for a in (Q, K, V)))[0],
)
def _(message):
    return _vmap(follow(message, r"use (attnlib\.\w+), which"))


@advice("an array for torch's own", lambda: torch_path.sdpa(Q, K, V), plain())
def _(message):
    made = [follow(message, r"tensor: (torch\.asarray\(query\))", query=a) for a in (Q, K, V)]
    close(follow(message, r"or (attnlib\.tiled\.flash_attention)")(Q, K, V), plain()())
    return torch_path.sdpa(*made)


@advice("FlexAttention's gradients", lambda: _flex(*(a.requires_grad_() for a in tensors(Q, K, V))), plain())
def _(message):
    arrays = [a.requires_grad_() for a in tensors(Q, K, V)]
    close(follow(message, r"use (attnlib\.torch_path\.sdpa)")(*arrays), plain()())
    assert "detach() the inputs" in message
    return _flex(*(a.detach() for a in arrays))


@advice("FlexAttention's narrow heads", lambda: _flex(*tensors(Q, K, V), compiled=True), plain())
def _(message):
    assert re.search(r"pad it with zeros, or compiled=False$", message)
    arrays = [torch.nn.functional.pad(a, (0, 12)) for a in tensors(Q, K, V)]
    close(_flex(*arrays, scale=0.5)[:, :4], plain()())
    return _flex(*tensors(Q, K, V), compiled=False)


@advice(
    "the kernel and a mask",
    lambda: kernels.flash_attention(*tensors(*map(np.float32, (Q, K, V))), torch.from_numpy(CAUSAL)),
    plain(CAUSAL),
)
def _(message):
    query, key, value, mask = tensors(Q, K, V, CAUSAL)
    for name in re.findall(r"attnlib\.(?:torch_path\.sdpa|flash_attention)", message):
        close(
            functools.reduce(getattr, name.split(".")[1:], attnlib)(query, key, value, mask), plain(CAUSAL)()
        )
    return attnlib.flash_attention(query, key, value, mask)


def _tangent(call):
    query, key, value = (a[None, None] for a in tensors(Q, K, V))
    return torch.func.jvp(lambda q: call(q, key, value), (query,), (query,))[1]


@advice("forward mode of torch's own", lambda: _tangent(torch_path.sdpa), lambda: _tangent(attention))
def _(message):
    return _tangent(follow(message, r"use (attnlib\.\w+)$"))


FAR = torch.empty(3, 4, dtype=torch.float64, device="meta")


@advice(
    "another device",
    lambda: attention(
        torch.from_numpy(Q), torch.empty(3, 4, dtype=torch.float64, device="meta"), torch.from_numpy(V)
    ),
    lambda: (3, 4),
)
def _(message):
    key = follow(message, r"as in (key\.to\(query\.device\))$", key=torch.from_numpy(K), query=FAR)
    return tuple(attention(FAR, key, key).shape)


@advice(
    "a small fast memory",
    lambda: counter.flash2_forward(counter.FastMemory(60), Q, K, V, block_q=3, block_k=3),
    plain(),
)
def _(message):
    assert "make the tiles smaller or the fast memory larger" in message
    close(counter.flash2_forward(counter.FastMemory(60), Q, K, V, block_q=1, block_k=1)[0], plain()())
    return counter.flash2_forward(counter.FastMemory(100), Q, K, V, block_q=3, block_k=3)[0]


def _flex(*arrays, **how):
    return backends.flex_attention(*arrays, **how)


# Messages that say what was got and what was wanted, which is the advice.
STATE = online.start((1,), 4, like=V)
PLAIN = {
    "wanted a positive number": lambda: cost.roofline(0, 1, peak=1, bandwidth=1),
    "wanted a whole number of at least 1": lambda: heads.split_heads(Q, 0),
    "wanted one value row per key$": lambda: attention(Q, K, V[:2]),
    "scores have .* wanted one value row per key": lambda: online.update(
        online.start((1,), 4, like=V), Q[:1, :2], V
    ),
    "weights have .*wanted one value row per key": lambda: core.weighted_sum(Q[:, :2], V),
    "wanted one type for all": lambda: attention(Q, np.float32(K), V),
    "wanted at least 2 axes": lambda: attention(Q[0], K, V),
    "wanted at least 1 axis": lambda: core.softmax(np.array(1.0)),
    "at least 16 bits": lambda: attention(*(a.to(torch.float8_e4m3fn) for a in tensors(Q, K, V))),
    "wanted \\(..., Tq, keys\\)": lambda: online.update(STATE, Q[0], V),
    "needs a head axis": lambda: attention(Q, K, V, enable_gqa=True),
    "wanted the same number": lambda: attention(Q[None], K[None], np.stack([V] * 2), enable_gqa=True),
    "wanted a multiple": lambda: attention(
        np.stack([Q] * 3), np.stack([K] * 2), np.stack([V] * 2), enable_gqa=True
    ),
    r"wanted at least \(T, n_heads": lambda: heads.split_heads(Q[0], 2),
    r"wanted at least \(n_heads": lambda: heads.merge_heads(Q),
    r"wanted at least \(n_kv": lambda: heads.repeat_heads(Q, 2),
    "window is 0": lambda: masks.sliding_window_mask(3, 3, 0),
    "prefix is 4": lambda: masks.prefix_mask(3, 3, 4),
    "wanted at least one$": lambda: combine_masks(),
    "wanted a floating type": lambda: to_additive(CAUSAL, dtype=int),
    "wanted 0 or more": lambda: causal_mask(-1, 3),
    "wanted a whole number$": lambda: causal_mask(1.5, 3),
    "from 0 to the 3 keys": lambda: masks.padding_mask([4], 3),
    "ids_q and ids_k do not fit": lambda: masks.document_mask(np.ones((2, 3), int), np.ones((3, 3), int)),
    "no array of whole numbers": lambda: masks.document_mask([[1], [1, 2]]),
    "wanted whole numbers": lambda: masks.document_mask([1.5]),
    "does not broadcast": lambda: combine_masks(CAUSAL, np.ones(2, dtype=bool)),
    "wanted the same rows": lambda: online.merge(*(online.start((n,), 1, like=V) for n in (1, 2))),
    "wanted one lse per row": lambda: online.from_result(V, V),
    "as the forward pass returned it": lambda: tiled.flash_attention_backward(Q, K, V, V[:1], V[:, 0], V),
    "there is nothing to count": lambda: counter.flash2_forward(
        counter.FastMemory(), Q[:0], K, V, block_q=1, block_k=1
    ),
    "is not in the fast memory": lambda: counter.FastMemory()["q"],
    "wanted one head as a NumPy array": lambda: counter.plain_forward(
        counter.FastMemory(), *tensors(Q, K, V)
    ),
    "wanted one of forward, backward": lambda: cost.flops(1, 1, 1, direction="up"),
    "wanted one of flash": lambda: backends.sdpa_backend("flash3", *tensors(Q, K, V)),
    "kernel refuses these inputs here": lambda: backends.sdpa_backend("cudnn", *tensors(Q, K, V)),
    "no attention ran": lambda: backends.which_ran(torch.ones, 2),
    "query has width 4, key has width 2: wanted equal": lambda: _kernel(Q, K[:, :2], V),
    "wanted float32, float16": lambda: kernels.flash_attention(*tensors(Q, K, V)),
    "wanted at most 128": lambda: _kernel(*(np.ones((1, 129)),) * 3),
    "wanted a torch tensor$": lambda: kernels.flash_attention(Q, K, V),
}
# Only where something is missing or forbidden; tried in the module's own test.
ELSEWHERE = {
    "torch_path.py": ["needs torch", "ATTNLIB_DEVICE"],
    "kernels.py": ["need torch", "need Triton", "compiled kernels run on a GPU"],
}


def _kernel(*arrays):
    return kernels.flash_attention(*tensors(*map(np.float32, arrays)))


def _refusal(call):
    with pytest.raises(AttnError) as caught:
        call()
    return caught.value


JVP = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


@JVP
@pytest.mark.parametrize("name", ADVICE)
def test_advice_leads_to_the_right_answer(name):
    call, following, want = ADVICE[name]
    got = following(str(_refusal(call)))
    if isinstance(got, tuple):
        assert got == want()
    else:
        close(to_numpy(got).astype(float), to_numpy(want()).astype(float), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("words", PLAIN)
def test_other_messages_say_got_and_wanted(words):
    assert re.search(words, str(_refusal(PLAIN[words])))


MODULES = "_arrays _torch core masks heads online tiled cost counter torch_path backends kernels".split()
OURS = ("AttnError", "ShapeError", "MaskError")


def _sites():
    """``file:line`` of every raise of ours, with its message as it is written."""
    for name in MODULES:
        path = Path(attnlib.__file__).with_name(f"{name}.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            made = getattr(node, "exc", None)
            if isinstance(node, ast.Raise) and getattr(getattr(made, "func", None), "id", "") in OURS:
                lines = range(node.lineno, node.end_lineno + 1)
                yield path.name, lines, ast.unparse(made)


@JVP
def test_no_message_is_left_out():
    hit = set()
    for call in [*(case[0] for case in ADVICE.values()), *PLAIN.values()]:
        frame = traceback.extract_tb(_refusal(call).__traceback__)[-1]
        hit.add((Path(frame.filename).name, frame.lineno))
    missed = [
        f"{name}:{lines[0]} {message[:120]}"
        for name, lines, message in _sites()
        if not any((name, line) in hit for line in lines)
        and not any(words in message for words in ELSEWHERE.get(name, []))
    ]
    assert not missed, "\n".join(missed)
