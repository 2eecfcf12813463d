"""Policy is data, and data that cannot be is named in one sentence."""

import pytest

from handrail import Policy
from handrail.contract.errors import ConfigError


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"observe": 5}, "list of names"),
        ({"observe": "mode"}, "list of names"),
        ({"observe": [[1]]}, "list of names"),
        ({"observe": ["confirmation"]}, "cannot be set to observe"),
        ({"redact": 5}, "list of names"),
        ({"approver_wait_seconds": float("inf")}, "number of seconds"),
        ({"voice": {"wait_seconds": float("inf")}}, "not negative"),
        ({"voice": 3}, "must be a table"),
        ({"voice": {"retrieval_call": 3}}, 'did you mean "retrieval_calls"'),
        ({"identical_call": 3}, 'did you mean "identical_calls"'),
        ({"timeout_ms": 0}, "greater than 0"),
        ({"repair": "yes"}, "true or false"),
    ],
    ids=repr,
)
def test_a_policy_that_cannot_be_is_one_sentence(data, says):
    with pytest.raises(ConfigError, match=says):
        Policy.from_dict(data)


def test_a_policy_differs_only_in_what_is_named():
    policy = Policy.from_dict({"voice": {"total_calls": 0}, "observe": ["loop"]})
    assert policy.voice.total_calls is None
    assert policy.voice.retrieval_calls == Policy().voice.retrieval_calls
    assert policy.observe == frozenset({"loop"})
    assert policy.text == Policy().text
