"""Specs, cases and their notation: round trips, digests, refusals."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings

from pagegate.cases.notation import format_case, format_spec, parse_batch, parse_case, parse_spec
from pagegate.cases.spec import AttentionSpec, Case, SpecError, load_case
from pagegate.cases.strategies import SMALL, cases, specs

SPEC = parse_spec("2q2k_32q1s1k h32/8 d128")


def test_digest_covers_what_is_said_and_nothing_else():
    assert SPEC.digest() == "589787692592"
    assert SPEC.non_defaults().keys() == {
        "query_lens", "seq_lens", "num_query_heads", "num_kv_heads", "head_dim"
    }  # fmt: skip
    assert replace(SPEC, sinks=True).digest() != SPEC.digest()
    assert replace(SPEC, sinks=True, page_size=16).digest() == replace(SPEC, sinks=True).digest()


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


def test_a_missing_file(tmp_path):
    with pytest.raises(SpecError, match="readable"):
        load_case(tmp_path / "none.json")


def test_streams_differ_by_seed_and_profile():
    case = Case(SPEC)
    assert len({case.stream(), replace(case, seed=1).stream(), replace(case, profile="needle").stream()}) == 3
    # what lies in dead slots must not change the data
    assert replace(case, dead="inf").stream() == case.stream()
