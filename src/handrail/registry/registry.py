"""The registry: an artifact loaded into a process, its handlers verified, then locked.

`load` → `lock` → `snapshot`. In development `reload` puts a new generation beside the old one: snapshots that are out keep
theirs. Handlers are run by the pipeline and by nothing else.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any, Literal

from handrail.contract.definition import Mode
from handrail.contract.errors import ArtifactError, NotLocked, RegistryError
from handrail.registry.artifact import read_artifact
from handrail.registry.handlers import verified_code
from handrail.registry.snapshot import LoadedTool, Snapshot
from handrail.schema.validator import JSONSCHEMA_RS, SchemaCompiler

Environment = Literal["development", "production"]
ARTIFACT_NAME = "tool_registry.json"


class Registry:
    """Use `Registry.load`; the constructor is for generations that are already read."""

    def __init__(
        self, path: Path, generation: Snapshot, *, environment: Environment, validators: str, compiler: SchemaCompiler
    ) -> None:
        self._path = path
        self.generation = generation
        self._environment = environment
        self._validators = validators
        self._compiler = compiler
        self._locked = False

    @classmethod
    def load(
        cls,
        path: str | Path = ARTIFACT_NAME,
        *,
        validators: Literal["eager", "lazy"] = "lazy",
        environment: Environment | None = None,
        compiler: SchemaCompiler = JSONSCHEMA_RS,
    ) -> Registry:
        """Read the artifact, check its seal and every handler's hash.

        `validators="eager"` compiles every schema now instead of at a tool's first call. `environment` is
        `HANDRAIL_ENV` unless given.
        """
        where = Path(path).absolute()  # a process may change its folder before it reloads
        setting = environment or environment_from(os.environ.get("HANDRAIL_ENV"))  # noqa: TID251  # its documented default
        generation = _read(where, setting, validators, compiler)
        return cls(where, generation, environment=setting, validators=validators, compiler=compiler)

    def lock(self) -> None:
        """From now on nothing changes but by `reload` in development, and snapshots can be taken."""
        self._locked = True

    @property
    def locked(self) -> bool:
        return self._locked

    @property
    def environment(self) -> Environment:
        return self._environment

    def snapshot(self) -> Snapshot:
        """The view that a session is pinned to."""
        if not self._locked:
            raise NotLocked("The registry is not locked yet; call `registry.lock()` before `registry.snapshot()`.")
        return self.generation

    def reload(self) -> Snapshot:
        """Load a new generation beside the old one. In development only."""
        if self._environment == "production":
            raise RegistryError(
                "A registry is not reloaded in production; start the process again to take a new build in."
            )
        self.generation = _read(self._path, self._environment, self._validators, self._compiler)
        return self.generation

    @property
    def version(self) -> str:
        return self.generation.version

    @property
    def git_commit(self) -> str | None:
        return self.generation.git_commit

    @property
    def build_timestamp(self) -> str:
        return self.generation.build_timestamp

    def __len__(self) -> int:
        return len(self.generation)

    def provider_schemas(self, provider: str, mode: Mode | None = None) -> list[dict[str, Any]]:
        return self.generation.provider_schemas(provider, mode)

    def summaries(self, mode: Mode | None = None) -> dict[str, str]:
        return self.generation.summaries(mode)

    def documentation(self, tool_id: str) -> str:
        return self.generation.tool(tool_id).documentation

    def metadata(self, tool_id: str) -> dict[str, Any]:
        return self.generation.tool(tool_id).metadata()

    def entries(self) -> tuple[dict[str, Any], ...]:
        """The artifact's entries as they were read; for start-up checks that should not make every definition."""
        return self.generation.entries

    def by_category(self, category: str) -> list[str]:
        return [tool.tool_id for tool in self.generation if tool.category == category]


def environment_from(value: str | None) -> Environment:
    if value in (None, "", "development"):
        return "development"
    if value == "production":
        return "production"
    raise RegistryError(f'HANDRAIL_ENV is "{value}"; it must be "development" or "production".')


def _read(path: Path, environment: Environment, validators: str, compiler: SchemaCompiler) -> Snapshot:
    # Loading makes many objects and no garbage; collecting in between would make large catalogues cost more per tool.
    collecting = gc.isenabled()
    gc.disable()
    try:
        artifact = read_artifact(path)
        production = environment == "production"
        root = str(artifact.tools_root)
        tools = {
            entry["toolId"]: LoadedTool(entry, verified_code(entry, root, production=production), compiler)
            for entry in artifact.entries
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        # Sealed, and still not what a build writes.
        raise ArtifactError(f'"{path.name}" has a tool that cannot be read ({error}); run `handrail build`.') from None
    finally:
        if collecting:
            gc.enable()
    snapshot = Snapshot(artifact, tools)
    if validators == "eager":
        for tool in snapshot:
            _ = tool.validator, tool.output_validator
    return snapshot
