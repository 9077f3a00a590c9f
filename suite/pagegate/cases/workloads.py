"""The workload table: named problems, each with a tier and the reason why it is there.

To add one, add a row. `small` runs anywhere, in Triton's interpreter too; `asm` is for machine code that is
interpreted; `pr` is timed and checked on every pull request; `peers` is what else published kernels are
compared on; `nightly` is made from axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

from pagegate.errors import UsageError

from .matching import matches
from .notation import parse_case
from .spec import AttentionSpec, Case

TIERS = ("small", "asm", "pr", "peers", "nightly")


@dataclass(frozen=True)
class Workload:
    """A named case of the table. why: one sentence."""

    name: str
    tier: str
    case: Case
    why: str

    @property
    def spec(self) -> AttentionSpec:
        return self.case.spec


MODELS = {
    "llama8b": ("h32/8 d128", "Llama-3.1-8B and Mixtral: the shape most papers report"),
    "llama70b": ("h8/1 d128", "Llama-3.1-70B under TP8: one KV head, little parallelism"),
    "mistral": ("h32/8 d128 window=4096", "Mistral-7B v0.1: a sliding window of 4,096"),
    "qwen7b": ("h28/4 d128", "Qwen2.5-7B: a GQA ratio of 7 fills no power of two"),
    "gemma4b": ("h8/4 d256 window=1024", "Gemma-3-4B's local layers: head_dim 256, a window of 1,024"),
    "gptoss": ("h64/8 d64 window=128 sinks", "gpt-oss's local layers: head_dim 64, sinks, a window of 128"),
    "mha": ("h32/32 d128", "no GQA, as Llama-2-7B: nothing to pack into a Q-block"),
}

SHAPES = {
    "mha8": ("h8/8 d128", "no GQA, eight heads"),
    "oss": ("h64/8 d64", "gpt-oss"),
    "gem": ("h8/4 d256", "Gemma-3-4B"),
    "windowed": ("h32/8 d128 window=1024", "Llama-3.1-8B's heads with a window"),
    "page32": ("h32/8 d128 p32", "Llama-3.1-8B"),
    "page64": ("h32/8 d128 p64", "Llama-3.1-8B"),
    "page128": ("h32/8 d128 p128", "Llama-3.1-8B"),
    "fp8": ("h32/8 d128 kv=fp8", "Llama-3.1-8B"),
}

# a batch, profile or placement, and why; heads are small since the interpreter runs these
_SMALL = """
decode_tail          q1s33_q1s7 h4/2 d32                                     | the last page is partly filled and its tail is NaN
decode_exact         q1s32_q1s16_q1s64 h2/1 d32 dead=large                   | lengths that fill pages and tiles exactly
decode_wild_tables   q1s33_q1s90 h2/1 d32 slack=3 dead=inf                   | table entries past the end are out of range
decode_many          17q1s9_q1s40 h2/2 d32                                   | many sequences, found by a search over tokens
prompt               q37 h2/1 d32                                            | a whole prompt with a partly filled last page
prompt_needle        q35_q3 h2/2 d32 fp16 profile=needle                     | single keys at page, tile and causal edges decide
prompt_forbidden     q20s45_q7 h2/1 d32 profile=forbidden                    | a huge score just past the causal frontier
chunk                q9s73_q4s41 h2/1 d32 profile=needle                     | a chunk on a cached prefix: the causal offset
speculative          3q4s50_q1s33 h6/2 d32 profile=needle                    | several draft tokens per sequence
mixed                q1s90_q18s50_q1s3_q5 h6/2 d64                           | decode, chunk and prompt in one launch
queries_past_keys    q20s7_q3s1 h2/1 d32                                     | more queries than keys: rows that see nothing
empty                q1s0_q3s0_q0s9_q1s5 h2/1 d32 dead=large                 | no keys, no queries: 0 and -inf, never NaN
empty_sinks          q2s0_q1s5 h2/1 d32 sinks                                | no keys, but a sink
long_split           q1s700 h2/1 d32 profile=needle                          | split-KV with a needle at every edge
long_among_short     q1s300_6q1s3 h2/1 d32 profile=needle                    | empty splits beside a long sequence
empty_split          q1s300_q1s0_q1s3 h2/1 d32 dead=large                     | a sequence without keys beside one that is split
split_chunk          q3s500_q2s31 h3/1 d32 fp16                              | split-KV with several queries per sequence
split_mixed          q34s50_q1s300_6q1s3 h2/1 d32 profile=needle             | a decode is split beside a prompt that is not
split_prompt         q40s300 h2/1 d32                                        | a prompt's last Q-block has more splits than its first
split_sinks          q1s400 h4/1 d32 sinks softcap=20                        | the sink enters the sum once, not once per split
window_decode        q1s100_q1s24_q1s25 h2/1 d32 window=24 profile=needle    | first and last visible key of a window
window_prompt        q40s70 h2/1 d32 window=17 dead=large                    | whole tiles out of the window, freed pages before it
window_forbidden     q24s60 h2/1 d32 window=9 profile=forbidden              | a huge score just before the window
window_noncausal     q9s70 h2/1 d32 noncausal window=20 profile=needle       | a window that limits the past only
window_past_keys     q17s3_q16s2 h2/1 d32 window=1 dead=large              | more queries than keys and a window: one query sees the first key
window_one           q5s40 h2/1 d32 window=1 profile=needle                  | every query sees itself alone
noncausal            q20s37_q2s64 h2/1 d32 noncausal profile=needle           | the mask's tail without a causal bound
sinks_window         q1s60_q20s60 h8/1 d64 window=33 sinks                   | gpt-oss in small
soft_cap             q12s60 h2/1 d32 softcap=0.5 profile=extreme              | scores a hundred times the cap: tanh must saturate
alibi                q6s50_q1s33 h4/2 d32 fp32 alibi                         | slopes per query head, distances from the query
alibi_noncausal      q4s40 h4/1 d32 alibi noncausal softcap=5                | the order of cap, slopes and mask
scale                q4s40 h2/1 d32 scale=0.5                                | a scale of one's own
fp8                  q1s40_q9s40 h4/2 d32 kv=fp8                             | both scales, unequal and not 1
fp8_split            q1s300 h2/1 d64 fp16 kv=fp8 layout=hnd                  | scales in the split and the reduction
fp32                 q7s50 h2/1 d64 fp32                                     | float32 inputs must not be rounded to TF32
extreme              q8s90_q3s20 h2/1 d32 profile=extreme                    | constant rows, huge scores, loud values
extreme_fp16         q4s70 h2/1 d32 fp16 profile=extreme sinks               | exponents far from 0
gqa5                 q7s41 h5/1 d32 profile=needle                           | a ratio that fills no power of two
gqa12                q3s20_q1s50 h12/1 d32                                   | a wide ratio, nearly a block
gqa32                q3s20 h32/1 d32                                         | more query heads than the smallest block has rows
head_dim_80          q3s150 h2/1 d80                                         | a dimension padded to 128
head_dim_96          q2s140_q1s20 h2/2 d96 tokens=fused dead=inf              | padded lanes in a fused row
head_dim_192         q2s20 h2/1 d192                                         | a dimension padded to 256
page_8               q1s77_q3s30 h2/1 d32 p8 profile=needle                  | pages smaller than a tile
page_24              q3s100 h2/1 d32 p24 profile=needle                      | a tile straddles pages of no power of two
page_528             q2s600 h1/1 d32 p528 profile=needle                     | hybrid models' odd page
layout_hnd           q3s50_q1s20 h4/2 d32 layout=hnd                         | [page, head, slot, dim]
layout_interleaved   q3s50_q1s20 h4/2 d32 layout=interleaved                 | K and V in one buffer
split_fused          q1s300_q1s2 h2/1 d32 tokens=fused                       | the reduction writes into fused rows
layout_mixed         q3s50_q1s20 h4/2 d32 layout=mixed                       | K and V with strides of their own
tokens_transposed    q3s50_q1s20 h4/2 d32 tokens=transposed                  | queries with heads outermost
tokens_fused         q3s50_q1s20 h4/2 d32 tokens=fused pad=4                 | queries and output are slices of wider rows
shared_prefix        4q2s70 h2/1 d32 prefix=50                               | pages shared by all sequences
far_pages            q3s50_q1s20 h2/1 d32 far_pages                          | cache offsets past 2^31 elements
far_pages_split      q1s300 h2/1 d32 far_pages layout=interleaved            | the same in the split path
far_values           q3s50_q1s20 h4/2 d32 far_pages layout=mixed             | the same where keys and values have strides of their own
far_tokens           q3s50_q1s20 h2/1 d32 tokens=far                         | query and output offsets past 2^31 elements
"""

# AMD's machine code, interpreted: every row lets all branches of its compiled kernels run: whole and cut
# tiles, enough of them for a pipelined loop, short sequences beside long ones
_ASM = """
asm_decode           q1s230_q8s500_q12s500_q12s20_q1s3 h4/2 d64 fp16           | decodes and drafts, split or not
asm_decode_page64    q1s230_q4s600_q6s600_q6s20_q1s9 h8/2 d128 p64             | the same on pages as large as a tile
asm_split            q1s900_q8s700_q12s700_q12s13 h2/1 d128 profile=needle     | split-KV and its reduction, a needle at every edge
asm_split_page64     q1s1500_q6s1200_q1s70 h4/1 d64 p64 fp16                   | split-KV on large pages
asm_prefill          q70s600_q9s20_q1s500 h4/2 d64                             | prompts on a cached prefix
asm_prefill_fp16     q90s600_q66s100_q1s500 h2/1 d128 fp16                     | the same in fp16, head_dim 128
asm_mixed            q1s500_q18s50_q1s3_q5_q66s500 h6/2 d64                    | every kind of sequence at once
asm_mixed_split      q1s1300_q70s1200_q1s3 h4/2 d128                           | the same with split-KV
asm_window           q1s250_q8s700_q12s600_q12s50_q1s9 h2/1 d128 window=500    | a window in decode
asm_window_prefill   q70s1000_q9s20_q1s900 h4/2 d64 window=600                 | a window that spans splits
asm_window_forbidden q40s1000_q3s700 h2/1 d64 window=600 profile=forbidden     | a huge score just outside of window and frontier
asm_window_sinks     q1s700_q20s1000_q1s9 h8/1 d64 window=600 sinks            | gpt-oss
asm_sinks            q1s500_q20s600 h4/1 d128 sinks                            | sinks without a window
asm_split_sinks      q1s600_q4s700_q6s700_q6s20_q1s9 h4/1 d64 sinks softcap=20 | sinks in the reduction
asm_soft_cap         q6s600_q12s500_q12s20_q1s230 h4/2 d128 softcap=5 profile=extreme | tanh must saturate
asm_alibi            q6s600_q12s500_q12s20_q1s230 h4/2 d64 alibi               | slopes per head
asm_alibi_noncausal  q9s500_q70s500_q8s700_q1s9 h2/1 d64 alibi softcap=5 noncausal | the order of cap, slopes and mask
asm_dim80            q8s500_q12s500_q12s20_q1s70 h2/1 d80 p64 dead=large       | a dimension padded to 128
asm_dim80_split      q1s700_q8s700_q12s700_q12s20_q1s9 h2/1 d80 fp16           | padding in the partial results
asm_dim256           q8s400_q12s400_q12s20_q1s9 h2/1 d256 fp16                 | the most LDS
asm_dim256_window    q1s600_q8s600_q12s600_q12s20_q1s9 h2/1 d256 window=400    | Gemma 3's local layers
asm_fp8              q1s230_q8s600_q12s600_q12s20_q1s3 h4/2 d64 kv=fp8         | the target's own float8
asm_fp8_split        q1s1200_q9s1200_q1s30 h4/2 d128 fp16 kv=fp8 p64           | scales in the reduction
asm_fp8_prefill      q70s500_q1s500 h4/2 d128 kv=fp8 layout=hnd                | float8 in prompts
asm_fp8_forbidden    q40s600_q3s500 h2/1 d64 kv=fp8 profile=forbidden          | the largest numbers of float8
asm_fp32             q12s200_q12s12_q3s200_q1s20 h2/1 d64 fp32                  | float32 inputs
asm_far              q8s500_q12s500_q12s12_q1s20 h4/2 d64 far_pages layout=interleaved | 64-bit offsets
asm_wild_tables      q1s700_q3s600_q6s600_q6s20_q1s33 h5/1 d64 slack=3 dead=inf | dead table entries, a ratio of 5
asm_speculative      4q4s200_q1s600_q8s500_q1s33 h6/2 d64 profile=needle      | draft tokens
asm_page24           q40s600_q3s500 h2/1 d64 p24 tokens=fused pad=3            | pages that straddle tiles, slices of wider rows
"""

_PR = """
dec_b1_c512          llama8b  q1s512              | one short decode: launch overhead
dec_b1_c4096         llama8b  q1s4k               | one decode: split-KV must fill the GPU
dec_b1_c16384        llama8b  q1s16k              | one long decode
dec_b1_c131072       llama8b  q1s128k             | the longest context that people serve
dec_b4_c4096         llama8b  4q1s4k              | a small batch
dec_b16_c512         llama8b  16q1s512            | short contexts: little to hide latency with
dec_b16_c4096        llama8b  16q1s4k             | a middling batch
dec_b64_c512         llama8b  64q1s512            | a full batch of short contexts
dec_b64_c4096        llama8b  64q1s4k             | a full batch: memory-bound
mqa_b16_c4096        llama70b 16q1s4k             | one KV head per GPU
mha_b16_c4096        mha      16q1s4k             | one query head per KV head
qwen_b16_c4096       qwen7b   16q1s4k             | a ratio of 7
gptoss_b16_c4096     gptoss   16q1s4k             | a window and sinks in decode
gemma_b16_c4096      gemma4b  16q1s4k             | head_dim 256 and a window in decode
ragged               llama8b  q1s17_q5s300_q37_q128s1000_q1s4099_q300s333 | every kind of sequence at once
spec_b16_q4_c4096    llama8b  16q4s4k             | speculative decoding with three draft tokens
pre_b1_q512          llama8b  q512                | a short prompt
pre_b1_q2048         llama8b  q2k                 | a prompt
pre_b8_q1024         llama8b  8q1k                | several prompts
mix_60dec_q1024      llama8b  60q1s4k_q1ks5k      | a chunk on a cached prefix among 60 decodes
"""

_PEERS = """
dec_b4_c512          llama8b  4q1s512             | a small batch of short contexts
dec_b4_c16384        llama8b  4q1s16k             | a small batch of long contexts
dec_b16_c16384       llama8b  16q1s16k            | memory-bound: 1 GiB of cache
dec_b64_c16384       llama8b  64q1s16k            | memory-bound: 4 GiB of cache
mqa_b64_c4096        llama70b 64q1s4k             | one KV head per GPU, a full batch
mha8_b16_c4096       mha8     16q1s4k             | one query head per KV head, as many bytes as the GQA row
mha8_b64_c4096       mha8     64q1s4k             | one query head per KV head, a full batch
spec_b64_q2_c4096    llama8b  64q2s4k             | one draft token in a full batch
pre_b1_q8192         llama8b  q8k                 | a long prompt: compute-bound
oss_b16_c4096        oss      16q1s4k             | gpt-oss's full-attention layers, no sinks: peers take none
oss_b64_c4096        oss      64q1s4k             | the same in a full batch
gem_b16_c4096        gem      16q1s4k             | Gemma-3's global layers
oss_pre_q4096        oss      q4k                 | a prompt, head_dim 64
gem_pre_q4096        gem      q4k                 | a prompt, head_dim 256
window_b16_c16384    windowed 16q1s16k            | a window of 1,024 at 16 times as much context
p32_dec_b16_c4096    page32   16q1s4k             | pages of 32
p64_dec_b1_c4096     page64   q1s4k               | pages of 64: one decode
p64_dec_b16_c4096    page64   16q1s4k             | pages of 64
p64_pre_b1_q2048     page64   q2k                 | pages of 64: a prompt
p128_dec_b1_c4096    page128  q1s4k               | pages of 128: one decode
p128_dec_b16_c4096   page128  16q1s4k             | pages of 128
p128_pre_b1_q2048    page128  q2k                 | pages of 128: a prompt
fp8_dec_b16_c4096    fp8      16q1s4k             | an fp8 cache: half the bytes
fp8_dec_b64_c4096    fp8      64q1s4k             | an fp8 cache, a full batch
"""

_MOST_KEYS = 1 << 20


def _rows(text: str) -> list[tuple[list[str], str]]:
    rows = []
    for line in text.strip().splitlines():
        what, _, why = line.partition("|")
        rows.append((what.split(), why.strip()))
    return rows


def _cases(tier: str, text: str) -> list[Workload]:
    return [Workload(name, tier, parse_case(" ".join(words)), why) for (name, *words), why in _rows(text)]


def _timed(tier: str, text: str) -> list[Workload]:
    shapes = MODELS | SHAPES
    return [
        Workload(name, tier, parse_case(f"{batch} {shapes[model][0]}"), f"{shapes[model][1]}; {why}")
        for (name, model, batch), why in _rows(text)
    ]


def _nightly() -> list[Workload]:
    rows: list[tuple[str, str, str]] = []
    for model, (heads, why) in MODELS.items():
        for batch, context in product((1, 4, 64, 256), (128, 1024, 8192)):
            if batch * context > _MOST_KEYS // (4 if model == "mha" else 1):
                continue  # more than a card with other work on it holds
            rows.append(
                (f"{model}_dec_b{batch}_c{context}", f"{batch}q1s{context} {heads}", f"decode: {why}")
            )
        for queries, context in ((512, 512), (2048, 2048), (512, 4608), (64, 16448)):
            line = f"q{queries}s{context} {heads}"
            rows.append((f"{model}_pre_q{queries}_c{context}", line, f"prompts and chunks: {why}"))
        line = f"30q1s2k_q256s2304_q5s1k {heads}"
        rows.append((f"{model}_mix", line, f"decodes, a chunk and drafts in one launch: {why}"))
    llama = MODELS["llama8b"][0]
    for draft in (2, 3, 5, 8):
        rows.append((f"spec_q{draft}", f"16q{draft}s4k {llama}", f"{draft} tokens per sequence to verify"))
    for page, kv in product((32, 64, 128, 256, 528), ("same", "fp8")):
        word = "" if kv == "same" else " kv=fp8"
        name = f"page{page}{'_fp8' if word else ''}"
        rows.append((name, f"8q1s3000_q300s1500 {llama} p{page}{word}", f"pages of {page} slots, {kv} cache"))
    for dim in (32, 64, 80, 96, 112, 192, 256):
        rows.append((f"dim{dim}", f"4q1s1500_q200s700 h8/2 d{dim}", f"head_dim {dim}"))
    for ratio in (1, 3, 5, 6, 12, 16, 32):
        rows.append((f"ratio{ratio}", f"4q1s1500_q200s700 h{2 * ratio}/2 d128", f"GQA ratio {ratio}"))
    for dtype in ("fp16", "fp32"):
        rows.append((f"dtype_{dtype}", f"4q1s1500_q200s700 h8/2 d128 {dtype}", f"{dtype} throughout"))
    prefix = f"32q1s2500_q16s2500 {llama} prefix=2048"
    rows.append(("prefix_2048", prefix, "a prefix of 2,048 keys shared by 33 sequences"))
    rows.append(
        ("far_offsets", f"8q1s1000_q100s500 {llama} far_pages tokens=far", "every offset passes 2^31")
    )
    return [Workload(name, "nightly", parse_case(line), why) for name, line, why in rows]


@cache
def workloads() -> tuple[Workload, ...]:
    """The whole table, in order of tiers."""
    return (
        *_cases("small", _SMALL),
        *_cases("asm", _ASM),
        *_timed("pr", _PR),
        *_timed("peers", _PEERS),
        *_nightly(),
    )


def find_workloads(tier: str | None = None, expression: str | None = None) -> tuple[Workload, ...]:
    """The rows of a tier whose names match an expression as in `pytest -k`; a whole name matches itself alone.

    Raises UsageError when nothing matches.
    """
    if tier is not None and tier not in TIERS:
        raise UsageError(f"tier: required one of {', '.join(TIERS)}; found {tier!r}")
    rows = [row for row in workloads() if tier is None or row.tier == tier]
    exact = tuple(row for row in rows if row.name == expression)
    if exact:
        return exact  # a whole name means that workload, though it is part of other names
    found = tuple(row for row in rows if expression is None or matches(expression, row.name))
    if not found:
        names = ", ".join(row.name for row in rows[:6])
        raise UsageError(
            f"-k: required an expression that matches a workload ({names}, ...: `pagegate list`), "
            f"found {expression!r}"
        )
    return found
