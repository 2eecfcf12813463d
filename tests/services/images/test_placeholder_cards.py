"""Draft cards: any prompt becomes a picture that says what it is, the same one each time, kept whole or not at all."""

import asyncio
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from handrail import ErrorType, ToolError
from handrail.contract.errors import ConfigError
from handrail_reference.services.images import open_images
from handrail_reference.services.images.card import SAYS, SIZES, _fitted, draw_card
from handrail_reference.services.images.folder import ImageFolder
from handrail_reference.services.images.lettering import Lettering, line_height

LETTERING = Lettering()
ROOM = (700, 600)


def _text(lines):
    return "\n".join("".join(f"<{cell.code}>" if cell.code else cell.text for cell in line) for line in lines)


def _set(prompt, size=24, width=100_000):
    return _text(LETTERING.wrap(LETTERING.cells(prompt), size, width))


@pytest.mark.parametrize("size", SIZES)
def test_a_card_is_a_png_of_its_size_that_says_what_it_is(size):
    with Image.open(io.BytesIO(draw_card("A fox in snow", size, 1, 1, LETTERING))) as picture:
        picture.load()
        assert (picture.format, picture.size) == ("PNG", SIZES[size])
        assert picture.info == {"Software": "Handrail placeholder-card", "Comment": SAYS}


def test_the_same_prompt_gives_the_same_bytes_and_another_one_others():
    card = draw_card("A fox in snow", "square", 1, 1, LETTERING)
    assert draw_card("A fox in snow", "square", 1, 1, Lettering()) == card
    others = [("A fox in rain", "square", 1, 1), ("A fox in snow", "portrait", 1, 1), ("A fox in snow", "square", 2, 2)]
    assert len({card, *(draw_card(*other, LETTERING) for other in others)}) == 4


def test_the_cards_of_one_request_differ_in_their_shapes():
    """The first and the seventh have the same colours; what is left of the paper shows colours and shapes alone."""
    margins = [
        Image.open(io.BytesIO(draw_card("A fox", "square", number, 7, LETTERING))).crop((0, 0, 50, 1024)).tobytes()
        for number in (1, 7)
    ]
    assert margins[0] != margins[1]


def test_the_prompt_is_really_on_the_card():
    """Only the words differ between these two, and colours and shapes are made from the words: so look at the paper."""
    full, bare = (
        Image.open(io.BytesIO(draw_card(text, "square", 1, 1, LETTERING))).convert("L").crop((110, 200, 900, 800))
        for text in ("A fox in snow, seen from far away", ".")
    )
    dark = [sum(picture.histogram()[:80]) for picture in (full, bare)]
    assert dark[0] > 20 * dark[1] > 0


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("Tea & “cake”…", "Tea & “cake”…"),
        ("Ana Kovač, Łódź, Straße", "Ana Kovac, Lodz, Strasse"),
        ("c\u030c", "c"),
        ("日本", "<65E5><672C>"),
        ("😀", "<1F600>"),
        ("5 € – 7 £", "5 EUR - 7 GBP"),
        ("a\u202eb\u200bc\x00d", "a\\u{202e}b\\u{200b}c\\u{0}d"),
        ("one\r\ntwo\tthree", "one\ntwo three"),
        ("Ⅳ", "IV"),
    ],
    ids=["ascii", "accents", "apart", "han", "emoji", "signs", "hidden", "lines", "numeral"],
)
def test_nothing_of_a_prompt_is_hidden_or_dropped(prompt, shown):
    assert _set(prompt) == shown


def test_lines_are_broken_at_spaces_and_long_words_inside():
    lines = LETTERING.wrap(LETTERING.cells("one two three " + "x" * 60), 40, 300)
    assert _text(lines).splitlines()[0].rstrip() in ("one two", "one two three")
    assert all(LETTERING.width(line, 40) <= 300 for line in lines)
    assert _text(lines).replace("\n", "").count("x") == 60


PROMPTS = st.text(
    st.characters(blacklist_categories=("Cs",)) | st.sampled_from(" \n\u202eéx日"), min_size=1, max_size=1000
)


@given(PROMPTS)
def test_every_prompt_has_room(prompt):
    size, lines = _fitted(prompt, ROOM, LETTERING)
    assert len(lines) * line_height(size) <= ROOM[1]
    assert all(LETTERING.width(line, size) <= ROOM[0] for line in lines)


