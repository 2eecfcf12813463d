"""send_image: one message `image` to the client, for an image that exists or an address that is one."""

import pytest
from tests.tools.reference import fits, kind, reference, sent, shown

from handrail_reference.services.images import open_images

URL = "https://example.com/team.jpg"


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    images = open_images(tmp_path_factory.mktemp("kept"), directory=".")
    with reference("send_image", "image_generate", images=images) as kit:
        yield kit
    images.close()


@pytest.mark.parametrize("mode", ["text", "voice"])
async def test_an_image_on_the_web_is_sent_with_its_caption(tools, mode):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(mode=mode)
        answer = await session.call("send_image", {"image_url": URL, "caption": "The team"})
        assert answer.data == {"sent": True, "url": URL, "image_id": None, "caption": "The team"}
        assert sent(session) == [
            {
                "type": "image",
                "url": URL,
                "imageId": None,
                "caption": "The team",
                "width": None,
                "height": None,
                "engine": None,
            }
        ]


async def test_an_image_that_was_made_is_sent_by_its_id(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        made = (await session.call("image_generate", {"prompt": "Tea", "size": "portrait"})).data["images"][0]
        answer = await session.call("send_image", {"image_id": made["id"]})
        assert answer.data["url"] == made["url"]
        assert sent(session) == [
            {
                "type": "image",
                "url": made["url"],
                "imageId": made["id"],
                "caption": None,
                "width": made["width"],
                "height": made["height"],
                "engine": made["engine"],
            }
        ]


@pytest.mark.parametrize(
    "image_id",
    ["img_" + "0" * 32, "img_1", "../../etc/passwd", "img_" + "0" * 32 + ".png", "IMG_" + "0" * 32, "a/b", "\x00", "é"],
    ids=["unknown", "short", "path", "suffix", "capitals", "slash", "nul", "letter"],
)
async def test_an_id_that_is_none_is_not_found_and_nothing_is_sent(tools, image_id):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        answer = await session.call("send_image", {"image_id": image_id})
        assert kind(answer) == "NOT_FOUND"
        assert not answer.error.partial_side_effects
        assert sent(session) == []


def test_a_host_without_images_has_none_of_any_id():
    with reference("send_image") as tools:
        assert kind(tools.call("send_image", {"image_id": "img_" + "0" * 32})) == "NOT_FOUND"
        assert tools.call("send_image", {"image_url": URL}).ok


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"caption": "alone"},
        {"image_url": URL, "image_id": "img_1"},
        {"image_url": "javascript:alert(1)"},
        {"image_url": "data:image/png;base64,AAAA"},
        {"image_url": "file:///etc/passwd"},
        {"image_url": "/images/a.png"},
        {"image_url": "https://exa mple.com/a.png"},
        {"image_url": "https://example.com/" + "a" * 2000},
        {"image_url": "https://bank.example@evil.example/a.png"},
        {"image_url": "https://u:p@evil.example/a.png"},
        {"image_url": "https:///a.png"},
        {"image_url": "https://[::1/a.png"},
        {"image_url": URL, "caption": "a" * 301},
    ],
    ids=[
        *(
            "nothing",
            "caption alone",
            "both",
            "script",
            "data",
            "file",
            "relative",
            "space",
            "long",
            "user",
            "password",
        ),
        *("no host", "half an address", "long caption"),
    ],
)
async def test_what_is_no_plain_web_address_is_refused_and_nothing_is_sent(tools, args):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        assert kind(await session.call("send_image", args)) == "VALIDATION"
        assert sent(session) == []


async def test_the_same_call_again_sends_nothing_again(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        first = await session.call("send_image", {"image_url": URL}, call_id="c1")
        again = await session.call("send_image", {"image_url": URL}, call_id="c1")
        assert again.meta["replayed"]
        assert again.data == first.data
        assert len(sent(session)) == 1
        await session.call("send_image", {"image_url": URL}, call_id="c2")
        assert len(sent(session)) == 2, "asked for twice by the model, it is shown twice"


async def test_no_person_is_asked_and_the_voice_budget_counts_it(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(mode="voice")
        answers = [await session.call("send_image", {"image_url": f"{URL}?{n}"}, call_id=f"c{n}") for n in range(4)]
        assert [kind(answer) for answer in answers] == [None, None, None, "BUDGET_EXCEEDED"]
        assert len(sent(session)) == 3


def test_the_examples_of_the_guide_give_what_it_shows(tools):
    for args, response in shown(tools, "send_image"):
        assert response is not None
        assert fits(tools.call("send_image", args), response)
