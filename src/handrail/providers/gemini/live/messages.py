"""The messages that a client sends to Gemini Live, as plain JSON. Pure: what goes in is what comes out."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from handrail.contract.live import Answer, LiveConfig, Scheduling, Utterance
from handrail.providers.live_history import LiveEntry, Note, late_note

Message = dict[str, Any]
_CONTINUED = "Note of the host: the connection was replaced, and the conversation continues."
_SCHEDULING: Mapping[Scheduling, str] = {"when_idle": "WHEN_IDLE", "interrupt": "INTERRUPT", "silent": "SILENT"}


def setup(model: str, config: LiveConfig, handle: str | None = None, *, seeds_history: bool = False) -> Message:
    """The first message of a connection. `behavior` is always given: models differ in what they do without it.
    `seeds_history` announces that `seed` follows."""
    generation: Message = {"responseModalities": ["AUDIO"]}
    speech: Message = {}
    if config.voice:
        speech["voiceConfig"] = {"prebuiltVoiceConfig": {"voiceName": config.voice}}
    if config.language:
        speech["languageCode"] = config.language
    if speech:
        generation["speechConfig"] = speech
    body: Message = {
        "model": model if model.startswith("models/") else f"models/{model}",
        "generationConfig": generation,
    }
    if config.system:
        body["systemInstruction"] = {"role": "user", "parts": [{"text": config.system}]}
    if config.tools:
        body["tools"] = [{"functionDeclarations": [_declared(tool, config) for tool in config.tools]}]
    body["realtimeInputConfig"] = {
        "automaticActivityDetection": {"disabled": False},
        "activityHandling": "START_OF_ACTIVITY_INTERRUPTS",
    }
    if config.resumption:
        body["sessionResumption"] = {"handle": handle} if handle else {}
    body["contextWindowCompression"] = {"slidingWindow": {}}
    if seeds_history:
        body["historyConfig"] = {"initialHistoryInClientContent": True}
    if config.transcribe:
        body["inputAudioTranscription"] = {}
        body["outputAudioTranscription"] = {}
    return {"setup": body}


def audio(pcm: bytes, rate: int) -> Message:
    return {"realtimeInput": {"audio": {"mimeType": f"audio/pcm;rate={rate}", "data": b64encode(pcm).decode()}}}


def audio_frame(pcm: bytes, rate: int) -> str:
    """`audio` as the text of a frame: fifty a second are sent, so it is put together without an encoder."""
    data = b64encode(pcm).decode()
    return f'{{"realtimeInput":{{"audio":{{"mimeType":"audio/pcm;rate={rate}","data":"{data}"}}}}}}'


def realtime_text(text: str) -> Message:
    """Text that does not interrupt what the model says."""
    return {"realtimeInput": {"text": text}}


def microphone(event: str) -> Message:
    """`activityStart`, `activityEnd` (both only without the provider's own detection) or `audioStreamEnd`."""
    return {"realtimeInput": {event: True if event == "audioStreamEnd" else {}}}


def content(turns: Sequence[tuple[str, str]], *, complete: bool) -> Message:
    """Turns of role and text, in order; they interrupt the model, which answers if they are complete."""
    said = [{"role": role, "parts": [{"text": text}]} for role, text in turns]
    return {"clientContent": {"turns": said, "turnComplete": complete}}


def replace_tools(tools: Sequence[Mapping[str, Any]]) -> Message:
    return {"contextUpdate": {"tools": {"tools": [{"functionDeclarations": list(tools)}] if tools else []}}}


def function_response(
    call_id: str,
    name: str,
    response: Mapping[str, Any],
    scheduling: Scheduling | None = None,
    will_continue: bool | None = None,
) -> Message:
    """One answer. `scheduling` and `will_continue` are for tools that do not block the model."""
    answer: Message = {"id": call_id, "name": name, "response": dict(response)}
    if scheduling is not None:
        answer["scheduling"] = _SCHEDULING[scheduling]
    if will_continue is not None:
        answer["willContinue"] = will_continue
    return answer


def tool_response(responses: Iterable[Message]) -> Message:
    return {"toolResponse": {"functionResponses": list(responses)}}


def envelope_response(answer: Answer) -> Message:
    """The full envelope, under the key that tells the provider how the call went."""
    return {"output" if answer.envelope.get("ok") else "error": dict(answer.envelope)}


def retell(entries: Sequence[LiveEntry], *, complete: bool) -> list[Message]:
    """What was said on a connection that is gone, for a model that takes content at any time. It ends with the user's turn."""
    turns = [_turn(entry) for entry in entries]
    if turns and turns[-1][0] == "model":
        turns.append(("user", _CONTINUED))
    return [content(turns, complete=complete)] if turns else []


def seed(entries: Sequence[LiveEntry]) -> Message:
    """The history that the set-up announced. It starts no answer, and may end with the model's turn."""
    return content([_turn(entry) for entry in entries], complete=True)


def in_words(entries: Sequence[LiveEntry]) -> str:
    """Entries as one text, for a model that takes nothing but text in the middle of a conversation."""
    if len(entries) == 1 and isinstance(entries[0], Utterance) and entries[0].role == "user":
        return entries[0].text
    lines = [_CONTINUED]
    for entry in entries:
        role, text = _turn(entry)
        if isinstance(entry, Utterance):
            text = f"{'The user' if role == 'user' else 'You'} said: {text}"
        lines.append(text)
    return "\n".join(lines)


def _turn(entry: LiveEntry) -> tuple[str, str]:
    if isinstance(entry, Answer):
        return "user", late_note(entry)
    if isinstance(entry, Note):
        return "user", entry.text
    return entry.role, entry.text


def _declared(tool: Mapping[str, Any], config: LiveConfig) -> Message:
    behavior = "NON_BLOCKING" if tool.get("name") in config.background else tool.get("behavior", "BLOCKING")
    return {**tool, "behavior": behavior}
