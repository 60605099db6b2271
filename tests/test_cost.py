"""What attention costs: known numbers, and formulas that equal what a run against a small memory counts."""

import itertools
import math

import numpy as np
import pytest
import torch
from oracle import close, random_qkv

from attnlib import AttnError, MaskError, ShapeError, attention, attention_steps, causal_mask, counter
from attnlib.cost import (
    ALGORITHMS,
    Limit,
    Tiles,
    Traffic,
    executed_flops,
    extra_memory,
    fast_memory,
    flops,
    roofline,
    tile_kinds,
    tiles,
    traffic,
)
from attnlib.counter import FastMemory
from attnlib.tiled import flash_attention, flash_attention_steps

MIB = 2**20

# --- known numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "n, entries, mib", [(4096, 16777216, 32), (8192, 67108864, 128), (16384, 268435456, 512)]
)
def test_the_table_of_score_matrices(n, entries, mib):
    # plain attention keeps S and P: two such matrices
    assert extra_memory("plain", n, n) == 2 * entries
    assert extra_memory("plain", n, n) // 2 * 2 == mib * MIB
    assert extra_memory("plain", n, n, direction="backward") == 3 * entries


@pytest.mark.parametrize(
    "algorithm, direction, want",
    [
        ("plain", "forward", 2 * 6 * 10),
        ("plain", "backward", 3 * 6 * 10),
        ("flash1", "forward", 2 * 6),
        ("flash1", "backward", 2 * 6),
        ("flash2", "forward", 6),
        ("flash2", "backward", 2 * 6),
        ("two_pass", "forward", 6),
        ("two_pass", "backward", 2 * 6),
    ],
)
def test_extra_memory(algorithm, direction, want):
    assert extra_memory(algorithm, 6, 10, direction=direction) == want


