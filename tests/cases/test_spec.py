"""Specs, cases and their notation: round trips, digests, refusals."""

import json
import re
from dataclasses import dataclass, fields, replace
from itertools import product

import pytest
from hypothesis import given, settings

from pagegate.cases.notation import format_case, format_spec, parse_batch, parse_case, parse_spec
from pagegate.cases.spec import AttentionSpec, Case, SpecError, load_case
from pagegate.cases.strategies import SMALL, cases, specs

SPEC = parse_spec("2q2k_32q1s1k h32/8 d128")
GOOD = json.dumps(parse_case("q1s9 h1/1 d32").to_json())


def test_digest_covers_what_is_said_and_nothing_else():
    assert SPEC.digest() == "589787692592"
    assert parse_spec("q1s40 h2/1 d32 kv=fp8 window=128 sinks").digest() == "7e8cfa55d5db"
    assert SPEC.non_defaults().keys() == {
        "query_lens", "seq_lens", "num_query_heads", "num_kv_heads", "head_dim"
    }  # fmt: skip
    assert replace(SPEC, sinks=True).digest() != SPEC.digest()
    assert replace(SPEC, sinks=True, page_size=16).digest() == replace(SPEC, sinks=True).digest()


def test_a_new_neutral_field_changes_no_old_digest():
    @dataclass(frozen=True)
    class Newer(AttentionSpec):
        mask_every: int = 0

    said = {f.name: getattr(SPEC, f.name) for f in fields(SPEC)}
    assert Newer(**said).digest() == SPEC.digest()
    assert Newer(**said, mask_every=2).digest() != SPEC.digest()


def test_every_field_after_the_shape_has_a_neutral_default():
    shape = {"query_lens", "seq_lens", "num_query_heads", "num_kv_heads", "head_dim"}
    for f in fields(AttentionSpec):
        assert (f.name in shape) == (f.default is f.default_factory), f.name


@settings(max_examples=60, deadline=None)
@given(cases(SMALL))
def test_cases_survive_json_and_notation(case):
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case
    assert parse_case(format_case(case)) == case
    assert parse_spec(format_spec(case.spec)) == case.spec


@settings(max_examples=60, deadline=None)
@given(specs(SMALL))
def test_reachable_is_the_hull_of_what_queries_see(spec):
    for seq, query_len in enumerate(spec.query_lens):
        seen = [set(spec.visible(seq, query)) for query in range(query_len)]
        keys = set().union(*seen) if seen else set()
        reachable = spec.reachable(seq)
        assert keys <= set(reachable)
        if keys:
            assert (reachable.start, reachable.stop - 1) == (min(keys), max(keys))
        else:
            assert not reachable


def test_visible_and_reachable_against_all_pairs():
    """Every small sequence, window and mask, key by key."""
    for query_len, seq_len, window, causal in product(
        range(7), range(7), (None, *range(1, 8)), (True, False)
    ):
        spec = AttentionSpec(
            (query_len,), (seq_len,), 1, 1, 32, sliding_window=window, causal=causal
        )  # fmt: skip
        reached = set()
        for query in range(query_len):
            position = seq_len - query_len + query
            seen = [
                key
                for key in range(seq_len)
                if (not causal or key <= position) and (window is None or position - key < window)
            ]
            assert list(spec.visible(0, query)) == seen, (spec, query)
            reached.update(seen)
        hull = range(min(reached), max(reached) + 1) if reached else range(0)
        assert spec.reachable(0) == hull, spec


def test_rows_are_located_in_sequences():
    spec = parse_spec("q2_q0s4_q3 h1/1 d32")
    assert [spec.locate(row) for row in range(5)] == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]


