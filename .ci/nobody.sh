#!/usr/bin/env bash
# The suite as an ordinary user (65534, no groups): each sees cases that the other cannot.
# It is built as it stands, by whoever runs this, and only the tests run as that user.
set -euo pipefail

user=65534
if [ "$(id -u)" -ne 0 ]; then
    echo "not run here: only root can become another user; the suite ran as $(id -u) before"
    exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
mkdir "$scratch/tmp"
chown "$user:$user" "$scratch/tmp"
as_user() {
    setpriv --reuid "$user" --regid "$user" --clear-groups \
        env HOME="$scratch/tmp" TMPDIR="$scratch/tmp" "$@"
}

# Paths of the sources are compiled into the tests. Where the user cannot come here, the sources
# and what is built of them go to a place that it can read.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
if ! as_user test -r "$PWD/Cargo.toml" || ! as_user test -x "$target/debug"; then
    echo "user $user cannot read $PWD and $target: building a copy"
    mkdir "$scratch/copy"
    tar -c --exclude=./target --exclude=./.git . | tar -x -C "$scratch/copy"
    chmod -R a+rX "$scratch/copy"
    cd "$scratch/copy"
    target=$scratch/target
fi
export CARGO_TARGET_DIR=$target

# "Executable unittests src/lib.rs (target/debug/deps/foster-0123456789abcdef)"
cargo test --workspace --no-run 2>&1 | tee "$scratch/built"
tests=$(sed -nE 's/^ *Executable .*\((.*)\)$/\1/p' "$scratch/built")
[ -n "$tests" ]
status=0
while read -r test; do
    printf '\nas user %s: %s\n' "$user" "${test##*/}"
    as_user "$(realpath "$test")" </dev/null || status=1
done <<<"$tests"
exit "$status"
