#!/bin/sh
# usage: aarch64.sh HERE THERE    (by `make aarch64`)
# The build for aarch64 in THERE, under qemu, must give the bits of the build for this machine in
# HERE: all kernels by the digest of their scalar results, whole models by the digests of their
# logits. Each level runs on the least processor that has it, so that an instruction of a later one
# is found, and each processor must choose the levels that it has.
set -eu
here=$1
there=$2
data=tests/golden/data/model
small="$data/variants/base.gguf $data/variants/f16.gguf $data/variants/q8.gguf $data/variants/q51.gguf"
trained="models/pantheon-tiny-Q4_K_M.gguf $data/trunk-Q3_K_M.gguf"
unset SOAK BENCH ONLY
export SEED=1

run() { # name of the output, then the command
    out=$there/$1.txt
    shift
    "$@" >"$out" || { cat "$out"; exit 1; }
}
logits() { # name of the output, level, the program: a page of the KV cache and more, then large rows
    to=$1
    isa=$2
    shift 2
    run "$to" "$@" "$isa" $data/prompts.i32 150 $small
    run trained "$@" "$isa" $data/prompts.i32 24 $trained
    cat "$there/trained.txt" >>"$there/$to.txt"
}
level() { # processor, its best level, all its levels
    run list env ONLY=none qemu-aarch64 -cpu "$1" "$there/tests/kernels/test_kernels"
    has=$(awk '/ slots,/ { printf "%s ", $1 }' "$there/list.txt")
    [ "$has" = "$3 " ] || { echo "aarch64: $1 has the levels $has, expected $3"; exit 1; }
    run "$2" env ISA="$2" qemu-aarch64 -cpu "$1" "$there/tests/kernels/test_kernels"
    logits logits auto qemu-aarch64 -cpu "$1" "$there/tests/golden/logits_digest"
    diff "$there/logits.here.txt" "$there/logits.txt"
    echo "aarch64: $1: $(sed -n 2p "$there/$2.txt"); logits of $(wc -l <"$there/logits.txt") models"
}

run here env ISA=scalar "$here/tests/kernels/test_kernels"
run scalar env ISA=scalar qemu-aarch64 -cpu cortex-a53 "$there/tests/kernels/test_kernels"
diff "$there/here.txt" "$there/scalar.txt"
logits logits.here auto "$here/tests/golden/logits_digest"
level cortex-a53 neon "scalar neon"
level cortex-a76 dotprod "scalar neon dotprod"
level max i8mm "scalar neon dotprod i8mm"
echo "aarch64: the same $(tail -n 1 "$there/here.txt")"
