#!/usr/bin/env bash
# The edges between the packages of this workspace run one way: the client and the helper know
# the protocol, the tests know all, and the client knows the helper through one feature.
set -euo pipefail

status=0

# edges PACKAGE EXPECTED [CARGO-TREE-OPTION...]: the workspace packages that it depends on.
edges() {
    local package=$1 expected=$2 found
    shift 2
    found=$(cargo tree -p "$package" -e normal,build,dev --depth 1 --prefix none --format '{p}' "$@" |
        tail -n +2 | awk '/\(\// && $1 ~ /^foster/ {print $1}' | sort -u | tr '\n' ' ' | sed 's/ $//')
    if [ "$found" = "$expected" ]; then
        echo "$package${*:+ $*} -> ${found:-nobody}"
    else
        echo "$package${*:+ $*} -> ${found:-nobody}, where it may be ${expected:-nobody}"
        status=1
    fi
}

edges foster-protocol ''
edges foster-helper 'foster-protocol'
edges foster 'foster-helper foster-protocol'
edges foster 'foster-protocol' --no-default-features --features cli
edges foster 'foster-protocol' --no-default-features
edges foster-tests 'foster foster-helper foster-protocol'

# The doors of this package to the helper: a re-executed host, and the hidden `foster helper`.
if grep -rlE '\bfoster_helper\b' src | grep -vxE 'src/(init|cli/mod)\.rs'; then
    echo "the helper crate is named outside of src/init.rs and src/cli/mod.rs"
    status=1
fi

# The helper carries no command line, no async runtime and no JSON.
if cargo tree -p foster-helper -e normal --prefix none --format '{p}' |
    awk '{print $1}' | grep -xE 'clap|tokio|mio|async-.*|serde_json|regex'; then
    echo "too heavy for the helper"
    status=1
fi
exit "$status"
