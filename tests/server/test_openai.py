"""The official `openai` client, unchanged, against `/v1/chat/completions`: streaming and not, tools governed behind it."""

import asyncio

import openai
import pytest
from tests.runtime.kit import until
from tests.server.kit import KEYS, OTHER, USER, ServerUnderTest, SessionClient, in_process, over_socket

from handrail.contract.store import Block
from handrail.server.api.idempotent_requests import IdempotentRequests
from handrail.server.host.hosted_session import HostedSession
from handrail.server.options import Options


def client_of(server: ServerUnderTest, key: str = USER, **headers: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, default_headers=headers)


def said(text: str) -> list:
    return [{"role": "user", "content": text}]


async def test_an_answer_at_once(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server) as client:
        answer = await client.chat.completions.create(model="handrail", messages=said("hello"))
        assert answer.choices[0].message.content.strip() == "You said: hello"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
        assert answer.object == "chat.completion"


async def test_an_answer_in_pieces(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server) as client:
        stream = await client.chat.completions.create(
            model="handrail", messages=said("hello there"), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        pieces = [
            chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content
        ]
        assert "".join(pieces).strip() == "You said: hello there"
        assert len(pieces) > 2
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        assert chunks[-1].usage.total_tokens > 0
        assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "at once"])
async def test_tools_are_governed_behind_it(tmp_path, streamed):
    async with over_socket(tmp_path) as server, client_of(server) as client:
        messages = said('call look {"q": "tea"} && look {"q": 3} && pay {"q": "10"}')
        if streamed:
            stream = await client.chat.completions.create(model="x", messages=messages, stream=True)
            text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
        else:
            answer = await client.chat.completions.create(model="x", messages=messages)
            text = answer.choices[0].message.content
        assert text.strip() == "look: ok, look: VALIDATION, pay: CONFIRMATION_REQUIRED"
        assert server.tools.started() == [{"q": "tea"}]


async def test_a_person_approves_what_an_openai_client_asked_for(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server) as client:
        raw = await client.chat.completions.with_raw_response.create(model="x", messages=said('call pay {"q": "10"}'))
        token = raw.headers["x-handrail-session-token"]
        completion = raw.parse()
        facts = completion.model_extra["handrail"]
        assert token not in raw.text
        person = SessionClient(server, USER, {"sessionId": raw.headers["x-handrail-session"], "token": token})
        (request,) = (await person.show())["confirmations"]
        assert facts["confirmations"] == [request["id"]]
        assert request["token"] not in raw.text
        assert (await person.decide(request)).json()["ok"] is True
        assert server.tools.started() == [{"q": "10"}]


async def test_the_clients_history_is_the_conversation_of_a_new_session(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server) as client:
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "my name is Ana"}]},
            {"role": "assistant", "content": "Hello Ana."},
            {"role": "user", "content": "who am I?"},
        ]
        await client.chat.completions.create(model="x", messages=messages)
        told = [getattr(message, "text", "") for message in server.model.asked[-1].messages]
        assert told == ["Be brief.", "my name is Ana", "Hello Ana.", "who am I?"]
        assert "Be brief." not in server.model.asked[-1].system


async def test_a_session_by_header_goes_on_and_counts_turns(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        named = {"X-Handrail-Session": ana.id, "X-Session-Token": ana.token}
        async with client_of(server, **named) as client:
            first = await client.chat.completions.create(model="x", messages=said('call look {"q": "a"}'))
            second = await client.chat.completions.create(model="x", messages=said("and?"))
        assert [one.model_extra["handrail"]["turn"] for one in (first, second)] == [1, 2]
        assert len((await ana.show())["messages"]) == 4
        async with client_of(server, OTHER, **named) as foreign:
            with pytest.raises(openai.NotFoundError):
                await foreign.chat.completions.create(model="x", messages=said("hi"))


async def test_a_request_sent_again_with_its_key_is_one_turn(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        named = {"X-Handrail-Session": ana.id, "X-Session-Token": ana.token, "Idempotency-Key": "req-1"}
        async with client_of(server, **named) as client:
            answers = [
                (await client.chat.completions.create(model="x", messages=said('call note {"q": "a"}')))
                for _ in range(2)
            ]
            stream = await client.chat.completions.create(model="x", messages=said('call note {"q": "a"}'), stream=True)
            text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
        assert {answer.choices[0].message.content for answer in answers} == {text}
        assert server.tools.started() == [{"q": "a"}]


async def test_a_request_sent_again_with_its_key_and_no_session_is_one_turn(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server, **{"Idempotency-Key": "req-1"}) as client:
        create = client.chat.completions.with_raw_response.create
        words = {"model": "x", "messages": said('call note {"q": "a"}')}
        both = await asyncio.gather(create(**words), create(**words))
        answers = [*both, await create(**words)]
        assert len({answer.headers["x-handrail-session"] for answer in answers}) == 1
        assert len({answer.parse().choices[0].message.content for answer in answers}) == 1
        assert server.tools.started() == [{"q": "a"}]
        with pytest.raises(openai.ConflictError):
            await create(model="x", messages=said("something else"))
        async with client_of(server, OTHER, **{"Idempotency-Key": "req-1"}) as other:
            await other.chat.completions.create(**words)
        async with client_of(server, **{"Idempotency-Key": "req-2"}) as next_one:
            await next_one.chat.completions.create(**words)
        assert len(server.tools.started()) == 3


async def test_a_session_of_a_request_that_has_ended_is_not_gone_on_with(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server, **{"Idempotency-Key": "req-1"}) as client:
        create = client.chat.completions.with_raw_response.create
        first = await create(model="x", messages=said("hello"))
        await server.sessions.end(server.sessions._hosted[first.headers["x-handrail-session"]])
        second = await create(model="x", messages=said("hello"))
        assert second.headers["x-handrail-session"] != first.headers["x-handrail-session"]


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "at once"])
async def test_a_client_that_can_ask_again_hears_the_whole_answer(tmp_path, streamed):
    async with over_socket(tmp_path) as server, client_of(server, **{"Idempotency-Key": "req-1"}) as client:
        words = {"model": "x", "messages": said("slow 20 x")}
        first = await client.chat.completions.create(**words, stream=True)
        await anext(aiter(first))
        await first.close()
        if streamed:
            stream = await client.chat.completions.create(**words, stream=True)
            text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
        else:
            text = (await client.chat.completions.create(**words)).choices[0].message.content
        assert text.split()[:20] == [str(number) for number in range(20)]
        assert server.model.cancelled == 0