def test_a_short_prompt_is_set_large_and_a_long_one_small():
    sizes = [_fitted("word " * count, ROOM, LETTERING)[0] for count in (1, 20, 60, 200)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4


def test_what_has_no_room_is_cut_and_counted():
    _, lines = _fitted("\u202e" * 1000, ROOM, LETTERING)
    cut = _text(lines).splitlines()
    shown = sum(len(line) for line in cut[:-1])
    assert cut[-1] == f"… and {8000 - shown} more characters"


@settings(max_examples=8)
@given(PROMPTS, st.sampled_from(sorted(SIZES)))
def test_every_prompt_can_be_drawn(prompt, size):
    assert draw_card(prompt, size, 1, 2, LETTERING).startswith(b"\x89PNG")


async def test_an_image_is_kept_once_and_found_again(tmp_path: Path):
    images = open_images(tmp_path / "kept", directory=".")
    (first,) = await images.generate("A fox")
    changed = (tmp_path / "kept" / f"{first.id}.png").stat().st_mtime_ns
    (again,) = await images.generate("A fox")
    assert again == first == await images.find(first.id)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [f"{first.id}.png"]
    assert images.path_of(first.id).stat().st_mtime_ns == changed
    images.close()


async def test_many_at_once_are_all_kept(tmp_path: Path):
    images = open_images(tmp_path, directory=".")
    made = await asyncio.gather(*(images.generate(f"A fox {n % 3}", count=2) for n in range(6)))
    assert len({picture.id for pictures in made for picture in pictures}) == 6
    assert len(list(tmp_path.iterdir())) == 6
    images.close()


@pytest.mark.parametrize(
    "asked", ["", "img_", "img_" + "0" * 32, "../img_" + "0" * 32, "img_" + "0" * 32 + "\n", "img_" + "٠" * 32, None, 7]
)
async def test_what_is_no_id_names_no_file(tmp_path: Path, asked):
    images = open_images(tmp_path, directory=".")
    assert await images.find(asked) is None
    assert images.path_of(asked) is None


async def test_a_file_that_has_no_id_for_a_name_is_never_given_out(tmp_path: Path):
    images = open_images(tmp_path / "kept", directory=".")
    (picture,) = await images.generate("A fox")
    kept = images.path_of(picture.id)
    for asked in ("../secret", "other", f"{picture.id}x", f"{picture.id}\n"):
        (tmp_path / "kept" / f"{asked}.png").write_bytes(kept.read_bytes())
        assert await images.find(asked) is None
        assert images.path_of(asked) is None
    images.close()


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a" + b"0" * 40], ids=["empty", "cut", "another"])
async def test_a_file_that_is_no_image_any_more_is_not_found(tmp_path: Path, content):
    name = "img_" + "0" * 32
    (tmp_path / f"{name}.png").write_bytes(content)
    assert await open_images(tmp_path, directory=".").find(name) is None


def test_a_damaged_file_is_replaced_when_the_image_is_made_again(tmp_path: Path):
    folder = ImageFolder(tmp_path)
    name = folder.save(b"whole")
    (tmp_path / f"{name}.png").write_bytes(b"who")
    assert folder.save(b"whole") == name
    assert (tmp_path / f"{name}.png").read_bytes() == b"whole"


def test_only_the_owner_may_read_an_image(tmp_path: Path):
    folder = ImageFolder(tmp_path)
    path = folder.path_of(folder.save(b"one"))
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_folder_takes_no_more_and_says_so(tmp_path: Path):
    folder = ImageFolder(tmp_path, max_images=2)
    kept = folder.save(b"one")
    folder.save(b"two")
    with pytest.raises(ToolError, match="No more images") as refused:
        folder.save(b"three")
    assert (refused.value.type, refused.value.retryable) == (ErrorType.PERMANENT, False)
    assert folder.save(b"one") == kept
    assert len(list(tmp_path.iterdir())) == 2


def test_an_image_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch):
    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ToolError, match=r"could not be stored \(No space left on device\)") as refused:
        ImageFolder(tmp_path).save(b"one")
    assert (refused.value.type, refused.value.retryable) == (ErrorType.TRANSIENT, True)
    assert list(tmp_path.iterdir()) == []


async def test_images_are_there_though_whose_they_are_cannot_be_noted(tmp_path: Path, caplog):
    (tmp_path / "owners").write_text("no folder")
    images = open_images(tmp_path, directory=".")
    (picture,) = await images.generate("a cat")
    await images.keep_for("ana", "acme", [picture.id])
    assert await images.find(picture.id) is not None
    assert f"Whose the images {picture.id} are could not be noted" in caplog.text
    await images.aclose()


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": "  "},
        {"prompt": "a" * 1001},
        {"prompt": "a", "size": "huge"},
        {"prompt": "a", "count": 0},
        {"prompt": "a", "count": 5},
    ],
    ids=["blank", "long", "size", "none", "many"],
)
async def test_what_cannot_be_drawn_is_refused(tmp_path: Path, asked):
    with pytest.raises(ToolError) as refused:
        await open_images(tmp_path, directory=".").generate(**asked)
    assert refused.value.type is ErrorType.VALIDATION
    assert list(tmp_path.iterdir()) == []


def test_a_font_that_cannot_be_used_is_named_at_the_start(tmp_path: Path):
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    for name in ("broken.ttf", "absent.ttf"):
        with pytest.raises(ConfigError, match=f'The font "{name}" cannot be used'):
            open_images(tmp_path / "kept", directory=".", font=str(tmp_path / name))
    with pytest.raises(ConfigError, match=r'names "broken\.ttf", which is a file'):
        open_images(tmp_path / "broken.ttf", directory=".")