def test_traffic_at_4096_by_128_in_two_bytes():
    """132 MiB plain; 66 MiB with 128 rows a tile, 130 with 64: half, and next to nothing."""
    plain = traffic("plain", 4096, 4096, 128)
    assert plain == Traffic(3 * 4096 * 128 + 2 * 4096**2, 2 * 4096**2 + 4096 * 128)
    assert plain.total == 4 * 4096 * 128 + 4 * 4096**2 and plain.total * 2 / MIB == 132
    for rows, mib in ((128, 66), (64, 130)):
        flash = traffic("flash2", 4096, 4096, 128, block_q=rows, block_k=64)
        assert flash == Traffic(4096 * 128 * (1 + 2 * 4096 // rows), 4096 * 129)
        assert flash.total * 2 / MIB == pytest.approx(mib, abs=0.01)
    narrow = (
        traffic("plain", 4096, 4096, 64).total,
        traffic("flash2", 4096, 4096, 64, block_q=128, block_k=64).total,
    )
    assert narrow[0] / narrow[1] == pytest.approx(3.9, abs=0.05)


def test_the_number_of_keys_a_tile_does_not_matter_to_flash2():
    one, other = (traffic("flash2", 256, 256, 32, block_q=64, block_k=k) for k in (16, 64))
    assert one == other


def test_tiles_of_a_causal_mask():
    assert tiles(8, 8, 2, 2, is_causal=True) == Tiles(16, 10, 4)
    assert tiles(16, 16, 2, 2, is_causal=True) == Tiles(64, 36, 8)
    assert tiles(4096, 4096, 64, 64, is_causal=True) == Tiles(4096, 2080, 64)
    assert tiles(8, 8, 2, 2) == Tiles(16, 16, 0)
    assert tiles(5, 7, 2, 3) == Tiles(9, 9, 0)
    assert tiles(0, 7, 2, 3) == tiles(5, 0, 2, 3) == Tiles(0, 0, 0)
    assert tiles(2, 6, 2, 2, is_causal=True, causal_align="top_left") == Tiles(3, 1, 1)
    assert tiles(2, 6, 2, 2, is_causal=True, causal_align="bottom_right") == Tiles(3, 3, 1)
    with pytest.raises(MaskError, match="causal_align"):
        tiles(2, 6, 2, 2, is_causal=True)


def test_N36_flops_by_the_convention_of_the_field():
    assert flops(1024, 1024, 64) == 4 * 1024 * 1024 * 64
    assert flops(1024, 1024, 64, is_causal=True) == 2 * 1024 * 1024 * 64
    assert flops(1024, 1024, 64, direction="backward") == 10 * 1024 * 1024 * 64
    assert flops(1024, 1024, 64, direction="backward", is_causal=True) == 5 * 1024 * 1024 * 64
    assert flops(3, 5, 7, 2) == 2 * 3 * 5 * 9 and flops(3, 5, 7, 2, direction="backward") == 5 * 3 * 5 * 9
    assert all(type(flops(3, 5, 7, 2, direction=d)) is int for d in ("forward", "backward"))


def test_fast_memory():
    assert fast_memory(3, 5, 7, 2) == 3 * 7 + 5 * (7 + 2) + 3 * 5 + 3 * (2 + 2)
    assert fast_memory(128, 128, 128) == 128 * 128 * 5 + 2 * 128
    backward = 2 * 3 * 7 + 3 * 2 + 2 * 3 + 2 * 5 * (7 + 2) + 2 * 3 * 5  # Q dQ; dO; lse D; K V dK dV; P dS
    assert fast_memory(3, 5, 7, 2, direction="backward") == backward


def test_executed_flops():
    """Per entry of a visited tile: 2 products forward; backward 4, 5 or 7."""
    size = (6, 9, 4, 5)
    blocks = {"block_q": 4, "block_k": 4}
    area = 2 * 6 * 9
    for algorithm in ALGORITHMS:
        assert executed_flops(algorithm, *size, **blocks) == area * (4 + 5)
    wanted = {
        "plain": 2 * 4 + 2 * 5,
        "flash1": 3 * 4 + 2 * 5,
        "flash2": 3 * 4 + 2 * 5,
        "two_pass": 4 * 4 + 3 * 5,
    }
    for algorithm, widths in wanted.items():
        assert executed_flops(algorithm, *size, **blocks, direction="backward") == area * widths
    # plain attention computes the hidden half as well
    causal = {"is_causal": True, "causal_align": "top_left"}
    assert executed_flops("plain", *size, **causal) == area * 9
    visited = sum(
        (r.stop - r.start) * (c.stop - c.start)
        for r, c, kind in tile_kinds(6, 9, 4, 4, True, "top_left")
        if kind != "skipped"
    )
    assert executed_flops("flash2", *size, **blocks, **causal) == 2 * visited * 9 < area * 9
    square = executed_flops("two_pass", 8, 8, 4, **blocks, direction="backward")
    assert (
        square == 7 * 2 * 64 * 4 and executed_flops("plain", 8, 8, 4, direction="backward") == 4 * 2 * 64 * 4
    )


def test_roofline():
    for work, moved, name, seconds in ((100.0, 10.0, "memory", 2.0), (1000.0, 10.0, "arithmetic", 10.0)):
        got = roofline(work, moved, peak=100.0, bandwidth=5.0)
        assert got == Limit(work / moved, 20.0, seconds, name)
    at_the_ridge = roofline(200.0, 10.0, peak=100.0, bandwidth=5.0)
    assert at_the_ridge.intensity == at_the_ridge.ridge and at_the_ridge.seconds == 2.0
    assert at_the_ridge.limited_by == "arithmetic"
    # plain attention at N = 4096, d = 128 on an H100, two bytes: far below the ridge; as one kernel, above
    h100 = {"peak": 989e12, "bandwidth": 3.35e12}
    work = flops(4096, 4096, 128)
    assert roofline(work, 132 * MIB, **h100).limited_by == "memory"
    least = 2 * 4 * 4096 * 128
    assert roofline(work, least, **h100).limited_by == "arithmetic"


@pytest.mark.parametrize("name", ["work_flops", "work_bytes", "peak", "bandwidth"])
@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf])
def test_roofline_refuses_what_is_no_positive_number(name, bad):
    numbers = {"work_flops": 1.0, "work_bytes": 1.0, "peak": 1.0, "bandwidth": 1.0, name: bad}
    with pytest.raises(AttnError, match=f"^{name} is {bad}, wanted a positive number"):
        roofline(
            numbers["work_flops"],
            numbers["work_bytes"],
            peak=numbers["peak"],
            bandwidth=numbers["bandwidth"],
        )


