"""Every error that Handrail raises, as one tree, and the error types that a model sees.

    HandrailError
    ├── UsageError            the caller asked for something that cannot be
    │   ├── SessionEnded      the session has ended
    │   └── ConfigError       a setting is unknown or has the wrong type
    ├── ServiceError          a service of the host could not be opened
    ├── JsonError             a text or object is not acceptable JSON
    ├── SchemaError           a JSON Schema cannot be used
    ├── DefinitionError       a tool's description is wrong; carries every problem
    ├── BuildError            the build could not read or write what it needs
    ├── RegistryError         an artifact cannot be loaded or used
    │   ├── ArtifactError     missing, truncated, edited, or of a newer format
    │   ├── HandlerChanged    a handler's bytes differ from those that were built
    │   └── NotLocked         a snapshot was asked for before `lock()`
    ├── StateError            a session state transition that cannot happen
    ├── CallLost              a call was sent to elsewhere, and its outcome is not known
    └── ToolError             raised by a handler: ends the call in a failure envelope

Each message is a sentence for the person who can mend it. What a *model* gets is an `ErrorType` and a message in an
envelope, never the text of an unexpected exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ErrorType(StrEnum):
    """How a call can fail, as told to the model. The table in the contract says who may answer with which."""

    NOT_FOUND = "NOT_FOUND"
    VALIDATION = "VALIDATION"
    SESSION_INACTIVE = "SESSION_INACTIVE"
    SESSION_ACTIVE = "SESSION_ACTIVE"
    MODE_RESTRICTED = "MODE_RESTRICTED"
    UNAVAILABLE = "UNAVAILABLE"
    AUTH = "AUTH"
    RATE_LIMIT = "RATE_LIMIT"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    LOOP_DETECTED = "LOOP_DETECTED"
    CONFIRMATION_REQUIRED = "CONFIRMATION_REQUIRED"
    DECLINED = "DECLINED"
    IN_PROGRESS = "IN_PROGRESS"
    CONFLICT = "CONFLICT"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    TRANSIENT = "TRANSIENT"
    PERMANENT = "PERMANENT"
    INTERNAL = "INTERNAL"


class HandrailError(Exception):
    """The root of the tree: catch this to catch everything that Handrail raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is rebuilt from its message alone, which those with more arguments cannot be.
        return (_restored, (type(self), self.args), self.__dict__)


def _restored(kind: type[HandrailError], args: tuple[Any, ...]) -> HandrailError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class UsageError(HandrailError):
    """The caller asked for something that cannot be: a wrong option, an unknown name, a path that is not there."""


class SessionEnded(UsageError):
    """The session has ended; what was asked for needs one that continues."""


class ConfigError(UsageError):
    """A setting is unknown, has the wrong type, or contradicts another one."""


class ServiceError(HandrailError):
    """A service of the host could not be opened, so the process did not start."""


class CallLost(HandrailError):
    """A call was sent to elsewhere, and what became of it is not known: its sentence says all that there is to say."""


def missing_extra(feature: str, extra: str) -> ConfigError:
    """The error for something whose packages are not installed: it names the extra and the command that installs it."""
    return ConfigError(f'{feature} needs the extra "{extra}"; run {install_command(f"handrail[{extra}]")}.')


def install_command(requirement: str) -> str:
    """How a package or an extra of Handrail is installed. From a copy of the repository, pip needs its path and no name."""
    return f'`pip install "{requirement}"` (from a copy as docs/install.md says)'


class JsonError(HandrailError):
    """A text or object is not acceptable JSON.

    `code` is a stable word (`invalid_json`, `duplicate_key`, `invalid_number`, `invalid_unicode`, `too_deep`,
    `args_too_large`), `pointer` the JSON pointer of the place where that is known. `is_json`: the text is JSON, and something
    else than an object, as which it was asked for.
    """

    def __init__(self, code: str, message: str, *, pointer: str = "", is_json: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.pointer = pointer
        self.is_json = is_json


class SchemaError(HandrailError):
    """A JSON Schema cannot be used; `pointer` is the place in it."""

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a description: which rule, where, what, and how to mend it."""

    rule: str
    pointer: str
    message: str
    fix: str


class DefinitionError(HandrailError):
    """A tool's description is wrong. `problems` has all of them, not only the first."""

    def __init__(self, subject: str, problems: Sequence[Problem]) -> None:
        self.subject = subject
        self.problems = tuple(problems)
        lines = [f"{p.pointer or '(root)'}: {p.message} {p.fix}".rstrip() for p in self.problems]
        super().__init__(f"{subject} is not a valid tool definition: " + "; ".join(lines))


class BuildError(HandrailError):
    """The build could not read its input or write its output. Problems *in* tools are findings, not exceptions."""


class RegistryError(HandrailError):
    """A registry cannot be loaded or used."""


class ArtifactError(RegistryError):
    """The artifact is missing, truncated, edited by hand, or of a newer format."""


class HandlerChanged(RegistryError):
    """A handler's bytes on disk differ from those that were built."""


class NotLocked(RegistryError):
    """A snapshot was asked for before the registry was locked."""


class StateError(HandrailError):
    """A session state transition that cannot happen."""


class ToolError(HandrailError):
    """Raised by a handler to end its call in a failure that the model learns of.

    The handler says itself whether a retry makes sense and whether something was changed before it failed.
    """

    def __init__(
        self,
        type: ErrorType | str,
        message: str,
        *,
        retryable: bool = False,
        partial_side_effects: bool = False,
        retry_after: float | None = None,
        suggestion: str | None = None,
        details: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.type = ErrorType(type)
        self.message = message
        self.retryable = retryable
        self.partial_side_effects = partial_side_effects
        self.retry_after = retry_after
        self.suggestion = suggestion
        self.details = tuple(details)
