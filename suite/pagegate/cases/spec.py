"""What a problem is: `AttentionSpec` and `Case`. Standard library only."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, field, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

from pagegate.errors import UsageError

FORMAT_VERSION = 1
DTYPES = ("bf16", "fp16", "fp32")
KV_DTYPES = ("same", "fp8")
LAYOUTS = ("nhd", "hnd", "interleaved", "mixed")
TOKEN_LAYOUTS = ("packed", "fused", "transposed", "far")
PROFILES = ("randn", "needle", "forbidden", "extreme")
DEAD_FILLS = ("nan", "inf", "large")


class SpecError(UsageError, ValueError):
    """A spec or a case that cannot be."""


@dataclass(frozen=True)
class AttentionSpec:
    """One paged-attention problem: lengths, heads, dims, dtypes, features, placement in memory.

    query_lens, seq_lens: new tokens and all keys (the new ones included) of each sequence.
    kv_dtype: "same" as dtype, or "fp8" (the e4m3 variant of the device) with per-tensor scales.
    sliding_window: visible keys including oneself; None = off. logits_soft_cap: None = off. softmax_scale:
    None = 1 / sqrt(head_dim).
    layout: of the caches: [page, slot, head, dim] ("nhd"), [page, head, slot, dim] ("hnd"), K and V
    interleaved in one buffer, or "mixed": K as nhd, V as hnd. token_layout: of queries and output:
    "packed", "fused" (queries a slice of a wider row, as after a fused QKV projection; the output's rows
    and heads apart by other gaps), "transposed" (queries [head, token, dim]; output packed) or "far"
    (offsets past 2^31 elements).
    shared_prefix: leading keys that all sequences share, in the same physical pages.
    table_slack: columns of the block table beyond the longest sequence. pad_tokens: rows after the last
    query. far_pages: the cache's page stride is so large that offsets pass 2^31 elements.

    Every field after head_dim has a neutral default; digests cover only those that differ from it. The
    metadata "word" is the field's short name in the notation.
    """

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int = 16
    dtype: str = "bf16"
    kv_dtype: str = field(default="same", metadata={"word": "kv"})
    causal: bool = True
    softmax_scale: float | None = field(default=None, metadata={"word": "scale"})
    sliding_window: int | None = field(default=None, metadata={"word": "window"})
    logits_soft_cap: float | None = field(default=None, metadata={"word": "softcap"})
    alibi: bool = False
    sinks: bool = False
    layout: str = "nhd"
    token_layout: str = field(default="packed", metadata={"word": "tokens"})
    far_pages: bool = False
    shared_prefix: int = field(default=0, metadata={"word": "prefix"})
    table_slack: int = field(default=0, metadata={"word": "slack"})
    pad_tokens: int = field(default=0, metadata={"word": "pad"})

    def __post_init__(self) -> None:
        _refuse_wrong_types(self)
        for name, required, holds in _requirements(self):
            if not holds:
                raise SpecError(f"{name}: required {required}, found {getattr(self, name)!r}")

    @property
    def num_seqs(self) -> int:
        return len(self.query_lens)

    @property
    def num_tokens(self) -> int:
        """Query tokens, padding excluded."""
        return sum(self.query_lens)

    @property
    def max_query_len(self) -> int:
        return max(self.query_lens, default=0)

    @property
    def max_seq_len(self) -> int:
        return max(self.seq_lens, default=0)

    @property
    def gqa_ratio(self) -> int:
        return self.num_query_heads // self.num_kv_heads

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5 if self.softmax_scale is None else self.softmax_scale

    @property
    def is_far(self) -> bool:
        """Whether tensors span gigabytes of address space."""
        return self.far_pages or self.token_layout == "far"

    def locate(self, row: int) -> tuple[int, int]:
        """The sequence, and the query in it, of a row of the batch."""
        starts = [0, *accumulate(self.query_lens)]
        sequence = bisect_right(starts, row) - 1
        return sequence, row - starts[sequence]

    def visible(self, seq: int, query: int) -> range:
        """The keys that a query of a sequence sees, before features that hide single keys."""
        position = self.seq_lens[seq] - self.query_lens[seq] + query
        end = min(position + 1, self.seq_lens[seq]) if self.causal else self.seq_lens[seq]
        begin = 0 if self.sliding_window is None else max(0, position - self.sliding_window + 1)
        return range(begin, max(begin, end))

    def reachable(self, seq: int) -> range:
        """The keys of a sequence that some query sees; nothing else of it may be read."""
        if self.query_lens[seq] == 0:
            return range(0)
        # frontier and window move on with each query; the first at a position from 0 may be a later one
        first_at_zero = min(max(0, self.query_lens[seq] - self.seq_lens[seq]), self.query_lens[seq] - 1)
        queries = (0, first_at_zero, self.query_lens[seq] - 1)
        ranges = [r for r in (self.visible(seq, query) for query in queries) if r]
        return range(min(r.start for r in ranges), max(r.stop for r in ranges)) if ranges else range(0)

    @property
    def kv_bytes(self) -> int:
        """Bytes of all keys and values."""
        element = 1 if self.kv_dtype == "fp8" else 4 if self.dtype == "fp32" else 2
        return 2 * sum(self.seq_lens) * self.num_kv_heads * self.head_dim * element

    def non_defaults(self) -> dict[str, Any]:
        """The fields that say something, in declaration order."""
        values = asdict(self)
        return {f.name: _plain(values[f.name]) for f in fields(self) if values[f.name] != f.default}

    def digest(self) -> str:
        """Twelve hex digits that change exactly when the problem does."""
        text = json.dumps(self.non_defaults(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _finite_positive(value: float | None) -> bool:
    return value is None or 0 < value < float("inf")


def _refuse_wrong_types(values: Any) -> None:
    """Field by field, by the annotation. Raises SpecError."""
    kinds: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (float, int),
        "str": (str,),
        "bool": (bool,),
    }
    for f in fields(values):
        value, annotation = getattr(values, f.name), str(f.type)
        if annotation == "tuple[int, ...]":
            right = isinstance(value, tuple) and all(type(n) is int for n in value)
        elif annotation not in kinds and annotation.split(" ")[0] not in kinds:
            continue
        else:
            wanted = kinds[annotation.split(" ")[0]]
            right = type(value) in wanted or (value is None and "None" in annotation)
        if not right:
            raise SpecError(f"{f.name}: required {annotation}, found {value!r}")


def _requirements(s: AttentionSpec) -> list[tuple[str, str, bool]]:
    heads = s.num_kv_heads >= 1 and s.num_query_heads >= 1
    divides = heads and s.num_query_heads % s.num_kv_heads == 0
    shortest = min(s.seq_lens, default=0)
    return [
        *((name, "lengths from 0 to 2^31 - 1", all(0 <= n < 1 << 31 for n in getattr(s, name)))
          for name in ("query_lens", "seq_lens")),
        ("seq_lens", f"one per query length ({len(s.query_lens)})", len(s.seq_lens) == len(s.query_lens)),
        ("num_kv_heads", "at least 1, and as many query heads", heads),
        ("num_query_heads", f"a multiple of {s.num_kv_heads} KV heads", divides),
        ("head_dim", "1 to 256", 1 <= s.head_dim <= 256),
        ("page_size", "a multiple of 8 of at least 8", s.page_size >= 8 and s.page_size % 8 == 0),
        ("dtype", f"one of {', '.join(DTYPES)}", s.dtype in DTYPES),
        ("kv_dtype", f"one of {', '.join(KV_DTYPES)}", s.kv_dtype in KV_DTYPES),
        ("softmax_scale", "a finite number above 0, or None", _finite_positive(s.softmax_scale)),
        ("sliding_window", "at least 1, or None", s.sliding_window is None or s.sliding_window >= 1),
        ("logits_soft_cap", "a finite number above 0, or None", _finite_positive(s.logits_soft_cap)),
        ("layout", f"one of {', '.join(LAYOUTS)}", s.layout in LAYOUTS),
        ("token_layout", f"one of {', '.join(TOKEN_LAYOUTS)}", s.token_layout in TOKEN_LAYOUTS),
        ("shared_prefix", "at most the shortest sequence", 0 <= s.shared_prefix <= shortest),
        ("table_slack", "0 or more", s.table_slack >= 0),
        ("pad_tokens", "0 or more", s.pad_tokens >= 0),
    ]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A spec, a data profile, what lies in dead slots, and a seed: the tensors, on any machine."""

    spec: AttentionSpec
    profile: str = "randn"
    dead: str = "nan"
    seed: int = 0

    def __post_init__(self) -> None:
        _refuse_wrong_types(self)
        for name, choices in (("profile", PROFILES), ("dead", DEAD_FILLS)):
            if getattr(self, name) not in choices:
                raise SpecError(
                    f"{name}: required one of {', '.join(choices)}, found {getattr(self, name)!r}"
                )

    def stream(self) -> int:
        """A 63-bit number that seeds the case's data."""
        text = f"{self.spec.digest()} {self.profile} {self.seed}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "spec": self.spec.non_defaults(),
            "profile": self.profile,
            "dead": self.dead,
            "seed": self.seed,
        }

    @staticmethod
    def from_json(data: Any, where: str = "case") -> Case:
        """Raises SpecError for anything that is not a case of this format version."""
        if not isinstance(data, dict) or "format" not in data:
            raise SpecError(
                f"{where}: required a JSON object with format, spec, profile, dead and seed, found no format"
            )
        if data["format"] != FORMAT_VERSION:
            newer = isinstance(data["format"], int) and data["format"] > FORMAT_VERSION
            advice = "update pagegate" if newer else "write the case again"
            raise SpecError(
                f"{where}: required case format {FORMAT_VERSION}, found {data['format']!r}; {advice}"
            )
        known = {"format", "spec", "profile", "dead", "seed"}
        _refuse_unknown(where, data, known)
        if not isinstance(data.get("spec"), dict):
            raise SpecError(f"{where}: required an object under spec, found {data.get('spec')!r}")
        _refuse_unknown(f"{where}: spec", data["spec"], {f.name for f in fields(AttentionSpec)})
        said: dict[str, Any] = data["spec"]
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in said.items()}
        try:
            spec = AttentionSpec(**values)  # type: ignore[arg-type]
            return Case(spec, **{k: data[k] for k in ("profile", "dead", "seed") if k in data})
        except TypeError as error:
            raise SpecError(f"{where}: required the fields of a spec, found otherwise: {error}") from error
        except SpecError as error:
            raise SpecError(f"{where}: {error}") from error


def _refuse_unknown(where: str, data: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(data) - known)
    if unknown:
        raise SpecError(
            f"{where}: required fields among {', '.join(sorted(known))}; found {', '.join(unknown)}"
        )


def load_case(path: Path) -> Case:
    """The case in a JSON file, alone or under "case" in a saved failure. Raises SpecError."""
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise SpecError(f"{path}: required a readable case file, found {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: required JSON, found text that is not ({error})") from error
    if isinstance(data, dict) and "case" in data:
        data = data["case"]
    return Case.from_json(data, str(path))
