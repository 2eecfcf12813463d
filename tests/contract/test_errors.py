"""The errors: one tree, each with a sentence, and whole again after a pickle."""

import copy
import inspect
import pickle

import pytest

from handrail.contract import errors
from handrail.contract.errors import (
    DefinitionError,
    ErrorType,
    HandrailError,
    JsonError,
    Problem,
    SchemaError,
    ToolError,
    UsageError,
    missing_extra,
)

PROBLEM = Problem(rule="field-value", pointer="/version", message='"version" must be text.', fix="Write 1.0.0.")
EXAMPLES = [
    HandrailError("Something failed."),
    UsageError("There is no such thing."),
    JsonError("duplicate_key", "A key is there twice.", pointer="/a"),
    SchemaError("That is no type.", pointer="/type"),
    DefinitionError('Tool "x"', [PROBLEM]),
    ToolError(ErrorType.TRANSIENT, "Busy.", retryable=True, retry_after=2.5, details=[{"pointer": "/a"}]),
]


def every_error():
    return [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]


def test_there_are_twenty_error_types_and_each_is_its_own_name():
    assert len(ErrorType) == 20
    assert all(kind.name == kind.value for kind in ErrorType)


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_is_in_the_tree_and_in_its_drawing(kind: type[Exception]):
    assert issubclass(kind, HandrailError)
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("copied", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickle", "copy"])
def test_an_error_is_whole_again_after_it_was_copied(error: HandrailError, copied):
    again = copied(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_definition_error_names_every_problem_with_its_place_and_its_fix():
    missing = Problem(rule="required-field", pointer="", message='"toolId" is missing.', fix="Add it.")
    error = DefinitionError('Tool "x"', [PROBLEM, missing])
    assert error.problems == (PROBLEM, missing)
    assert str(error) == (
        'Tool "x" is not a valid tool definition: '
        '/version: "version" must be text. Write 1.0.0.; (root): "toolId" is missing. Add it.'
    )


def test_a_tool_error_takes_the_type_as_a_word_and_refuses_others():
    assert ToolError("NOT_FOUND", "No such order.").type is ErrorType.NOT_FOUND
    with pytest.raises(ValueError, match="OOPS"):
        ToolError("OOPS", "No such type.")


@pytest.mark.parametrize("extra", ["reference", "embeddings", "server"])
def test_every_extra_names_the_page_for_who_has_a_copy(extra: str) -> None:
    sentence = str(missing_extra("It", extra))
    assert f'run `pip install "handrail[{extra}]"` (from a copy as docs/install.md says)' in sentence
