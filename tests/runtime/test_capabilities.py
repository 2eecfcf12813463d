"""The capabilities that every runtime has: what they let through, and what they refuse."""

import asyncio
import math
import threading

import pytest
from tests.runtime.kit import audited, kind, next_event, reading, utility, writing

from handrail.app import find_services, open_registry, open_runtime
from handrail.contract.errors import UsageError
from handrail.runtime.capabilities import MAX_MESSAGES, MAX_NOTES, MESSAGES, built_in, checked_message
from handrail.runtime.session import Events
from handrail.settings import load_settings
from handrail.testing import settle

IMAGE = {"type": "image", "url": "https://example.com/a.png"}


def handler(body, *, plain=False):
    """A handler of one line, in the loop or in a thread."""
    return f"{'' if plain else 'async '}def execute(args, ctx):\n    {body}\n    return {{'ok': True, 'data': {{}}}}\n"


async def outcome(make_tools, body, *, fields=None, plain=False, mode="text", **options):
    """The envelope of a tool whose handler is this line, with the session and the world that it ran in."""
    world = make_tools({"one": (fields or writing(), handler(body, plain=plain))})
    session = await world.session(runtime=world.runtime(**options), mode=mode, user="u1")
    answer = await session.call("one", {}, call_id="c1")
    return world, session, answer


@pytest.mark.parametrize("plain", [False, True], ids=["in the loop", "in a thread"])
async def test_a_message_reaches_the_client_that_waits_for_it(make_tools, plain):
    world = make_tools({"one": (writing(), handler(f"ctx.messaging.send({IMAGE})", plain=plain))})
    async with world:
        session = await world.session()
        waiting = asyncio.ensure_future(next_event(session, "message"))
        await asyncio.sleep(0)
        assert (await session.call("one", {})).ok
        event = await asyncio.wait_for(waiting, 5)
        assert event.data == {
            **IMAGE,
            "imageId": None,
            "caption": None,
            "width": None,
            "height": None,
            "engine": None,
        }


class Noting(Events):
    """Events that note which thread they came in."""

    def __init__(self):
        super().__init__()
        self.threads = []

    def emit(self, event):
        self.threads.append(threading.get_ident())
        super().emit(event)


async def test_what_comes_from_a_thread_is_told_in_the_loop_where_listeners_may_be_woken(make_tools):
    source = handler(f"ctx.messaging.send({IMAGE}); ctx.progress('half'); mark(threading.get_ident())", plain=True)
    world = make_tools({"one": (writing(), source)})
    async with world:
        session = await world.session()
        session.events_queue = Noting()
        assert (await session.call("one", {})).ok
        await settle()
        here = threading.get_ident()
        assert world.tools.started() != [here]
        assert session.events_queue.threads == [here, here]


async def test_progress_reaches_the_client_from_a_thread(make_tools):
    world = make_tools({"one": (utility(), handler("ctx.progress('half')", plain=True))})
    async with world:
        session = await world.session()
        waiting = asyncio.ensure_future(next_event(session, "progress"))
        await asyncio.sleep(0)
        assert (await session.call("one", {})).ok
        assert (await asyncio.wait_for(waiting, 5)).data == {"toolId": "one", "text": "half"}


async def test_a_replayed_call_sends_nothing(make_tools):
    world, session, first = await outcome(make_tools, f"await ctx.messaging.send({IMAGE})")
    async with world:
        listener = session.events_queue.attach()
        again = await session.call("one", {}, call_id="c1")
        assert (first.ok, again.meta["replayed"]) == (True, True)
        assert [event.type for event in listener.waiting] == ["message"]


async def test_one_call_cannot_push_everything_else_out_of_the_events(make_tools):
    world, session, answer = await outcome(make_tools, f"for _ in range(2000): ctx.messaging.send({IMAGE})")
    async with world:
        assert kind(answer) == "INTERNAL"
        assert len(session.events_queue.attach().waiting) == MAX_MESSAGES


