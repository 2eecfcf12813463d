"""Rule `guide-summary`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import GUIDE_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.build.guide import SUMMARY_LIMIT, summary_of


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.guide is None:
        if source.kind != "directory":
            yield Spot(GUIDE_FILE, "", "The tool has no guide.", "Give it a docstring, or `guide=`.")
        return
    summary, line = summary_of(source.guide)
    if not summary:
        yield Spot(
            GUIDE_FILE,
            "",
            "The guide has no summary: no line that is not a heading.",
            "Say in one sentence what the tool is for.",
        )
    elif len(summary) > SUMMARY_LIMIT:
        yield Spot(
            GUIDE_FILE,
            f"line {line}",
            f"The summary has {len(summary)} characters; it may have {SUMMARY_LIMIT}.",
            "Shorten the first line that is not a heading; details go below it.",
        )


RULE = Rule(
    name="guide-summary",
    promise="The guide's first line that is no heading, its summary, exists and has at most 250 characters.",
    check=check,
)
