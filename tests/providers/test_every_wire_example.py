"""None of the reference's examples is left out: each is really read by a test of the format that it belongs to.

The tests are run once more in a process of their own, where every reading is noted: those of this run may be spread over several
processes, or be left out by whoever runs only some.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.providers.wire_examples import EXAMPLES, NOTED_IN

ROOT = Path(__file__).parents[2]
FILES = {file.name for file in EXAMPLES.glob("*.json")} - {"index.json"}
READERS = {
    "tests/providers/test_anthropic_adapter.py": (
        "test_the_strict_dialect_is_that_of_the_sdks_own_helper_where_that_is_right",
    ),
    "tests/providers/test_gemini_adapter.py": ("test_a_schema_is_converted_as_in_the_reference",),
    "tests/providers/test_openai_chat_adapter.py": ("test_a_schema_is_converted_as_in_the_reference",),
    "tests/providers/transports/test_wire_examples.py": (
        "test_a_checked_answer_is_read",
        "test_a_call_that_gemini_could_not_form_is_an_error_that_may_pass",
        "test_a_first_request_is_written_as_in_the_example",
        "test_results_go_back_as_in_the_example_for_anthropic",
        "test_results_go_back_as_in_the_example_for_gemini",
        "test_results_go_back_as_in_the_example_for_ollama",
        "test_results_go_back_as_in_the_example_for_openai_chat",
        "test_results_go_back_as_in_the_example_for_openai_responses",
    ),
    "tests/providers/transports/test_mcp.py": (
        "test_a_client_of_the_handshake_is_read",
        "test_a_client_that_says_its_version_every_time_is_read",
        "test_what_a_server_sends_is_read_as_well",
    ),
    "tests/providers/live/test_gemini_live_transport.py": (
        "test_every_message_of_the_example_is_understood",
        "test_every_message_of_the_example_can_be_produced",
    ),
    "tests/providers/live/test_openai_realtime_transport.py": (
        "test_every_event_of_the_example_is_understood",
        "test_every_event_of_the_example_can_be_produced",
        "test_the_retired_beta_events_run_nothing_and_are_counted_where_their_names_are_gone",
        "test_the_session_is_not_asked_for_in_the_beta_shape",
    ),
}
"""Tests that read examples, by their module, without those that load an SDK. A name that no test has is an error of pytest's."""


def read_by_tests(notes: Path) -> set[str]:
    wanted = [f"{module}::{name}" for module, names in READERS.items() for name in names]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *wanted],
        cwd=ROOT,
        env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", NOTED_IN: str(notes)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(notes.read_text("utf-8").split())


def test_every_example_is_parsed_or_produced_by_a_test(tmp_path):
    assert read_by_tests(tmp_path / "read.txt") == FILES


def test_the_index_names_every_example():
    index = json.loads((EXAMPLES / "index.json").read_text("utf-8"))
    assert {one["file"] for one in index["files"]} == FILES