GOOD = {
    "timeout": {"timeoutUntil": 1, "durationSeconds": 30, "farewellMessage": "Bye."},
    "voice_session_start": {"sessionId": "ses_1", "pendingRequest": None},
    "image": {"url": "/images/a.png", "caption": "A", "width": 5},
}


@pytest.mark.parametrize("type", MESSAGES)
def test_a_message_of_a_known_type_is_taken_and_cannot_be_changed_afterwards(type):
    message = {"type": type, **GOOD[type]}
    checked = checked_message(message)
    assert {**checked, **message} == dict(checked)
    assert set(checked) == {"type", *MESSAGES[type]}
    with pytest.raises(TypeError):
        checked["type"] = "confirmation"


@pytest.mark.parametrize(
    ("message", "part"),
    [
        (None, "is an object"),
        ("image", "is an object"),
        ({}, "not a type of message"),
        ({"type": "confirmation", "token": "x"}, "not a type of message"),
        ({"type": ["image"]}, "not a type of message"),
        ({**IMAGE, "token": "x"}, 'has no "token"'),
        ({"type": "image"}, '"url" of a message "image" cannot be None'),
        ({"type": "image", "url": 5}, '"url" of a message "image" cannot be 5'),
        ({**IMAGE, "width": True}, '"width" of a message "image" cannot be True'),
        ({**IMAGE, "caption": ["a"]}, '"caption" of a message "image"'),
        ({"type": "timeout", **GOOD["timeout"], "timeoutUntil": math.nan}, '"timeoutUntil"'),
        ({**IMAGE, "caption": "a" * 20_000}, "is too large"),
        ({**IMAGE, "caption": "\ud800"}, "must be JSON"),
    ],
    ids=[
        *("nothing", "text", "no type", "another event", "list", "unknown field", "missing", "number", "truth value"),
        *("nested", "not a number", "too large", "half a surrogate"),
    ],
)
def test_what_is_no_message_is_refused_with_a_sentence(message, part):
    with pytest.raises(UsageError, match=part) as refused:
        checked_message(message)
    assert str(refused.value).endswith(".")


async def test_a_bad_message_is_the_author_s_mistake_and_sends_nothing(make_tools, caplog):
    world, session, answer = await outcome(make_tools, "ctx.messaging.send({'type': 'confirmation'})", fields=utility())
    async with world:
        assert kind(answer) == "INTERNAL"
        assert "confirmation" not in answer.error.message
        assert "is not a type of message" in caplog.text
        assert len(session.events_queue.attach().waiting) == 0


@pytest.mark.parametrize("plain", [False, True], ids=["in the loop", "in a thread"])
async def test_intents_of_voice_and_audio_go_into_the_envelope_and_are_applied(make_tools, plain):
    body = "ctx.voice.end_session(reason='handover', text_response='T'); ctx.audio.suppress(True)"
    world, session, answer = await outcome(make_tools, body, plain=plain, mode="voice")
    async with world:
        assert [intent.type for intent in answer.intents] == ["END_VOICE_SESSION", "SUPPRESS_AUDIO"]
        assert session.state.get("pendingEndVoiceSession")["textResponse"] == "T"
        assert session.state.get("shouldSuppressAudio") is True


async def test_intents_of_a_handler_that_fails_change_nothing(make_tools):
    body = "ctx.audio.suppress(True); raise ToolError('PERMANENT', 'No.')"
    world, session, answer = await outcome(make_tools, body, fields=utility())
    async with world:
        assert (kind(answer), answer.intents) == ("PERMANENT", ())
        assert session.state.get("shouldSuppressAudio") is False


async def test_an_attempt_that_is_made_again_asks_once(make_tools):
    source = """
    TRIES = []
    async def execute(args, ctx):
        ctx.audio.suppress(True)
        TRIES.append(1)
        if len(TRIES) == 1:
            raise ToolError("TRANSIENT", "Not now.", retryable=True)
        return {"ok": True, "data": {}}
    """
    world = make_tools({"one": (reading(), source)})
    async with world:
        answer = await (await world.session()).call("one", {})
        assert answer.meta["attempts"] == 2
        assert [intent.type for intent in answer.intents] == ["SUPPRESS_AUDIO"]


