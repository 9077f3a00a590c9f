"""One readable line for a spec or a case, both ways.

A batch is groups joined by "_": `2q2k_32q1s1k` is two prefills of 2,048 and 32 decodes at 1,024 keys
(count, q and query length, s and all keys; without s, as many keys as queries). After it come words:
`h32/8 d128 p16 bf16`, and those that differ from the defaults, such as `window=128` or `sinks`.
Batches in this manner are known from vLLM's attention benchmarks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from itertools import groupby
from typing import Any

from .spec import DTYPES, AttentionSpec, Case, SpecError

_MOST_SEQUENCES = 1 << 16
_GROUP = re.compile(r"(\d+)?q(\d+)(k?)(?:s(\d+)(k?))?")
_SPECIAL = {"page_size", "dtype", "causal"}
_OPTIONS = {
    f.metadata.get("word", f.name): f
    for f in fields(AttentionSpec)
    if f.default is not MISSING and f.name not in _SPECIAL
}
_CASE_VALUES: dict[str, Callable[[str], Any]] = {"profile": str, "dead": str, "seed": int}


def format_batch(query_lens: tuple[int, ...], seq_lens: tuple[int, ...]) -> str:
    """The groups of a batch, equal neighbours counted."""
    groups = []
    for (query_len, seq_len), members in groupby(zip(query_lens, seq_lens, strict=True)):
        count = len(list(members))
        text = f"{count if count > 1 else ''}q{_short(query_len)}"
        groups.append(text if seq_len == query_len else f"{text}s{_short(seq_len)}")
    return "_".join(groups) or "empty"


def parse_batch(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The query and sequence lengths of a batch. Raises SpecError."""
    query_lens: list[int] = []
    seq_lens: list[int] = []
    for group in text.split("_") if text != "empty" else []:
        match = _GROUP.fullmatch(group)
        if match is None:
            raise SpecError(
                f"batch: required groups such as 32q1s1k or q2k joined by '_', found {group!r} in {text!r}"
            )
        count, query, query_k, seq, seq_k = match.groups()
        query_len = int(query) * (1024 if query_k else 1)
        seq_len = query_len if seq is None else int(seq) * (1024 if seq_k else 1)
        if len(query_lens) + int(count or 1) > _MOST_SEQUENCES:
            raise SpecError(f"batch: required at most {_MOST_SEQUENCES} sequences, found more in {text!r}")
        query_lens += [query_len] * int(count or 1)
        seq_lens += [seq_len] * int(count or 1)
    return tuple(query_lens), tuple(seq_lens)


def format_spec(spec: AttentionSpec) -> str:
    """One line from which `parse_spec` makes the spec again."""
    words = [
        format_batch(spec.query_lens, spec.seq_lens),
        f"h{spec.num_query_heads}/{spec.num_kv_heads}",
        f"d{spec.head_dim}",
        f"p{spec.page_size}",
        spec.dtype,
    ]
    said = spec.non_defaults()
    if not spec.causal:
        words.append("noncausal")
    for word, option in _OPTIONS.items():
        if option.name in said:
            words.append(word if option.type == "bool" else f"{word}={said[option.name]}")
    return " ".join(words)


def parse_spec(text: str) -> AttentionSpec:
    """The spec of a line in this notation. Raises SpecError."""
    case = parse_case(text)
    return case.spec


def format_case(case: Case) -> str:
    return f"{format_spec(case.spec)} profile={case.profile} dead={case.dead} seed={case.seed}"


def parse_case(text: str) -> Case:
    """The case of a line in this notation; profile, dead and seed may be left out. Raises SpecError."""
    batch, *words = text.split() or [""]
    query_lens, seq_lens = parse_batch(batch)
    values: dict[str, Any] = {"query_lens": query_lens, "seq_lens": seq_lens}
    of_case: dict[str, Any] = {}
    for word in words:
        before = len(values) + len(of_case)
        key, _, value = word.partition("=")
        if match := re.fullmatch(r"h(\d+)/(\d+)", word):
            values["num_query_heads"], values["num_kv_heads"] = map(int, match.groups())
        elif match := re.fullmatch(r"([dp])(\d+)", word):
            values["head_dim" if match[1] == "d" else "page_size"] = int(match[2])
        elif word in DTYPES:
            values["dtype"] = word
        elif word == "noncausal":
            values["causal"] = False
        elif key in _OPTIONS and bool(value) != (_OPTIONS[key].type == "bool"):
            values[_OPTIONS[key].name] = _converted(word, _converter(_OPTIONS[key]), value)
        elif key in _CASE_VALUES and value:
            of_case[key] = _converted(word, _CASE_VALUES[key], value)
        else:
            options = (k if f.type == "bool" else f"{k}=" for k, f in _OPTIONS.items())
            known = ["noncausal", *options, *(f"{k}=" for k in _CASE_VALUES)]
            raise SpecError(
                f"spec: required words such as h32/8 d128 p16 bf16 or {' '.join(known)}; found {word!r}"
            )
        if len(values) + len(of_case) == before:
            raise SpecError(f"spec: required each word once, found {word!r} and another of its kind")
    missing = [w for w, n in (("h32/8", "num_query_heads"), ("d128", "head_dim")) if n not in values]
    if missing:
        raise SpecError(f"spec: required a batch, heads (h32/8) and a dimension (d128), found {text!r}")
    return Case(AttentionSpec(**values), **of_case)


def _converted(word: str, convert: Callable[[str], Any], value: str) -> Any:
    try:
        return convert(value)
    except ValueError:
        raise SpecError(f"spec: required a number after '=', found {word!r}") from None


def _short(length: int) -> str:
    return f"{length // 1024}k" if length and length % 1024 == 0 else str(length)


def _converter(option: Field[Any]) -> Callable[[str], Any]:
    annotation = str(option.type)
    if annotation == "bool":
        return lambda _: True
    return float if "float" in annotation else int if "int" in annotation else str
