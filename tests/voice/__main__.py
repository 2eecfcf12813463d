"""`python -m tests.voice --conversations 300`: the chaos with each provider, and its control; see `chaos`."""

import argparse
import asyncio
import logging

from tests.clients.live.kit import PROVIDERS
from tests.voice import socket_chaos
from tests.voice.chaos import play_many, without_the_ledger


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1_000)
    parser.add_argument("--control", type=int, default=30, help="conversations of the control, with each provider")
    parser.add_argument("--at-once", type=int, default=4)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    wrong = 0
    for provider in PROVIDERS:
        seeds = range(options.seed, options.seed + options.conversations)
        over_sockets = seeds[::5]
        tally = asyncio.run(
            play_many(provider, [seed for seed in seeds if seed not in over_sockets], at_once=options.at_once)
        )
        print(f"{provider}: {tally}", flush=True)
        sockets = asyncio.run(play_many(provider, over_sockets, at_once=2, one_play=socket_chaos.play))
        print(f"{provider}, over sockets: {sockets}", flush=True)
        if not tally.by_voice:
            wrong += 1
            print("   nothing was approved by voice, so nothing was found out about it")
        for found in (*tally.wrong, *sockets.wrong):
            wrong += 1
            print("  ", found)
        if options.control:
            with without_the_ledger():
                control = asyncio.run(play_many(provider, seeds[: options.control], at_once=options.at_once))
            print(f"{provider}, control: {control.effects} effects, {len(control.doubled)} doubled", flush=True)
            wrong += not control.doubled
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
