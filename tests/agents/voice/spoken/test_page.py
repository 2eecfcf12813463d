"""The example in the page about spoken confirmation runs, and the page names every reason there is."""

import re
from pathlib import Path

from handrail.agents.voice.spoken import ScreenReason

PAGE = (Path(__file__).parents[4] / "docs" / "spoken-confirmation.md").read_text("utf-8")


def test_the_example_of_the_page_runs() -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert programs
    for program in programs:
        exec(compile(program, "spoken-confirmation.md", "exec"), {})  # it is our own page


def test_every_reason_for_the_screen_is_on_the_page() -> None:
    assert [reason.value for reason in ScreenReason if f"`{reason.value}`" not in PAGE] == []
