#!/bin/sh
# usage: aarch64.sh KERNEL_TEST DIR    (by `make aarch64`)
# The kernel tests for aarch64 in DIR under qemu. Each level runs on the least processor that has it, so
# that an instruction of a later one is found; each processor must choose the levels that it has;
# and the scalar results must be those of KERNEL_TEST on this machine, by their digest.
set -eu
here=$1
dir=$2
there=$dir/tests/kernels/test_kernels
unset SOAK BENCH ONLY
export SEED=1

run() { # name of the output, then the command
    out=$dir/$1.txt
    shift
    "$@" >"$out" || { cat "$out"; exit 1; }
}
level() { # processor, its best level, all its levels
    run list env ONLY=none qemu-aarch64 -cpu "$1" "$there"
    has=$(awk '/ slots,/ { printf "%s ", $1 }' "$dir/list.txt")
    [ "$has" = "$3 " ] || { echo "aarch64: $1 has the levels $has, expected $3"; exit 1; }
    run "$2" env ISA="$2" qemu-aarch64 -cpu "$1" "$there"
    echo "aarch64: $1: $(sed -n '2p' "$dir/$2.txt")"
}

run here env ISA=scalar "$here"
run scalar env ISA=scalar qemu-aarch64 -cpu cortex-a53 "$there"
diff "$dir/here.txt" "$dir/scalar.txt"
level cortex-a53 neon "scalar neon"
level cortex-a76 dotprod "scalar neon dotprod"
level max i8mm "scalar neon dotprod i8mm"
echo "aarch64: the same $(tail -n 1 "$dir/here.txt")"