def test_unknown_words_name_the_known_ones():
    for call in (
        lambda: traffic("flash3", 4, 4, 2, block_q=2, block_k=2),
        lambda: executed_flops("flash3", 4, 4, 2, block_q=2, block_k=2),
        lambda: extra_memory("flash3", 4, 4),
    ):
        with pytest.raises(
            AttnError, match="^algorithm is 'flash3', wanted one of plain, flash1, flash2, two_pass$"
        ):
            call()
    for call in (
        lambda: traffic("plain", 4, 4, 2, direction="back"),
        lambda: executed_flops("plain", 4, 4, 2, direction="back"),
        lambda: extra_memory("plain", 4, 4, direction="back"),
        lambda: flops(4, 4, 2, direction="back"),
        lambda: fast_memory(2, 2, 2, direction="back"),
    ):
        with pytest.raises(AttnError, match="^direction is 'back', wanted one of forward, backward$"):
            call()
    for call in (
        lambda: traffic("flash2", 4, 4, 2),
        lambda: executed_flops("flash1", 4, 4, 2),
        lambda: fast_memory(0, 2, 2),
        lambda: tiles(4, 4, 1.5, 2),
    ):
        with pytest.raises(ShapeError, match="^block_q is .*, wanted a whole number of at least 1"):
            call()
    for call in (tiles, tile_kinds):
        with pytest.raises(ShapeError, match="^block_k is 0"):
            call(4, 4, 2, 0)
        with pytest.raises(ShapeError, match="^block_q is 0"):
            call(4, 4, 0, 2)


# --- formulas against runs --------------------------------------------------------------------------------

FORWARD = {"plain": counter.plain_forward, "flash1": counter.flash1_forward, "flash2": counter.flash2_forward}
BACKWARD = {
    "plain": counter.plain_backward,
    "flash1": counter.flash1_backward,
    "flash2": counter.flash2_backward,
    "two_pass": counter.two_pass_backward,
}
SIZES = [  # n_q, n_k, d_h, d_v, block_q, block_k: ragged, unequal, larger than the sequence, single
    (8, 8, 4, 4, 2, 2),
    (7, 7, 3, 5, 2, 3),
    (5, 11, 2, 3, 3, 4),
    (11, 5, 5, 2, 4, 3),
    (6, 6, 3, 4, 1, 6),
    (6, 6, 3, 4, 6, 1),
    (3, 4, 2, 3, 10, 20),
    (1, 9, 4, 1, 1, 2),
    (9, 1, 1, 4, 2, 1),
    (13, 17, 4, 3, 5, 4),
]
CAUSAL = [
    {},
    {"is_causal": True, "causal_align": "top_left"},
    {"is_causal": True, "causal_align": "bottom_right"},
]
sizes = pytest.mark.parametrize("size", SIZES, ids=str)
causal = pytest.mark.parametrize("how", CAUSAL, ids=["full", "top_left", "bottom_right"])


def inputs(size):
    n_q, n_k, d_h, d_v, block_q, block_k = size
    query, key, value = random_qkv(sum(size), (), n_q, n_k, d_h, d_v)
    return (query, key, value), {"block_q": block_q, "block_k": block_k}


