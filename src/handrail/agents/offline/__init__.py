"""The offline model: deterministic, without a network, and honest about it.

It implements the model port and sees what any model sees: the system text, the messages and the declarations. It follows the
loop that the prompt describes: look first, read what fits, answer with sources, act when nothing is missing, and leave
approvals to the person. `view.py` reads the request, `goals.py` decides what is wanted, `steps.py` what to do next.
"""

from handrail.agents.offline.model import OfflineModel

__all__ = ["OfflineModel"]
