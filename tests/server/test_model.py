"""Who answers, and changing it: `/api/model`."""

import asyncio

from tests.server.kit import OPERATOR, USER, in_process
from tests.server.model import PlayModel

from handrail.clients.model_choice import ModelChoice, ModelOffer
from handrail.contract.errors import ConfigError
from handrail.contract.model import Finished, TextDelta
from handrail.server.model_selection import ModelSelection

OFFER = ModelOffer("openai:gpt-5-mini", "OPENAI_API_KEY is set", "api.openai.com")
DEMO = ModelChoice("demo", "no language model is connected", offers=(OFFER,))


class Named:
    """A model that says its name, when it may."""

    provider, id_scope, context_window = "openai-chat", "session", None

    def __init__(self, name: str) -> None:
        self.name = name
        self.may = asyncio.Event()
        self.may.set()
        self.asked = 0
        self.unloaded = self.closed = False

    async def stream(self, request):
        self.asked += 1
        await self.may.wait()
        yield TextDelta(f"I am {self.name}.")
        yield Finished("stop")

    async def unload(self) -> None:
        self.unloaded = True

    async def close(self) -> None:
        self.closed = True


def selection(server, first: Named, *others: Named) -> ModelSelection:
    """The models of a server, as `handrail serve` wires them."""
    by_name = {f"openai:{one.name}": one for one in others}

    def opener(name: str):
        if name not in by_name:
            raise ConfigError(f'The model "{name}" needs a key.')
        return ModelChoice(name, "an operator chose it in the console"), by_name[name]

    agent = server.made.sessions._agent
    agent.model = first
    return ModelSelection(DEMO, first, opener=opener, use=lambda model: setattr(agent, "model", model))


async def test_everybody_may_know_who_answers_and_operators_what_is_offered(tmp_path):
    async with in_process(tmp_path) as server:
        server.made.app.state.context.models = selection(server, Named("demo"))
        shown = (await server.get("/api/model", USER)).json()
        assert shown["sentence"] == "Answered by the demo model: no language model is connected."
        assert (shown["model"], shown["demo"], len(shown["ways"])) == ("demo", True, 3)
        assert "offers" not in shown
        assert (await server.get("/api/model", OPERATOR)).json()["offers"] == [OFFER.to_dict()]


async def test_only_an_operator_changes_it_and_the_change_is_audited(tmp_path):
    mini = Named("gpt-5-mini")
    async with in_process(tmp_path) as server:
        demo = Named("demo")
        models = server.made.app.state.context.models = selection(server, demo, mini)
        refused = await server.post("/api/model", {"model": OFFER.model}, USER)
        assert refused.status_code == 403
        assert mini.asked == 0
        ana = await server.open()
        assert "I am demo." in str(await ana.say("hello"))
        changed = await server.post("/api/model", {"model": OFFER.model})
        assert changed.json()["model"] == OFFER.model
        way_back = {"model": "demo", "reason": "the server was started with it", "vendor": ""}
        assert changed.json()["offers"] == [way_back]
        assert mini.asked == 0, "nothing is sent by choosing"
        assert demo.unloaded
        assert "I am gpt-5-mini." in str(await ana.say("hello again"))
        assert (await server.get("/v1/models")).json()["data"][1]["id"] == "gpt-5-mini"
        assert (await server.post("/api/model", {"model": "demo"})).json()["demo"] is True
        assert "I am demo." in str(await ana.say("and now"))
        lines = (await server.get("/api/audit")).json()["events"]
        told = [(one["model"], one["previous"], one["ok"]) for one in reversed(lines) if one["event"] == "model"]
        assert sorted(told) == [("demo", OFFER.model, True), (OFFER.model, "demo", True)]
        await models.close()
        assert demo.closed
        assert mini.closed


async def test_what_was_not_offered_or_cannot_be_used_is_refused_and_changes_nothing(tmp_path):
    async with in_process(tmp_path) as server:
        server.made.app.state.context.models = selection(server, Named("demo"))
        for name, sentence in (
            ("local:/etc/passwd", "was not offered; choose demo or openai:gpt-5-mini"),
            ("ollama:x", "was not offered"),
            ("openai:other", 'The model "openai:other" needs a key.'),
        ):
            answer = await server.post("/api/model", {"model": name})
            assert answer.status_code == 409
            assert sentence in answer.json()["error"]["message"]
        assert (await server.get("/api/model")).json()["model"] == "demo"
        for body in ({}, {"model": ""}, {"model": 3}, {"model": "demo", "more": 1}):
            assert (await server.post("/api/model", body)).status_code == 400


async def test_a_turn_that_runs_keeps_the_model_that_it_began_with(tmp_path):
    mini = Named("gpt-5-mini")
    async with in_process(tmp_path) as server:
        demo = Named("demo")
        server.made.app.state.context.models = selection(server, demo, mini)
        demo.may.clear()
        ana = await server.open()
        running = asyncio.create_task(ana.say("hello"))
        while not demo.asked:
            await asyncio.sleep(0.01)
        await server.post("/api/model", {"model": OFFER.model})
        demo.may.set()
        assert "I am demo." in str(await running)
        assert mini.asked == 0


async def test_a_program_that_chose_its_own_model_keeps_it(tmp_path):
    async with in_process(tmp_path, model=PlayModel()) as server:
        assert (await server.get("/api/model")).json()["model"] == "play"
        answer = await server.post("/api/model", {"model": "demo"})
        assert answer.status_code == 409
        assert "cannot be changed here" in answer.json()["error"]["message"]
