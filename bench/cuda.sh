#!/bin/sh
# bench/cuda.sh [PROGRAM] [FOLDER]: what a GPU can show, in about eight minutes: facts about the card, bits
# (logits of the tiny model on the GPU against the CPU), then speed on a synthetic model of the 35B's
# shapes. Each stage may fail alone; a table ends it, and the status is 1 where a stage failed.
# Status 3: no GPU; the cause is printed. PROGRAM: build/pantheon after `make cuda`. FOLDER: for the
# model (20 GB), /tmp. PN_LAYERS=n: a model of fewer layers, for cards with less memory or time.
set -u
program=${1:-build/pantheon}
folder=${2:-/tmp}
work=$(mktemp -d "$folder/pantheon-cuda-XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
table=$work/table
failed=0
[ -x "$program" ] || { echo "$program is missing: make cuda builds it" >&2; exit 2; }

stage() { # name, command...: its last line into the table
    name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        printf '%-28s %s\n' "$name" "$(tail -n 1 "$work/out")" >>"$table"
    else
        failed=1
        printf '%-28s FAILED: %s\n' "$name" "$(tail -n 1 "$work/out")" >>"$table"
    fi
    tail -n 1 "$table"
}
logits() { # device, file, options...
    device=$1 out=$2
    shift 2
    "$program" logits --device "$device" -o "$out" --tokens "$tokens" "$@"
}
same_bits() { # options...: GPU and CPU agree
    logits cuda "$work/gpu" "$@" && cmp "$work/cpu" "$work/gpu" && echo "equal bits"
}
fused() { # mask of QWEN35_FUSE
    (
        QWEN35_FUSE=$1
        export QWEN35_FUSE
        same_bits
    )
}
speed() { # options of pantheon bench: its figures as one line
    "$program" bench --device cuda -m "$work/model.gguf" -r 3 "$@" | tr '\n' ';'
    echo
}

tokens=$(seq -s , 10 57)
if ! logits cuda "$work/gpu" >"$work/out" 2>&1; then
    tail -n 1 "$work/out" >&2
    exit 3
fi

# --- the card, bits
stage card nvidia-smi --query-gpu=name,driver_version,pci.bus_id,memory.total --format=csv,noheader
stage "logits on the CPU" logits cpu "$work/cpu"
stage "bits: one pass" same_bits
for batch in 1 5 16; do
    stage "bits: batch $batch" same_bits --batch "$batch"
done
stage "bits: experts on the CPU" same_bits --cpu-moe
stage "bits: some on the CPU" same_bits --n-cpu-moe 3
for mask in 0 1 2 4 8 16 32 64 128 256; do
    stage "bits: QWEN35_FUSE=$mask" fused $mask
done
for kv in f32 q8_0; do
    stage "CPU: $kv" logits cpu "$work/cpu" --kv-type $kv
    stage "bits: $kv" same_bits --kv-type $kv
done

# --- speed
stage "synthetic model" "$program" synth --preset 35b-a3b --quant q4_k_m ${PN_LAYERS:+--layers "$PN_LAYERS"} -o "$work/model.gguf"
stage "plan" "$program" logits --device cuda --plan -m "$work/model.gguf" --tokens 1 -o "$work/gpu"
for depth in 0 4096 32768; do
    stage "decode at $depth" speed -p 0 -n 64 -d "$depth" --ctx 33024
done
for n in 512 2048 8192; do
    stage "prefill $n" speed -p "$n" -n 0 --ctx 8448
done
stage "stages of decode" env QWEN35_PROF=1 "$program" bench --device cuda -m "$work/model.gguf" -p 0 -n 32 -r 1

echo
cat "$table"
exit $failed
