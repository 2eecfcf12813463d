"""The image: no Docker is needed to see that its build steps work in a clean folder, that its command starts a server on
PostgreSQL, that its health check tells whether that is ready, and that it writes only where it says."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
from scripts.install_table import OURS, installed_with
from tests.deploy.dockerfile import below, command, execute, stages
from tests.install.environments import _copy

ROOT = Path(__file__).parents[2]
BUILD, FINAL = stages(ROOT / "Dockerfile")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
"""With a `python`, as in the image: Debian has only `python3`."""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The folder in which the first stage was executed, with what pip would have fetched put into its environment."""
    root = tmp_path_factory.mktemp("image")

    def fetched():
        [packages] = (root / "opt/handrail").glob("lib/python*/site-packages")
        extras = next(text.split("=")[1] for word, text in BUILD.steps if word == "ARG").split(",")
        for name, distribution in installed_with("handrail", *extras).items():
            if name not in OURS:
                _copy(distribution, packages)

    ran = execute(
        BUILD,
        ROOT,
        root,
        {"-m venv": fetched},
        PATH=PATH,
        PIP_NO_INDEX="1",
        PIP_NO_BUILD_ISOLATION="0",  # that is how pip is told not to isolate
        PIP_FIND_LINKS=_index_with_others(root / "index").as_uri(),
    )
    assert len(ran) == 6
    return root


def _index_with_others(folder):
    """What anybody may put on a package index: packages with our names and a higher version."""
    folder.mkdir()
    for name in OURS:
        stem = f"{name.replace('-', '_')}-99.0"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 99.0\n")
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return folder


def test_ours_are_installed_whatever_the_index_has_and_the_rest_is_what_is_locked(image, tmp_path):
    assert list((image / "opt/handrail").glob("lib/python*/site-packages/handrail*-99.0.dist-info")) == []
    lock = (ROOT / "requirements.lock").read_text()
    known = lock.split("--hash=sha256:")[1].split()[0]
    [check] = [text for word, text in BUILD.steps if word == "RUN" and "report.json" in text and "python -c" in text]
    (tmp_path / "requirements.lock").write_text(lock)
    for found, accepted in ((known, True), ("0" * 64, False)):
        file = {"url": "https://index.example.com/one.whl", "archive_info": {"hashes": {"sha256": found}}}
        (tmp_path / "report.json").write_text(json.dumps({"install": [{"download_info": file}]}))
        checked = subprocess.run(
            ["sh", "-c", check], cwd=tmp_path, env={"PATH": PATH}, capture_output=True, text=True, check=False
        )
        assert (checked.returncode == 0) is accepted, checked.stderr
        assert ("https://index.example.com/one.whl" in checked.stderr) is not accepted


def files_of(root):
    return {path.relative_to(root) for path in root.rglob("*")}


def test_the_image_starts_as_it_says_and_writes_only_its_state(image, postgres):
    key = image / "run/secrets/handrail-key"
    key.parent.mkdir(parents=True)
    key.write_text(secrets.token_urlsafe(32))
    (image / "var/lib/handrail").mkdir(parents=True)
    before = files_of(image)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told = {name: below(image, value) for name, value in FINAL.environment().items()}
    environment = {
        **told,
        "PATH": below(image, FINAL.environment()["PATH"]),
        "HANDRAIL_STORE_URL": postgres.new_database(empty=True),
        "HANDRAIL_SERVER_PORT": str(port),
        "HANDRAIL_SERVER_HOSTS": "localhost",
    }
    start = [below(image, word) for word in command(FINAL.last("CMD"))]
    health = command(FINAL.last("HEALTHCHECK"))
    here = below(image, FINAL.last("WORKDIR"))
    with subprocess.Popen(start, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        assert server.stdout is not None
        try:
            deadline = time.monotonic() + 60
            while subprocess.run(health, cwd=here, env=environment, capture_output=True, check=False).returncode:
                assert server.poll() is None, server.stdout.read().decode()
                assert time.monotonic() < deadline
                time.sleep(0.2)
        finally:
            server.send_signal(getattr(signal, FINAL.last("STOPSIGNAL")))
        assert server.wait(60) == 0, server.stdout.read().decode()
    assert subprocess.run(health, cwd=here, env=environment, capture_output=True, check=False).returncode != 0
    written = {path for path in files_of(image) - before if path.parts[:3] != ("var", "lib", "handrail")}
    assert written == set()
    assert any((image / "var/lib/handrail/audit").glob("*.jsonl"))


def test_without_a_key_nothing_is_served(image, postgres):
    environment = {
        **{name: below(image, value) for name, value in FINAL.environment().items()},
        "HANDRAIL_STORE_URL": postgres.new_database(empty=True),
        "HANDRAIL_SERVER_PORT": "0",
    }
    (image / "no-key").mkdir(exist_ok=True)
    start = [
        below(image, word).replace("run/secrets/handrail-key", "no-key/none") for word in command(FINAL.last("CMD"))
    ]
    done = subprocess.run(start, cwd=below(image, "/srv/project"), env=environment, capture_output=True, check=False)
    assert done.returncode != 0


def test_the_image_is_small_and_runs_as_nobody_in_particular():
    assert BUILD.base.startswith(FINAL.base)
    assert FINAL.base.endswith("-slim")
    user, group = map(int, FINAL.last("USER").split(":"))
    assert user >= 10_000
    assert f"-o {user} -g {group}" in FINAL.last("RUN")
    assert not any("pip" in text or "apt" in text for word, text in FINAL.steps if word == "RUN")
    copied = [text for word, text in FINAL.steps if word == "COPY"]
    assert all(text.startswith("--from=build") for text in copied)
    assert "/readyz" in FINAL.last("HEALTHCHECK")


@pytest.mark.parametrize(
    "name", [".git/config", "secrets/handrail-key", ".venv/bin/python", "tests/conftest.py", "build/x"]
)
def test_nothing_else_of_the_folder_is_sent_to_the_build(name):
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert not any(fnmatch(name, f"{one}*") for one in allowed)
    sources = [source for word, text in BUILD.steps if word == "COPY" for source in text.split()[:-1]]
    assert set(sources) == set(allowed)