async def test_requests_that_may_come_again_are_remembered_for_a_while_and_not_without_end(tmp_path):
    async with in_process(tmp_path) as server:
        now = await server.runtime.store.now()
        server.runtime.store._clock = lambda: now
        resent = IdempotentRequests()

        async def session(name: str) -> str:
            async def make() -> HostedSession:
                return await server.sessions.open(KEYS[1], passing=True)

            return (await resent.find(server.sessions, KEYS[1], USER, None, name, make)).id

        first = await session("a")
        assert await session("a") == first
        now += 601_000
        assert await session("a") != first
        await session("b")
        now += 601_000
        last = await session("c")
        kept = await server.runtime.store._read(
            lambda tx: tx.db.execute("SELECT session_id FROM idempotent_request").fetchall()
        )
        assert kept == [(last,)]


async def test_a_client_that_goes_away_cancels_the_turn(tmp_path):
    async with over_socket(tmp_path) as server:
        async with client_of(server) as client:
            stream = await client.chat.completions.create(model="x", messages=said("slow 2000 x"), stream=True)
            await anext(aiter(stream))
            await stream.close()
            asking = asyncio.create_task(client.chat.completions.create(model="x", messages=said("slow 2000 y")))
            await until(lambda: len(server.model.asked) == 2)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: server.model.cancelled == 2)


async def test_mistakes_are_the_clients_own_errors(tmp_path):
    async with over_socket(tmp_path) as server:
        async with client_of(server, "hr_wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.chat.completions.create(model="x", messages=said("hi"))
        async with client_of(server) as client:
            for wrong in (
                {"messages": []},
                {"messages": [{"role": "assistant", "content": "x"}]},
                {"messages": [{"role": "user", "content": " "}]},
                {"messages": [{"role": "wizard", "content": "x"}, *said("x")]},
                {"messages": said("x"), "n": 2},
                {"messages": said("x"), "tools": [{"type": "function", "function": {"name": "f"}}]},
                {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
                {"messages": said("x" * 40_000)},
            ):
                with pytest.raises(openai.BadRequestError):
                    await client.chat.completions.create(model="x", **wrong)
        assert len(server.sessions) == 0


async def no_answer(client: openai.AsyncOpenAI, text: str, *, streamed: bool) -> tuple[openai.APIError, str]:
    """The error of a turn, and what came of its answer before."""
    pieces: list[str] = []

    async def ask() -> None:
        answer = await client.chat.completions.create(model="x", messages=said(text), stream=streamed)
        async for chunk in answer:
            assert chunk.choices[0].finish_reason is None
            pieces.append(chunk.choices[0].delta.content or "")

    with pytest.raises(openai.APIError) as caught:
        await ask()
    return caught.value, "".join(pieces)


async def block_ana(server: ServerUnderTest) -> None:
    await server.runtime.store.block(Block(tenant="", user="ana", until=await server.runtime.store.now() + 60_000))
    await server.runtime.housekeeper.learn()


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "at once"])
@pytest.mark.parametrize(("word", "status"), [("break", 502), ("falter", 503)])
async def test_a_turn_that_failed_is_an_error_and_no_answer(tmp_path, word, status, streamed):
    async with over_socket(tmp_path) as server, client_of(server) as client:
        error, told = await no_answer(client, word, streamed=streamed)
        assert told == ("Well " if streamed and word == "falter" else "")
        assert error.body["message"] == "The model is away."
        assert (error.code, error.param) == ("turn_failed", None)
        assert "10.0.0.7" not in str(error.body)
        if not streamed:
            assert (error.status_code, error.response.headers.get("retry-after")) == (
                status,
                "2" if status == 503 else None,
            )
            assert error.response.headers["x-handrail-session"]


