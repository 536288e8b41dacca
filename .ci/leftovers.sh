#!/usr/bin/env bash
# Nothing of this run may be alive at its end. What it started carries its mark in the
# environment; what the tests spawned carries FOSTER_TRACER. This only looks.
set -euo pipefail

mark="FOSTER_CI_RUN=$FOSTER_CI_RUN"
unset FOSTER_CI_RUN # For the processes of this very look.

# This shell and those that wait for it carry the mark, too.
ancestors() {
    local pid=$$
    while [ "$pid" -gt 1 ]; do
        echo "$pid"
        pid=$(awk '/^PPid:/ {print $2}' "/proc/$pid/status")
    done
}
waiting=$(ancestors)

# "pid start-time" of every other process that carries a mark: both together name one process.
carriers() {
    local environ pid
    # A process that has gone in between cannot be read, which grep says with 2, and is not left.
    { grep -lzE "^(${mark}|FOSTER_TRACER=.*)\$" /proc/[0-9]*/environ 2>/dev/null || true; } |
        while IFS= read -r environ; do
            pid=${environ#/proc/}
            pid=${pid%/environ}
            grep -qxF "$pid" <<<"$waiting" && continue
            # Behind the name, which may hold anything, the start time is the 20th field.
            { sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null || true; } |
                awk -v pid="$pid" '{print pid, $20}'
        done | sort
}

# Tests of another run on this machine carry FOSTER_TRACER as well, and go by themselves: left is
# who is there in every look of ten seconds.
left=$(carriers)
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -z "$left" ] && break
    sleep 1
    left=$(comm -12 <(echo "$left") <(carriers))
done
if [ -n "$left" ]; then
    echo "left at the end:"
    while read -r pid _; do
        printf '%s %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" || true)"
    done <<<"$left"
    exit 1
fi
echo "nothing is left"
