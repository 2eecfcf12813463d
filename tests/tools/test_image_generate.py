"""image_generate: an honest placeholder card, kept once, and a person asked where it costs more."""

import asyncio

import pytest
from tests.tools.reference import fits, kind, reference, shown

from handrail import ErrorType, Runtime, ToolError
from handrail_reference.services.images import open_images

FOX = {"prompt": "A fox in snow"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def tools(folder):
    images = open_images(folder, directory=".")
    with reference("image_generate", images=images) as kit:
        yield kit
    images.close()


@pytest.mark.parametrize(
    ("size", "measures"), [("square", (1024, 1024)), ("portrait", (768, 1152)), ("landscape", (1152, 768))]
)
def test_an_image_is_drawn_kept_and_said_to_be_a_placeholder(tools, folder, size, measures):
    answer = tools.call("image_generate", {**FOX, "size": size})
    (image,) = answer.data["images"]
    assert (image["width"], image["height"]) == measures
    assert image["engine"] == "placeholder-card"
    assert image["url"] == f"/images/{image['id']}.png"
    assert (folder / f"{image['id']}.png").is_file()


async def test_one_image_asks_nobody(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        assert (await session.call("image_generate", FOX)).ok


@pytest.mark.parametrize(
    ("attributes", "args"),
    [
        ({}, {**FOX, "count": 2}),
        ({"paid_images": True}, FOX),
        ({"paid_images": "unclear"}, FOX),
    ],
    ids=["two images", "images are paid", "nobody knows whether they are paid"],
)
async def test_a_person_is_asked_first_and_nothing_is_drawn_before(tools, folder, attributes, args):
    before = sorted(folder.iterdir())
    prompt = f"{attributes} {args}"
    async with tools.runtime() as runtime:
        session = await runtime.open_session(attributes=attributes)
        answer = await session.call("image_generate", {**args, "prompt": prompt}, call_id="c1")
        assert kind(answer) == "CONFIRMATION_REQUIRED"
        assert prompt in answer.error.confirmation_request["preview"]
        assert sorted(folder.iterdir()) == before
        event = await anext(aiter(session.events()))
        approved = await runtime.approve(event.data["id"], token=event.data["token"])
        assert len(approved.data["images"]) == args.get("count", 1)
        assert len(sorted(folder.iterdir())) == len(before) + args.get("count", 1)


async def test_a_host_that_says_images_are_free_asks_nobody(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(attributes={"paid_images": False})
        assert (await session.call("image_generate", FOX)).ok


async def test_what_the_host_says_of_every_session_cannot_be_talked_away(tools):
    async with tools.runtime(attributes={"paid_images": True}) as runtime:
        session = await runtime.open_session(attributes={"paid_images": False})
        assert kind(await session.call("image_generate", FOX)) == "CONFIRMATION_REQUIRED"


def test_two_images_of_a_prompt_differ(tools):
    answer = tools.call("image_generate", {**FOX, "count": 2}, approved=True)
    first, second = (image["id"] for image in answer.data["images"])
    assert first != second


async def test_a_declined_request_draws_nothing(tools, folder):
    before = sorted(folder.iterdir())
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        await session.call("image_generate", {"prompt": "Never drawn", "count": 2})
        event = await anext(aiter(session.events()))
        assert kind(await runtime.decline(event.data["id"], token=event.data["token"])) == "DECLINED"
    assert sorted(folder.iterdir()) == before


async def test_the_same_call_again_draws_nothing_again():
    engine = Counting()
    with reference("image_generate", images=engine) as tools:
        async with tools.runtime() as runtime:
            session = await runtime.open_session()
            first = await session.call("image_generate", FOX, call_id="c1")
            again = await session.call("image_generate", FOX, call_id="c1")
            assert again.meta["replayed"]
            assert again.data == first.data
            assert engine.drawn == ["A fox in snow"]


class Counting:
    """An engine of a host's own, behind the same port."""

    def __init__(self, trouble=None):
        self.drawn = []
        self.trouble = trouble

    async def generate(self, prompt, *, size, count):
        self.drawn.append(prompt)
        if self.trouble is not None:
            raise self.trouble
        picture = type("Picture", (), {"id": "x1", "url": "/x1", "width": 5, "height": 5, "engine": "mine"})
        return [picture] * count


def test_an_engine_of_the_host_takes_the_place_of_the_embedded_one():
    with reference("image_generate", images=Counting()) as tools:
        assert tools.call("image_generate", FOX).data["images"][0]["engine"] == "mine"


def test_a_failure_of_the_engine_is_told_as_it_is():
    trouble = ToolError(ErrorType.TRANSIENT, "The engine is busy.", retryable=True)
    with reference("image_generate", images=Counting(trouble)) as tools:
        answer = tools.call("image_generate", FOX)
        assert (kind(answer), answer.error.retryable, answer.error.message) == (
            "TRANSIENT",
            True,
            "The engine is busy.",
        )


def test_a_folder_that_cannot_be_written_is_a_failure_for_now(tmp_path):
    (tmp_path / "kept").write_text("a file stands where the folder should be")
    images = open_images(tmp_path / "kept" / "below", directory=".")
    with reference("image_generate", images=images) as tools:
        answer = tools.call("image_generate", FOX)
        assert (kind(answer), answer.error.partial_side_effects) == ("TRANSIENT", False)
    images.close()


def test_a_host_without_images_does_not_start():
    with reference("image_generate") as tools, pytest.raises(Exception, match='needs the capability "images"'):
        Runtime(tools.registry, store="memory:")


async def test_in_voice_it_is_refused(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(mode="voice")
        assert kind(await session.call("image_generate", FOX)) == "MODE_RESTRICTED"


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"prompt": ""},
        {"prompt": " \n\t"},
        {"prompt": "a" * 1001},
        {"prompt": "a", "size": "huge"},
        {"prompt": "a", "count": 0},
        {"prompt": "a", "count": 3},
    ],
    ids=["none", "empty", "blank", "long", "size", "count 0", "count 3"],
)
def test_arguments_outside_of_the_schema_are_refused(tools, args):
    assert kind(tools.call("image_generate", args)) == "VALIDATION"


async def test_other_calls_go_on_while_an_image_is_drawn(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        drawing = asyncio.ensure_future(session.call("image_generate", {"prompt": "words " * 160}))
        ticks = 0
        while not drawing.done():
            await asyncio.sleep(0)
            ticks += 1
        assert (await drawing).ok
        assert ticks > 10, "the loop turned while the card was drawn"


def test_the_examples_of_the_guide_run(tools):
    for args, response in shown(tools, "image_generate"):
        answer = tools.call("image_generate", args, approved=True)
        assert answer.ok
        assert fits(answer, response, besides=("images",))
        if response:
            made, told = answer.data["images"][0], response["images"][0]
            assert {name: made[name] for name in ("width", "height", "engine")} == {
                name: told[name] for name in ("width", "height", "engine")
            }
