"""The demo model: small, deterministic and honest. It plays a few journeys and says that it is no language model."""

from handrail_reference.demo.demo_model import DemoModel, open_demo

__all__ = ["DemoModel", "open_demo"]