def fullest(size, how, direction):
    """Entries at the fullest moment, from the visited tiles' own sizes."""
    n_q, n_k, d_h, d_v, block_q, block_k = size
    return max(
        fast_memory(r.stop - r.start, c.stop - c.start, d_h, d_v, direction=direction)
        for r, c, kind in tile_kinds(
            n_q, n_k, block_q, block_k, how.get("is_causal", False), how.get("causal_align")
        )
        if kind != "skipped"
    )


@sizes
@causal
@pytest.mark.parametrize("algorithm", FORWARD)
def test_forward_runs_count_what_the_formulas_say(algorithm, size, how):
    arrays, blocks = inputs(size)
    tile_sizes = {} if algorithm == "plain" else blocks
    memory = FastMemory()
    output, second = FORWARD[algorithm](memory, *arrays, **tile_sizes, **how)
    want = attention_steps(*arrays, **how)
    close(output, want.output)
    close(second, want.weights if algorithm == "plain" else want.lse)
    assert memory.traffic == traffic(algorithm, *size[:4], **tile_sizes, **how)
    assert memory.flops == executed_flops(algorithm, *size[:4], **tile_sizes, **how)
    assert memory.held == 0
    if algorithm != "plain":
        assert memory.peak == fullest(size, how, "forward")
    if algorithm == "flash2":
        same = traffic("two_pass", *size[:4], **tile_sizes, **how)
        assert memory.traffic == same  # forward, they are one algorithm
        assert memory.flops == executed_flops("two_pass", *size[:4], **tile_sizes, **how)


def gradients(arrays, grad_output, how):
    leaves = [torch.asarray(a).requires_grad_() for a in arrays]
    return torch.autograd.grad((attention(*leaves, **how) * torch.asarray(grad_output)).sum(), leaves)


@sizes
@causal
@pytest.mark.parametrize("algorithm", BACKWARD)
def test_backward_runs_count_what_the_formulas_say(algorithm, size, how):
    arrays, blocks = inputs(size)
    grad_output = np.random.default_rng(1).standard_normal((size[0], size[3]))
    steps = attention_steps(*arrays, **how)
    memory = FastMemory()
    if algorithm == "plain":
        tile_sizes = {}
        got = counter.plain_backward(memory, *arrays, steps.weights, grad_output)
    else:
        tile_sizes = blocks
        got = BACKWARD[algorithm](memory, *arrays, steps.output, steps.lse, grad_output, **blocks, **how)
    for mine, wanted in zip(got, gradients(arrays, grad_output, how), strict=True):
        close(mine, wanted)
    there = {"direction": "backward", **how}
    assert memory.traffic == traffic(algorithm, *size[:4], **tile_sizes, **there)
    assert memory.flops == executed_flops(algorithm, *size[:4], **tile_sizes, **there)
    assert memory.held == 0
    if algorithm == "flash2":
        assert memory.peak == fullest(size, how, "backward")
    elif algorithm == "two_pass":
        assert memory.peak <= fullest(size, how, "backward")  # no dQ beside dK and dV


def test_default_value_width_is_the_keys():
    for call in (flops, lambda *s: fast_memory(2, 3, *s[2:]), lambda *s: traffic("plain", *s)):
        assert call(8, 9, 4) == call(8, 9, 4, 4)
    for call in (traffic, executed_flops):
        assert call("flash2", 8, 9, 4, block_q=2, block_k=3) == call(
            "flash2", 8, 9, 4, 4, block_q=2, block_k=3
        )


def test_rows_without_a_visible_tile_are_stored_all_the_same():
    how = {"is_causal": True, "causal_align": "bottom_right"}
    arrays, blocks = inputs((8, 3, 2, 2, 2, 2))
    memory = FastMemory()
    output, lse = counter.flash2_forward(memory, *arrays, **blocks, **how)
    close(output[:5], np.zeros((5, 2)), atol=0)
    close(lse[:5], [-np.inf] * 5)
    assert memory.stores == 8 * (2 + 1)
    assert memory.loads == 4 * 2 + (2 + 2 + 1) * (2 + 2)  # Q of rows 5 to 8; tiles: keys 1-2, 1-2, 3


