"""The scripts behind `make browser` and `make speech`: they bring a program, or say loudly that the tests go without it."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
BROUGHT = [
    (
        "browser",
        "Chromium",
        "chromium fonts-liberation fonts-dejavu-core libatomic1",
        "The console's tests in a browser are skipped.",
    ),
    ("speech", "espeak-ng", "espeak-ng", "The tests that speak to the microphone are skipped."),
]
each = pytest.mark.parametrize(("script", "what", "packages", "skipped"), BROUGHT, ids=["browser", "speech"])


class Machine:
    """A machine on which nothing can be run but what is put there. Its folder has a space in its name."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "some programs"
        self.programs.mkdir()
        for name in ("sh", "dirname", "basename"):
            found = shutil.which(name)
            assert found
            (self.programs / name).symlink_to(found)
        self.asked = folder / "asked"
        self.whose("0")

    def put(self, name: str, *lines: str) -> None:
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
        path.chmod(0o755)

    def whose(self, user: str) -> None:
        self.put("id", f"echo {user}")

    def apt(self, *, fails_at: str = "nothing") -> None:
        """Writes down what it was asked for."""
        self.put(
            "apt-get",
            f"echo \"$*\" >> '{self.asked}'",
            f'[ "$1" != {fails_at} ] || {{ echo "E: the mirror is away"; exit 100; }}',
            "echo Reading package lists",
        )

    def run(self, script: str, *, ci: bool = False) -> tuple[int, str, str]:
        environment = {"PATH": str(self.programs), **({"CI": "true"} if ci else {})}
        command = ["/bin/sh", str(SCRIPTS / f"{script}.sh")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@each
def test_what_is_missing_is_installed_and_said(
    machine: Machine, script: str, what: str, packages: str, skipped: str
) -> None:
    machine.apt()
    code, out, err = machine.run(script, ci=True)
    assert (code, err) == (0, "")
    assert out.startswith(f"Installing {packages.partition(' ')[0]}, which ")
    assert machine.asked.read_text(encoding="utf-8").splitlines() == [
        "update",
        f"install -y --no-install-recommends {packages}",
    ]


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("browser", "chromium chromium-headless-shell"),
        ("browser", "chromium-browser"),
        ("browser", "google-chrome"),
        ("speech", "espeak-ng"),
    ],
)
def test_nothing_is_done_or_said_where_it_is_there(machine: Machine, script: str, names: str) -> None:
    machine.apt()
    for name in names.split():
        machine.put(name)
    assert machine.run(script, ci=True) == (0, "", "")
    assert not machine.asked.exists()


@pytest.mark.parametrize("trouble", ["none", "install"])
def test_chromium_without_windows_is_brought_too_where_it_can_be_had(machine: Machine, trouble: str) -> None:
    machine.apt(fails_at=trouble)
    machine.put("chromium")
    assert machine.run("browser", ci=True) == (0, "", "")
    assert machine.asked.read_text(encoding="utf-8") == "install -y --no-install-recommends chromium-headless-shell\n"


def test_who_may_not_install_it_goes_without_chromium_without_windows(machine: Machine) -> None:
    machine.apt()
    machine.whose("1000")
    machine.put("chromium")
    assert machine.run("browser", ci=True) == (0, "", "")
    assert not machine.asked.exists()


@each
@pytest.mark.parametrize("ci", [False, True])
@pytest.mark.parametrize("trouble", ["no apt-get", "no rights", "update", "install"])
def test_where_it_cannot_be_had_a_sentence_says_why_and_ci_fails(
    machine: Machine, script: str, what: str, packages: str, skipped: str, trouble: str, ci: bool
) -> None:
    package = packages.partition(" ")[0]
    reason = {
        "no apt-get": f"there is no {what} on this machine, and no apt-get to bring it; install {what} by hand.",
        "no rights": f"there is no {what} on this machine; install it with sudo apt-get install {package}.",
    }.get(trouble, f"apt-get could not install {package}; the reason is above.")
    if trouble != "no apt-get":
        machine.apt(fails_at=trouble)
    if trouble == "no rights":
        machine.whose("1000")
    code, _, err = machine.run(script, ci=ci)
    assert code == (1 if ci else 0)
    assert err.splitlines()[-1] == f"{script}: {reason} {skipped}"
    assert ("E: the mirror is away" in err) == (trouble in ("update", "install"))
