"""The state of a spoken conversation, as a reducer: events in, effects out. No module here knows a socket, a clock or a task.

`reducer.py` decides what one event means for all parts; `events_and_effects.py` has the values. The parts: `turn_detection` (what
the user says), `voice_activity` (where a voice is in the sound), `speech_output` and `playback` (what the user hears of us),
`voice_turns`, `call_batches`, `spoken_confirmation` and `farewell`.
"""
