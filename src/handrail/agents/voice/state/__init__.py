"""The state of a spoken conversation, as a reducer: events in, effects out. No module here knows a socket, a clock or a task.

`reducer.py` decides what one event means for all parts; `events_and_effects.py` has the values. The parts: `turn_detection` (what
the user says), `speech_output` (what the user hears of us), `voice_turns` (turns and their calls), `spoken_confirmation` and
`farewell`.
"""
