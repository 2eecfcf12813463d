"""A shop's web app with an assistant: `SHOP_MODEL=openai:gpt-4.1-mini uvicorn app:app`.

`/orders/…` is the app as it was before. `/chat/…` is the assistant: what the customer says, what happens, and the approval.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from chat import Chat
from fastapi import Cookie, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel
from shop import Order, Shop, open_shop

from handrail import Registry, Runtime
from handrail.agents import TextAgent
from handrail.clients import open_model

HERE = Path(__file__).parent
COOKIE = "shop_chat"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the pool once, and give it to the app and to the tools."""
    registry = Registry.load(HERE / "tool_registry.json")
    registry.lock()
    model = open_model(os.environ.get("SHOP_MODEL", "openai:gpt-4.1-mini"), environment=os.environ)
    async with (
        open_shop(HERE) as shop,
        Runtime(registry, store=f"sqlite:///{HERE / 'handrail.db'}", capabilities={"shop": shop}) as runtime,
    ):
        app.state.shop, app.state.runtime = shop, runtime
        app.state.agent = TextAgent(runtime, model, listen=False)
        app.state.chats = {}
        yield
        for chat in app.state.chats.values():
            await chat.close()
        await model.close()


app = FastAPI(lifespan=lifespan)


@app.get("/orders/{order_id}")
async def order(order_id: str, request: Request) -> Order:
    shop: Shop = request.app.state.shop
    found = await shop.find_order(order_id)
    if found is None:
        raise HTTPException(404, f"There is no order {order_id}.")
    return found


class Message(BaseModel):
    id: str
    text: str


class Answer(BaseModel):
    token: str
    approve: bool


def chat_of(request: Request, shop_chat: Annotated[str | None, Cookie()] = None) -> Chat:
    """The conversation of the browser that asks. A real app would also check who is signed in."""
    chat: Chat | None = request.app.state.chats.get(shop_chat)
    if chat is None:
        raise HTTPException(404, "There is no such conversation; open the page first.")
    return chat


@app.get("/")
async def page(request: Request, shop_chat: Annotated[str | None, Cookie()] = None) -> Response:
    response = FileResponse(HERE / "page.html")
    if shop_chat not in request.app.state.chats:
        session = await request.app.state.runtime.open_session(mode="text", user="customer")
        name = secrets.token_urlsafe(24)
        request.app.state.chats[name] = Chat(request.app.state.agent, session)
        response.set_cookie(COOKIE, name, httponly=True, samesite="strict")
    return response


@app.post("/chat/messages")
async def say(message: Message, chat: Annotated[Chat, Depends(chat_of)]) -> dict[str, str]:
    await chat.say(message.text, message.id)
    return {"id": message.id}


@app.get("/chat/events")
async def events(chat: Annotated[Chat, Depends(chat_of)]) -> StreamingResponse:
    async def stream() -> AsyncIterator[str]:
        async for kind, data in chat.events():
            yield f"event: {kind}\ndata: {json.dumps(data, default=dict)}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@app.post("/chat/confirmations/{confirmation_id}")
async def decide(
    confirmation_id: str, answer: Answer, request: Request, chat: Annotated[Chat, Depends(chat_of)]
) -> dict[str, Any]:
    """The customer's word on a held call. The token came with the event, to this page and to nobody else."""
    runtime: Runtime = request.app.state.runtime
    decided = runtime.approve if answer.approve else runtime.decline
    return (await decided(confirmation_id, token=answer.token)).to_dict()
