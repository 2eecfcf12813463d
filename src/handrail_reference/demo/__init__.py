"""The demo model: small, deterministic and honest. It plays a few journeys and says that it is no language model.

`view.py` reads the request, `journeys.py` chooses a journey, `booking.py` and `handbook.py` play the two longer ones, `when.py`
reads days and times, and `phrases.py` recognises what people say around them.
"""

from handrail_reference.demo.model import DemoModel, open_demo

__all__ = ["DemoModel", "open_demo"]