@pytest.mark.parametrize(
    ("mode", "connected", "active"), [("text", False, False), ("text", True, True), ("voice", False, True)]
)
async def test_voice_is_active_in_voice_mode_or_while_a_connection_is_open(make_tools, mode, connected, active):
    source = "async def execute(args, ctx):\n    return {'ok': True, 'data': {'active': ctx.voice.is_active}}\n"
    world = make_tools({"one": (utility(), source)})
    async with world:
        session = await world.session(mode=mode)
        session.voice_open = connected
        assert (await session.call("one", {})).data["active"] is active


async def test_a_tool_s_note_cannot_pass_for_an_event_of_the_runtime(make_tools):
    body = "ctx.audit.log('execution', {'ok': True, 'toolId': 'another', 'event': 'refusal'})"
    world, session, answer = await outcome(make_tools, body)
    async with world:
        assert answer.ok
        (note,) = audited(session.core, "tool:execution")
        assert (note["toolId"], note["callId"], note["sessionId"]) == ("one", "c1", session.id)
        assert note["data"] == {"ok": True, "toolId": "another", "event": "refusal"}
        assert len(audited(session.core, "execution")) == 1


@pytest.mark.parametrize(
    ("data", "left"),
    [
        ("None", {}),
        ("{'a': 1}", {"data": {"a": 1}}),
        ("{'a': 'x' * 9000}", {"dataOmitted": "9008 bytes"}),
        ("{'a': object()}", {"dataOmitted": "not JSON"}),
        ("[1]", {"dataOmitted": "not an object"}),
    ],
    ids=["none", "small", "large", "no json", "list"],
)
async def test_what_a_note_carries_is_limited_and_never_ends_a_call(make_tools, data, left):
    world, session, answer = await outcome(make_tools, f"ctx.audit.log('seen', {data})")
    async with world:
        assert answer.ok
        (note,) = audited(session.core, "tool:seen")
        assert {name: note[name] for name in ("data", "dataOmitted") if name in note} == left


async def test_one_call_writes_a_limited_number_of_notes(make_tools):
    world, session, answer = await outcome(make_tools, "for _ in range(5000): ctx.audit.log('seen')")
    async with world:
        assert answer.ok
        assert len(audited(session.core, "tool:seen")) == MAX_NOTES


@pytest.mark.parametrize("name", ["''", "'a b'", "'Seen'", "'a' * 65", "5", "'a\\n'"])
async def test_a_note_needs_a_plain_name(make_tools, name):
    world, _, answer = await outcome(make_tools, f"ctx.audit.log({name})")
    async with world:
        assert kind(answer) == "INTERNAL"


async def test_what_the_policy_redacts_is_masked_in_notes_too(make_tools):
    world, session, _ = await outcome(make_tools, "ctx.audit.log('seen', {'pin': '1234'})", policy={"redact": ["pin"]})
    async with world:
        (note,) = audited(session.core, "tool:seen")
        assert "1234" not in str(note)


SECRET = (
    "import json\nasync def execute(args, ctx):\n    return {'ok': True, 'data': {'got': ctx.secrets.get(args['q'])}}\n"
)


async def test_a_tool_that_asks_for_secrets_gets_those_of_its_host(make_tools):
    world = make_tools({"one": (utility(capabilities=["secrets"]), SECRET)})
    async with world:
        session = await world.session(runtime=world.runtime(secrets={"API_KEY": "s3cret"}))
        for asked, got in (("api_key", "s3cret"), ("Api_Key", "s3cret"), ("other", None)):
            assert (await session.call("one", {"q": asked})).data == {"got": got}


async def test_a_tool_that_does_not_ask_for_secrets_gets_none(make_tools, caplog):
    world = make_tools({"one": (utility(), SECRET)})
    async with world:
        session = await world.session(runtime=world.runtime(secrets={"api_key": "s3cret"}))
        answer = await session.call("one", {"q": "api_key"})
        assert kind(answer) == "INTERNAL"
        assert 'add "secrets" to the "capabilities"' in caplog.text
        assert "s3cret" not in caplog.text + str(answer.to_dict()) + str(audited(session.core))


