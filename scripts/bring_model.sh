#!/bin/sh
# Brings MiniLM for `make run`, so that search by meaning works from the first start. With a good connection the model is
# there in seconds. A slow one does not hold the server up: the download goes on beside it, and the next start uses the model.
# The vectors of the knowledge base are made beside the server too, at low priority; they take half a minute of one core. Where
# that was announced, a line says when it is done.
set -eu
cd "$(dirname "$0")/../build/run"
seconds=${MODEL_SECONDS:-30}
log=model.txt

handrail() {
    nice ../../.venv/bin/python -m handrail "$@"
}

rm -f model.there model.late
announced=
if [ ! -f kb.db ]; then
    announced=yes
    echo "Search by meaning is being prepared beside the server; until it is ready, search knows words only."
fi
(
    handrail models install minilm && : >model.there
    [ -f kb.db ] || handrail kb search handrail >/dev/null # makes the knowledge base, with its first pages
    handrail kb embed && [ -f model.there ] && if [ -f model.late ]; then
        echo "MiniLM is there: search knows meanings from the next start on." >&3
    elif [ -n "$announced" ]; then
        echo "Search by meaning is ready." >&3
    fi
) 3>&1 >"$log" 2>&1 &
bringing=$!

waited=0
while [ ! -f model.there ]; do
    if ! kill -0 "$bringing" 2>/dev/null; then
        # It may have ended between the two looks.
        # The last line is the reason: a download that failed, or settings that stop every command.
        [ -f model.there ] || echo "MiniLM is not there, so search knows words only; the next start tries again. $(tail -n 1 "$log")"
        exit 0
    fi
    if [ "$waited" = 3 ]; then
        echo "Bringing MiniLM, the model that searches by meaning (91 MB, once) ..."
    fi
    if [ "$waited" -ge "$seconds" ]; then
        : >model.late
        echo "MiniLM takes longer: it comes while the server runs, and the next start uses it. Until then search knows words only."
        exit 0
    fi
    sleep 1
    waited=$((waited + 1))
done