@pytest.mark.parametrize("n_q, n_k", [(0, 3), (3, 0)])
def test_a_run_without_queries_or_keys_is_refused(n_q, n_k):
    arrays, blocks = random_qkv(1, (), n_q, n_k, 2, 3), {"block_q": 2, "block_k": 2}
    rest = np.zeros((n_q, 3)), np.zeros(n_q), np.zeros((n_q, 3))
    for run in (counter.flash1_forward, counter.flash2_forward):
        with pytest.raises(AttnError, match=f"{n_q} queries and {n_k} keys, wanted at least one of each"):
            run(FastMemory(), *arrays, **blocks)
    for run in (counter.flash1_backward, counter.flash2_backward, counter.two_pass_backward):
        with pytest.raises(AttnError, match=f"{n_q} queries and {n_k} keys, wanted at least one of each"):
            run(FastMemory(), *arrays, *rest, **blocks)


@sizes
@causal
def test_tile_kinds_are_those_of_a_run(size, how):
    arrays, blocks = inputs(size)
    run = [(s.rows, s.cols, s.kind) for s in flash_attention_steps(*arrays, **blocks, **how)]
    n_q, n_k, _, _, block_q, block_k = size
    got = tile_kinds(n_q, n_k, block_q, block_k, how.get("is_causal", False), how.get("causal_align"))
    assert got == run
    kinds = [kind for _, _, kind in run]
    assert tiles(n_q, n_k, block_q, block_k, **how) == Tiles(
        len(kinds), len(kinds) - kinds.count("skipped"), kinds.count("masked")
    )
    mask = causal_mask(n_q, n_k, align=how["causal_align"]) if how else np.ones((n_q, n_k), bool)
    for rows, cols, kind in got:
        tile = mask[rows, cols]
        assert kind == ("whole" if tile.all() else "masked" if tile.any() else "skipped")


@pytest.mark.parametrize("n_q", range(8))
def test_counts_of_tiles_in_every_small_size(n_q):
    """What the formulas add up row by row, against a list of all tiles."""
    for n_k, block_q, block_k in itertools.product(range(8), (1, 2, 3, 9), (1, 2, 3, 9)):
        for how in CAUSAL:
            listed = tile_kinds(n_q, n_k, block_q, block_k, *how.values())
            kinds = [kind for _, _, kind in listed]
            met = [(r.stop - r.start, c.stop - c.start) for r, c, kind in listed if kind != "skipped"]
            assert tiles(n_q, n_k, block_q, block_k, **how) == (len(kinds), len(met), kinds.count("masked"))
            got = executed_flops("flash2", n_q, n_k, 1, 0, block_q=block_q, block_k=block_k, **how)
            assert got == 2 * sum(rows * cols for rows, cols in met)
            seen_rows = sum(
                {r.start: r.stop - r.start for r, _, kind in listed if kind != "skipped"}.values()
            )
            loads = traffic("flash2", n_q, n_k, 1, 1, block_q=block_q, block_k=block_k, **how).loads
            assert loads == seen_rows + 2 * sum(cols for _, cols in met)