def test_visible_by_the_definition():
    spec = parse_spec("q3s5 h1/1 d32 window=2")
    assert [list(spec.visible(0, query)) for query in range(3)] == [[1, 2], [2, 3], [3, 4]]
    spec = parse_spec("q3s5 h1/1 d32 noncausal window=2")
    assert [list(spec.visible(0, query)) for query in range(3)] == [[1, 2, 3, 4], [2, 3, 4], [3, 4]]
    spec = parse_spec("q3s1 h1/1 d32")
    assert [list(spec.visible(0, query)) for query in range(3)] == [[], [], [0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q1s16", "heads"),
        ("z3 h1/1 d32", "'z3'"),
        ("q1 h1/1 d32 windows=3", "'windows=3'"),
        ("q1 h1/1 d32 window=x", "a number"),
        ("q1 h1/1 d32 sinks=1", "'sinks=1'"),
        ("q1 h3/2 d32", "a multiple of 2"),
        ("q1 h1/1 d300", "1 to 256"),
        ("q1 h1/1 d32 p12", "a multiple of 8"),
        ("q1 h1/1 d32 kv=int4", "one of same, fp8"),
        ("q1 h1/1 d32 window=0", "at least 1"),
        ("q1 h1/1 d32 prefix=2", "at most the shortest"),
        ("q1 h1/1 d32 profile=odd", "one of randn"),
        ("q1 h1/1 d32 dead=zero", "one of nan, inf, large"),
        ("q1 h1/1 d32 seed=x", "a number after '='"),
        ("q1 h1/1 d32 seed=", "found 'seed='"),
        ("q1 h1/1 d32 far_pages=1", "found 'far_pages=1'"),
        ("q1 h1/1 d32 fp16 bf16", "each word once"),
        ("q1 h1/1 d32 window=3 window=3", "each word once"),
        ("q1 h0/0 d32", "num_kv_heads: required at least 1"),
        ("q1 h1/1 d32 scale=0", "a finite number above 0"),
        ("q1 h1/1 d32 softcap=inf", "a finite number above 0"),
        ("q1 h1/1 d32 layout=ndh", "one of nhd"),
        ("q1 h1/1 d32 tokens=loose", "one of packed"),
        ("q1 h1/1 d32 slack=-1", "0 or more"),
        ("q1 h1/1 d32 pad=-1", "0 or more"),
        ("q1s4000000000 h1/1 d32", "seq_lens: required lengths from 0"),
        ("99999999999q1 h1/1 d32", "at most 65536 sequences"),
        ("q1__q2 h1/1 d32", "found ''"),
        ("", "groups"),
    ],
)
def test_notation_says_what_was_required(text, words):
    with pytest.raises(SpecError, match="required") as error:
        parse_case(text)
    assert words in str(error.value)
    assert "found" in str(error.value)


def test_batches():
    assert parse_batch("2q2k_q1s1k_q3") == ((2048, 2048, 1, 3), (2048, 2048, 1024, 3))
    assert parse_batch("empty") == ((), ())
    # 1,000 is no 1k
    assert format_spec(parse_spec("q1000_q1024_q0s1k h1/1 d32")).split()[0] == "q1000_q1k_q0s1k"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "JSON"),
        ("[]", "no format"),
        ('{"format": 2, "spec": {}}', "update pagegate"),
        ('{"format": "x", "spec": {}}', "found 'x'"),
        ('{"format": 1, "spec": {}, "extra": 1}', "extra"),
        ('{"format": 1, "spec": {"widnow": 3}}', "widnow"),
        ('{"format": 1, "spec": 3}', "an object under spec"),
        ('{"case": 3}', "no format"),
        ("[" * 100_000, "JSON"),
        (GOOD.replace('"seed": 0', '"seed": "0"'), "seed: required int, found '0'"),
        (GOOD.replace('"randn"', '["randn"]'), "profile: required str"),
        (GOOD.replace('"nan"', '"zero"'), "dead: required one of nan, inf, large, found 'zero'"),
        (GOOD.replace('"format": 1', '"format": 0'), "write the case again"),
        (GOOD.replace("[9]", "[-9]"), "seq_lens: required lengths from 0"),
        (GOOD.replace("[9]", "[9, 9]"), "seq_lens: required one per query length (1)"),
        (GOOD.replace("[9]", "[true]"), "seq_lens: required tuple[int, ...]"),
        (GOOD.replace("[9]", "9"), "seq_lens: required tuple[int, ...], found 9"),
        ('{"format": 1, "spec": {"head_dim": 32}}', "required"),
        (
            '{"format": 1, "spec": {"query_lens": [1], "seq_lens": [1], "num_query_heads": 1, '
            '"num_kv_heads": 1, "head_dim": 32.5}}',
            "head_dim: required int, found 32.5",
        ),
        (
            '{"format": 1, "spec": {"query_lens": [1], "seq_lens": [1], "num_query_heads": "a", '
            '"num_kv_heads": 1, "head_dim": 32}}',
            "required",
        ),
    ],
)
def test_case_files_that_are_none(tmp_path, text, words):
    path = tmp_path / "case.json"
    path.write_text(text)
    with pytest.raises(SpecError, match="required") as error:
        load_case(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe{")
    for name, words in (("none.json", "readable"), (".", "readable"), ("binary.json", "JSON")):
        with pytest.raises(SpecError, match=words) as error:
            load_case(tmp_path / name)
        assert re.search(re.escape(str(tmp_path)), str(error.value))


def test_a_case_alone_and_inside_a_saved_failure(tmp_path):
    for number, text in enumerate((GOOD, f'{{"case": {GOOD}, "status": "RAISED"}}')):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        assert load_case(path) == parse_case("q1s9 h1/1 d32")


def test_streams_differ_by_seed_and_profile():
    case = Case(SPEC)
    assert Case(parse_spec("q1 h1/1 d32")).stream() == 7045973089766464368
    assert len({case.stream(), replace(case, seed=1).stream(), replace(case, profile="needle").stream()}) == 3
    # what lies in dead slots must not change the data
    assert replace(case, dead="inf").stream() == case.stream()