async def test_an_official_client_asks_again_by_itself_after_a_failure_that_may_pass(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server).with_options(max_retries=1) as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="x", messages=said("falter"))
        assert len(server.model.asked) == 2


WRITE = 'call note {"q": "rent"}'


@pytest.mark.parametrize("where", ["a session made for it", "a session of its own"])
@pytest.mark.parametrize(("end", "status"), [("break", 502), ("falter", 503)])
async def test_a_write_of_a_turn_that_failed_afterwards_is_not_asked_for_again(tmp_path, end, status, where):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        named = {"X-Handrail-Session": ana.id, "X-Session-Token": ana.token} if "own" in where else {}
        async with client_of(server, **named).with_options(max_retries=openai.DEFAULT_MAX_RETRIES) as client:
            with pytest.raises(openai.InternalServerError) as caught:
                await client.chat.completions.create(model="x", messages=said(f"{WRITE} then {end}"))
        assert caught.value.status_code == status
        assert server.tools.started() == [{"q": "rent"}]


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("break", 1),
        ("falter", 2),
        ('call look {"q": "tea"} then falter', 2),
        ('call note {"q": 3} then falter', 2),
        ('call pay {"q": "10"} then falter', 1),
    ],
    ids=["for good", "nothing called", "a read", "a refused write", "a held call"],
)
async def test_a_failed_turn_is_asked_for_again_only_where_nothing_can_come_of_the_first(tmp_path, text, times):
    async with over_socket(tmp_path) as server, client_of(server) as plain:
        client, sent = plain.with_options(max_retries=1), []
        client._client.event_hooks["request"].append(lambda request: _note(sent, request))
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="x", messages=said(text))
        assert len(sent) == times


async def test_with_its_key_a_failed_turn_is_asked_for_again_and_writes_once(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server, **{"Idempotency-Key": "req-1"}) as plain:
        client, sent = plain.with_options(max_retries=1), []
        client._client.event_hooks["request"].append(lambda request: _note(sent, request))
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="x", messages=said(f"{WRITE} then falter"))
        assert len(sent) == 2
        assert server.tools.started() == [{"q": "rent"}]


@pytest.mark.parametrize(
    ("key", "own", "text", "again"),
    [
        (False, False, "slow 2000 x", True),
        (False, False, 'call post {"q": "15"}', False),
        (False, True, "slow 2000 x", False),
        (True, True, 'call post {"q": "15"}', True),
        (True, False, 'call post {"q": "15"}', False),
    ],
)
async def test_a_turn_that_a_restart_cuts_off_is_asked_for_again_only_where_it_is_found_again(
    tmp_path, key, own, text, again
):
    async with over_socket(tmp_path, options=Options(shutdown_seconds=0)) as server:
        ana = await server.open()
        named = {"X-Handrail-Session": ana.id, "X-Session-Token": ana.token} if own else {}
        async with client_of(server, **named, **({"Idempotency-Key": "req-1"} if key else {})) as client:
            asked = asyncio.create_task(client.chat.completions.create(model="x", messages=said(text)))
            await until(lambda: server.tools.started() if "post" in text else server.model.asked)
            await server.sessions.drain()
            with pytest.raises(openai.InternalServerError) as caught:
                await asked
            server.tools.go()
        assert caught.value.status_code == 503
        assert caught.value.response.headers.get("x-should-retry") == (None if again else "false")


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "at once"])
async def test_a_blocked_user_is_told_for_how_long_and_not_asked_to_try_again(tmp_path, streamed):
    async with over_socket(tmp_path) as server, client_of(server).with_options(max_retries=3) as client:
        asked: list[str] = []
        client._client.event_hooks["request"].append(lambda request: _note(asked, request))
        await client.chat.completions.create(model="x", messages=said("hello"), stream=False)
        await block_ana(server)
        sessions = len(server.sessions)
        error, told = await no_answer(client, "hello again", streamed=streamed)
        assert isinstance(error, openai.RateLimitError)
        assert (error.code, told) == ("user_blocked", "")
        assert 50 <= int(error.response.headers["retry-after"]) <= 61
        assert "paused" in error.body["message"]
        assert len(asked) == 2, "it is not asked again by itself"
        assert len(server.model.asked) == 1
        assert len(server.sessions) == sessions


async def _note(asked: list[str], request: object) -> None:
    asked.append(str(request))


async def test_an_answer_that_was_given_is_given_again_to_a_user_who_is_blocked_since(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server, **{"Idempotency-Key": "req-1"}) as client:
        words = {"model": "x", "messages": said("hello")}
        first = await client.chat.completions.create(**words)
        await block_ana(server)
        again = await client.chat.completions.create(**words)
        assert again.choices[0].message.content == first.choices[0].message.content


async def test_the_models_are_listed(tmp_path):
    async with over_socket(tmp_path) as server, client_of(server) as client:
        assert [model.id async for model in await client.models.list()] == ["handrail", "play"]