def test_a_long_text_takes_no_list_of_its_tiles():
    n = 2**18
    got = tiles(n, n, 64, 64, is_causal=True)
    per_side = n // 64
    assert got == Tiles(per_side**2, per_side * (per_side + 1) // 2, per_side)


# --- the fast memory --------------------------------------------------------------------------------------


@sizes
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_what_just_fits_is_accepted_and_one_entry_less_is_refused(size, direction):
    arrays, blocks = inputs(size)
    need = fullest(size, {}, direction)

    def run(capacity):
        memory = FastMemory(capacity)
        if direction == "forward":
            return memory, counter.flash2_forward(memory, *arrays, **blocks)
        steps = attention_steps(*arrays)
        grad_output = np.ones_like(steps.output)
        return memory, counter.flash2_backward(
            memory, *arrays, steps.output, steps.lse, grad_output, **blocks
        )

    memory, _ = run(need)
    assert memory.peak == need
    with pytest.raises(
        AttnError, match=rf"takes \d+ entries, but \d+ of the {need - 1} are taken: make the tiles"
    ):
        run(need - 1)


def test_fast_memory_is_what_the_largest_tile_needs():
    memory = FastMemory(fast_memory(2, 3, 4, 5))
    counter.flash2_forward(memory, *random_qkv(1, (), 4, 6, 4, 5), block_q=2, block_k=3)
    assert memory.peak == memory.capacity
    with pytest.raises(AttnError, match="smaller"):
        counter.flash2_forward(
            FastMemory(memory.capacity), *random_qkv(1, (), 4, 6, 4, 5), block_q=2, block_k=4
        )


def test_plain_attention_needs_all_keys_beside_a_row():
    query, key, value = random_qkv(2, (), 5, 7, 4, 6)
    need = 7 * 6 + 7 + 6  # all of V, a row of P, a row of O
    memory = FastMemory(need)
    counter.plain_forward(memory, query, key, value)
    assert memory.peak == need
    with pytest.raises(AttnError, match=f"of the {need - 1} are taken"):
        counter.plain_forward(FastMemory(need - 1), query, key, value)


def test_loading_counts_and_keeping_does_not():
    memory = FastMemory(10)
    memory.load(x=np.ones((2, 3)), y=np.ones(2))
    assert (memory.loads, memory.stores, memory.held, memory.peak) == (8, 0, 8, 8)
    memory.keep(x=np.zeros(3))  # in the place of the 6
    assert (memory.loads, memory.held, memory.peak) == (8, 5, 8)
    target = np.full(3, 9.0)
    memory.store("x", target)
    assert target.tolist() == [0, 0, 0] and memory.traffic == Traffic(8, 3) and memory.traffic.total == 11
    memory.drop("y")
    memory.load(z=np.ones(7))
    assert (memory.held, memory.peak) == (10, 10)
    memory.drop("x", "z")
    assert memory.held == 0 and memory.peak == 10 and memory.flops == 0


def test_refusals_name_both_numbers():
    memory = FastMemory(10)
    memory.load(x=np.ones(6))
    with pytest.raises(
        AttnError, match="^y takes 5 entries, but 6 of the 10 are taken: make the tiles smaller"
    ):
        memory.load(y=np.ones(5))
    assert memory.traffic == Traffic(6, 0) and memory.held == memory.peak == 6  # nothing was moved
    with pytest.raises(AttnError, match="^x takes 11 entries, but 0 of the 10"):
        memory.keep(x=np.ones(11))
    memory.keep(x=np.ones(10))
    assert memory.held == 10


def test_what_is_not_held_cannot_be_read():
    memory = FastMemory()
    with pytest.raises(AttnError, match="^x is not in the fast memory, only nothing$"):
        memory["x"]
    memory.load(a=np.ones(1), b=np.ones(1))
    for use in (
        lambda: memory["x"],
        lambda: memory.store("x", np.zeros(1)),
        lambda: memory.drop("x"),
    ):
        with pytest.raises(AttnError, match="^x is not in the fast memory, only a, b$"):
            use()
    memory.drop("a")
    with pytest.raises(AttnError, match="^a is not in the fast memory, only b$"):
        memory["a"]


def test_the_fast_memory_holds_copies():
    slow = np.ones(3)
    memory = FastMemory()
    memory.load(x=slow)
    slow[:] = 5
    assert memory["x"].tolist() == [1, 1, 1]
    memory["x"][:] = 7
    assert slow.tolist() == [5, 5, 5]


def test_products_are_counted():
    memory = FastMemory()
    close(memory.multiply(np.ones((2, 3)), np.ones((3, 5))), np.full((2, 5), 3.0))
    assert memory.flops == 2 * 2 * 3 * 5


class Doubling(FastMemory):
    """What is loaded under these names arrives doubled: a program that peeks at its inputs shows itself."""

    def load(self, **arrays):
        names = ("q", "Q", "K", "V", "dO", "O")
        super().load(**{name: 2 * a if name in names else a for name, a in arrays.items()})


@causal
@pytest.mark.parametrize("algorithm", FORWARD)
def test_forward_programs_compute_with_what_they_loaded(algorithm, how):
    arrays, blocks = inputs(SIZES[2])
    blocks = {} if algorithm == "plain" else blocks
    got = FORWARD[algorithm](Doubling(), *arrays, **blocks, **how)
    want = FORWARD[algorithm](FastMemory(), *(2 * a for a in arrays), **blocks, **how)
    for mine, wanted in zip(got, want, strict=True):
        close(mine, wanted)


@causal
@pytest.mark.parametrize("algorithm", ["flash1", "flash2", "two_pass"])
def test_backward_programs_compute_with_what_they_loaded(algorithm, how):
    arrays, blocks = inputs(SIZES[2])
    output, lse = flash_attention(*arrays, **how, return_lse=True)
    grad_output = np.random.default_rng(1).standard_normal(output.shape)
    run = BACKWARD[algorithm]
    got = run(Doubling(), *arrays, output, lse, grad_output, **blocks, **how)
    doubled = [2 * a for a in (*arrays, output)]
    want = run(FastMemory(), *doubled, lse, 2 * grad_output, **blocks, **how)
    for mine, wanted in zip(got, want, strict=True):
        close(mine, wanted)


@pytest.mark.parametrize("algorithm", ["flash1", "flash2", "two_pass"])
def test_programs_leave_their_inputs_alone(algorithm):
    arrays, blocks = inputs(SIZES[1])
    steps = attention_steps(*arrays)
    everything = [*arrays, steps.output, steps.lse, np.ones_like(steps.output)]
    before = [a.copy() for a in everything]
    BACKWARD[algorithm](FastMemory(), *everything, **blocks)
    if algorithm in FORWARD:
        FORWARD[algorithm](FastMemory(), *arrays, **blocks)
    assert all(np.array_equal(a, b) for a, b in zip(everything, before, strict=True))


def test_small_integers_of_other_libraries_do_not_overflow():
    assert flops(*np.array([32768, 32768, 128], np.int32)) == flops(32768, 32768, 128) == 549755813888
    got = tiles(
        np.uint8(200), np.uint8(100), *[np.uint8(16)] * 2, is_causal=True, causal_align="bottom_right"
    )
    assert got == tiles(200, 100, 16, 16, is_causal=True, causal_align="bottom_right")
    assert traffic("plain", np.int16(256), np.int16(256), np.int16(64)) == traffic("plain", 256, 256, 64)


@pytest.mark.parametrize("wrong", [-1, 2.5, True, np.True_, "4"])
def test_B12_sizes_that_are_no_counts_are_refused(wrong):
    for call in (
        lambda: flops(wrong, 4, 5),
        lambda: flops(4, 4, wrong),
        lambda: tiles(wrong, 4, 2, 2),
        lambda: tiles(4, 4, 2, wrong),
        lambda: traffic("plain", 4, wrong, 2),
        lambda: extra_memory("plain", wrong, 4),
        lambda: fast_memory(4, 4, wrong),
    ):
        with pytest.raises(AttnError, match="wanted a whole number"):
            call()


@pytest.mark.parametrize("wrong", [-1.0, 0, math.inf, math.nan, True, "4", None, 1j])
def test_limits_that_are_no_positive_numbers_are_refused(wrong):
    with pytest.raises(AttnError, match="peak is .*wanted a positive number"):
        roofline(1.0, 1.0, peak=wrong, bandwidth=1.0)
