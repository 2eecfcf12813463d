"""Reads a Dockerfile, and executes a stage of it in a folder that stands for the root of the image."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

_ROOTED = re.compile(r"(?<![\w.:/-])/(?=(?:build|opt|srv|var/lib|run/secrets)\b)")


@dataclass
class Stage:
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, word: str) -> str:
        return [text for name, text in self.steps if name == word][-1]

    def environment(self) -> dict[str, str]:
        pairs = " ".join(text for name, text in self.steps if name == "ENV").split()
        return dict(pair.split("=", 1) for pair in pairs)


def stages(path: Path) -> list[Stage]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    found: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, text = line.partition(" ")
        if word == "FROM":
            found.append(Stage(text))
        elif word:
            found[-1].steps.append((word, text.strip()))
    return found


def below(root: Path, text: str) -> str:
    """The text with the folders of the image put below `root`."""
    return _ROOTED.sub(lambda _: f"{root}/", text)


def command(text: str) -> list[str]:
    """The words of CMD ["…"], also where HEALTHCHECK says it."""
    words: list[str] = json.loads(text[text.index("[") :])
    return words


def execute(stage: Stage, context: Path, root: Path, after: dict[str, object], **environment: str) -> list[str]:
    """COPY, WORKDIR, ARG and RUN in their order; after a RUN that contains a key of `after`, call its value. What was run."""
    here, given, ran = root, dict[str, str](), []
    for word, text in stage.steps:
        if word == "ARG":
            name, _, value = text.partition("=")
            given[name] = value
        elif word == "WORKDIR":
            here = Path(below(root, text))
            here.mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            *sources, target = below(root, text).split()
            for source in sources:
                _copy(context / source, here / target, into=len(sources) > 1 or target.endswith("/"))
        elif word == "RUN":
            done = subprocess.run(
                ["sh", "-c", below(root, text)],
                cwd=here,
                env={**os.environ, **given, **environment},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            ran.append(text)
            for sign, work in after.items():
                if sign in text:
                    work()  # type: ignore[operator]
    return ran


def _copy(source: Path, target: Path, *, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target / source.name if into or target.is_dir() else target)
