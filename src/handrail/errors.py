"""The errors that authors of tools, services, models and commands raise and catch. Each message is a sentence for a person."""

from handrail.contract.errors import (
    ConfigError,
    ErrorType,
    HandrailError,
    ServiceError,
    ToolError,
    UsageError,
    missing_extra,
)

__all__ = ["ConfigError", "ErrorType", "HandrailError", "ServiceError", "ToolError", "UsageError", "missing_extra"]
