#!/usr/bin/env bash
# README.md promises commands. This takes them out of its shell blocks, compares them with the
# list below, and runs each as it stands there.
set -euo pipefail

# Exit code and command: 124 is "the timeout ended it".
expected=$(cat <<'COMMANDS'
124 cargo run --release -- run --timeout 2s --report - -- sh -c 'sleep 600 & sleep 600'
0 cargo test --workspace
COMMANDS
)

found=$(awk '/^```sh$/ {on=1; next} /^```/ {on=0} on && NF && !/^#/' README.md)
if ! diff <(cut -d' ' -f2- <<<"$expected" | sort) <(sort <<<"$found"); then
    echo "the commands of README.md (>) are not those that are run here (<)"
    exit 1
fi

while read -r code command; do
    printf '\n$ %s\n' "$command"
    status=0
    output=$(mktemp)
    # Nothing of the command may wait for a terminal; its output goes on and is kept.
    bash -c "$command" </dev/null > >(tee "$output") 2> >(tee -a "$output" >&2) || status=$?
    if [ "$status" -ne "$code" ]; then
        echo "exit code $status where $code was expected"
        exit 1
    fi
    if [ "$code" -eq 124 ]; then
        # What README.md says that this command shows.
        for wanted in '"reason":"timeout"' '"verdict":"all-gone"' '"survivors":[]'; do
            grep -qF "$wanted" "$output" || { echo "the report lacks $wanted"; exit 1; }
        done
    fi
    rm -f "$output"
done <<<"$expected"