def test_secrets_come_from_the_environment_alone_and_are_not_shown(tmp_path):
    (tmp_path / "handrail.toml").write_text("")
    settings = load_settings(tmp_path, {"HANDRAIL_SECRET_API_KEY": "s3cret", "HANDRAIL_SECRET_": "x", "OTHER": "y"})
    assert settings.secrets == {"api_key": "s3cret"}
    assert "s3cret" not in repr(settings)
    (tmp_path / "handrail.toml").write_text('[secrets]\napi_key = "x"\n')
    with pytest.raises(UsageError, match=r"no section \[secrets\]"):
        load_settings(tmp_path, {})


async def test_every_built_in_capability_counts_as_present(make_tools):
    names = sorted([*built_in(), "guides", "tool_search"])
    source = "async def execute(args, ctx):\n    return {'ok': True, 'data': dict(ctx.capabilities)}\n"
    world = make_tools({"one": (utility(capabilities=names), source)})
    async with world:
        answer = await (await world.session()).call("one", {})
        assert answer.data == dict.fromkeys(names, True)


async def test_a_host_s_own_object_wins(make_tools):
    class Mine:
        def __init__(self):
            self.got = []

        async def send(self, message):
            self.got.append(message)

    mine = Mine()
    world, session, answer = await outcome(
        make_tools, f"await ctx.messaging.send({IMAGE})", capabilities={"messaging": mine}
    )
    async with world:
        assert answer.ok
        assert mine.got == [IMAGE]
        assert len(session.events_queue.attach().waiting) == 0


async def test_a_handler_sees_the_runtime_s_clock(make_tools):
    source = "async def execute(args, ctx):\n    return {'ok': True, 'data': {'now': ctx.now}}\n"
    world = make_tools({"one": (utility(), source)})
    async with world:
        session = await world.session()
        before = session.core.clock.time()
        now = (await session.call("one", {})).data["now"]
        assert before <= now <= session.core.clock.time()


def drawing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("handrail-images")]


class TestOfAProject:
    """What `open_runtime` opens: the embedded services that the project's tools need, and no other."""

    def test_only_what_tools_need_is_opened(self, tmp_path):
        settings = load_settings(tmp_path, {})
        assert find_services(settings, []).names == ()
        assert find_services(settings, ["messaging", "unheard_of"]).names == ()
        assert find_services(settings, ["images", "messaging"]).names == ("images",)
        assert list(tmp_path.iterdir()) == [], "nothing is made before it is needed"

    async def test_services_are_opened_for_the_runtime_and_closed_with_it(self, make_tools):
        source = """
        async def execute(args, ctx):
            picture, = await ctx.images.generate("A fox")
            return {"ok": True, "data": {"id": picture.id}}
        """
        world = make_tools({"one": (writing(capabilities=["images"]), source)})
        settings = load_settings(
            world.tools.root, {"HANDRAIL_STORE_URL": "memory:", "HANDRAIL_SERVICES_IMAGES_PAID": "true"}
        )
        runtime = open_runtime(settings, open_registry(settings))
        assert "images" not in runtime.capabilities
        async with runtime:
            session = await runtime.open_session()
            answer = await session.call("one", {})
            assert (world.tools.root / "images" / f"{answer.data['id']}.png").is_file()
            assert session.facts()["session"]["paid_images"] is True
            assert drawing_threads()
        assert not drawing_threads(), "its thread was given back"

    async def test_a_runtime_that_nobody_used_opens_no_service(self, make_tools):
        world = make_tools({"one": (writing(capabilities=["images"]), handler("pass"))})
        settings = load_settings(world.tools.root, {"HANDRAIL_STORE_URL": "memory:"})
        runtime = open_runtime(settings, open_registry(settings))
        await runtime.close()
        assert runtime.services.opened == {}
