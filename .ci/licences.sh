#!/usr/bin/env bash
# Licences, sources and bans of the dependencies: the part of deny.toml that needs no tool of its
# own. Where cargo-deny is installed, it checks all of it, advisories included.
set -euo pipefail

if cargo deny --version 2>/dev/null; then
    cargo deny --workspace check
    exit
fi

status=0
listed() { # NAME: the quoted words of the list of this name in deny.toml
    awk -v name="$1" '$0 ~ "^"name" = \\[" {on=1} on {print} on && /\]/ {exit}' deny.toml |
        grep -oE '"[^"]+"' | tr -d '"'
}
allowed=$(listed allow)

packages=$(cargo tree --workspace --target all -e normal,build,dev --prefix none --format '{p}|{l}' |
    sed 's/ (\*)$//' | sort -u)

# A choice (OR, /) needs one allowed side, a sum (AND) all of them.
is_allowed() {
    local choice part ok
    while IFS= read -r choice; do
        ok=1
        while IFS= read -r part; do
            grep -qxF -- "$part" <<<"$allowed" || ok=0
        done < <(sed 's/ AND /\n/g; s/^ *//; s/ *$//' <<<"$choice" | sed 's/^ *//; s/ *$//')
        [ "$ok" -eq 1 ] && return 0
    done < <(tr -d '()' <<<"$1" | sed 's# OR #\n#g; s#/#\n#g')
    return 1
}

count=0
while IFS='|' read -r package licence; do
    [ -n "$package" ] || continue
    count=$((count + 1))
    if ! is_allowed "$licence"; then
        echo "licence not allowed: $package: $licence"
        status=1
    fi
done <<<"$packages"

# One source: the registry. Own packages are paths.
if grep -E '^source = ' Cargo.lock | grep -v '"registry+'; then
    echo "a source that is not the registry"
    status=1
fi

# The one exception to the advisories, at the one version that it holds for.
if ! grep -A1 -x 'name = "bincode"' Cargo.lock | grep -qx 'version = "2.0.1"'; then
    echo "bincode is not at 2.0.1, for which the exception of deny.toml holds"
    status=1
fi
[ "$status" -eq 0 ] && echo "$count packages: licences and sources are allowed"
exit "$status"
