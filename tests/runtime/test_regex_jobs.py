"""The names that a regex matches are those that RE2 matches one by one."""

import pytest
import re2
from hypothesis import assume, given
from hypothesis import strategies as st

from coordinator.runtime.regex_jobs import match_names

NAMES = ["", "a", "ab", "A", "a.b", "a)", "a\n", "a\nb", "ab\\E", "é", "topic-1", "topic-22"]
PIECES = [
    "a",
    "b",
    ".",
    "|",
    "*",
    "+",
    "(",
    ")",
    "^",
    "$",
    "(?i)",
    "(?m)",
    r"\z",
    r"\Q",
    r"\E",
    "é",
]


def one_by_one(regex, names):
    pattern = re2.compile(regex)
    return [name for name in names if pattern.fullmatch(name)]


@pytest.mark.parametrize(
    "regex", ["", "a|ab", "ab|a", "(?i)A.*", "^a", "a$", "(?m)^a$", "(?s).*", r"\Qa.b", r"\Qa\E.*",
              r"topic-[0-9]+", r"(?P<n>a)b?", r"a\z", "é", r"[^a]", "a{0,900}"],
)  # fmt: skip
def test_names_are_matched_as_a_whole(regex):
    assert match_names(regex, NAMES) == one_by_one(regex, NAMES)


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_any_regex_matches_what_it_matches_one_by_one(regex):
    assume(_is_taken(regex))
    assert match_names(regex, NAMES) == one_by_one(regex, NAMES)


def _is_taken(regex):
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(regex, options)
    except re2.error:
        return False
    return True
