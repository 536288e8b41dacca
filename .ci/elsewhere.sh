#!/usr/bin/env bash
# The platforms that are not this one. The tests of Windows run, under Wine; for macOS, FreeBSD,
# Linux with musl and Linux on ARM the compiler alone has its say. Needs Debian or a relative of
# it: its own compiler comes with the source of the standard library, which is built for each
# target here, so that no toolchain but this one is needed. Every step is bounded in time.
#
# `.ci/elsewhere.sh [windows] [TARGET...]` does those alone.
set -euo pipefail
cd "$(dirname "$0")/.."

elsewhere=$(realpath -m "${CARGO_TARGET_DIR:-target}")/elsewhere
# One folder for all: what the host's own compiler makes is made once.
export CARGO_TARGET_DIR=$elsewhere
export WINEPREFIX=$elsewhere/wine WINEDEBUG=-all
export CARGO_TERM_COLOR=never
# Nobody looks for lines here, and half of the time goes into them.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
checked=(x86_64-apple-darwin x86_64-unknown-freebsd x86_64-unknown-linux-musl aarch64-unknown-linux-gnu)
windows=x86_64-pc-windows-gnu
packages=(rustc-web cargo-web rust-web-src gcc-mingw-w64-x86-64 wine wine64)

# The distribution's cargo with its own compiler, which may build the standard library.
debian_cargo() { # SECONDS ARGUMENT...
    local limit=$1
    shift
    PATH=/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 timeout "$limit" /usr/bin/cargo "$@"
}

install_packages() {
    local package missing=()
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing+=("$package")
    done
    [ "${#missing[@]}" -eq 0 ] && return
    echo "installing ${missing[*]}"
    timeout 60 apt-get update -qq
    timeout 240 apt-get install -y --no-install-recommends "${missing[@]}"
}

# Ends the server of this prefix alone, and whatever still runs in it.
end_wine() {
    timeout 20 wineserver -k || true
    timeout 20 wineserver -w || true
}

make_prefix() {
    [ -e "$WINEPREFIX/system.reg" ] && return
    mkdir -p "$WINEPREFIX"
    # It says what it did not find, such as a display; what is needed is looked at below.
    timeout 120 wineboot -u >"$elsewhere/wineboot.log" 2>&1 || true
    timeout 60 wineserver -w || true
    [ -e "$WINEPREFIX/system.reg" ] || { cat "$elsewhere/wineboot.log"; return 1; }
}

run_windows() {
    local log=$elsewhere/windows.log program folder
    debian_cargo 400 test -p foster --lib --test windows --no-run --target "$windows" \
        -Zbuild-std=std,panic_abort,panic_unwind,test 2>&1 | tee "$log"
    make_prefix
    trap end_wine EXIT
    # A library that this Wine may lack. A Wine that has it takes its own.
    folder=$elsewhere/$windows/debug/deps
    timeout 30 x86_64-w64-mingw32-gcc -shared -o "$folder/bcryptprimitives.dll" \
        tests/windows/bcryptprimitives.c -ladvapi32
    local programs
    mapfile -t programs < <(sed -n 's/^ *Executable .*(\(.*\.exe\))$/\1/p' "$log")
    [ "${#programs[@]}" -eq 2 ] || { echo "not two test programs: ${programs[*]}"; return 1; }
    for program in "${programs[@]}"; do
        timeout 150 wine "$program" </dev/null
    done
    end_wine
    trap - EXIT
    echo "run under $(wine --version): $windows"
}

check_target() { # TARGET
    local what=(-p foster --lib)
    # The helper, and the command that needs it, are Linux's.
    [[ $1 != *-linux-* ]] || what=(-p foster -p foster-helper --lib --bins)
    RUSTFLAGS="-D warnings" debian_cargo 400 check "${what[@]}" --target "$1" -Zbuild-std=std,panic_abort
    echo "compiles, and was not run: $1 (${what[*]})"
}

[ $# -gt 0 ] || set -- windows "${checked[@]}"
install_packages
mkdir -p "$elsewhere"
for what in "$@"; do
    started=$SECONDS
    printf '\n--- %s\n' "$what"
    case $what in
    windows) run_windows ;;
    *) check_target "$what" ;;
    esac
    echo "--- $what took $((SECONDS - started)) s"
done
