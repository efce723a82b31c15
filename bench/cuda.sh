#!/bin/sh
# bench/cuda.sh [PROGRAM] [FOLDER]: what a GPU can show, in eight minutes: bits (every kernel's test and
# the logits of the tiny model, on the GPU against the CPU), NVIDIA's checkers, what the card reaches at
# best, the kernels at the 35B's shapes, then a synthetic model of these shapes. Every stage has a time
# limit and may fail alone. A table ends it, also when it is interrupted; status 1 where a stage failed.
# Status 3: no GPU; the cause is printed. PROGRAM: build/pantheon after `make cuda`, with card-bits and
# card-kernels beside it. FOLDER: for the model (22 GB), /tmp.
# PN_QUANT=q3_k_m: another mix than q4_k_m, as for two dies of a K80. PN_LAYERS=n: a model of fewer
# layers, for cards with less memory or time. PN_SECONDS=n: in all.
# PN_DRY=1: the same stages at sizes for the stand-in of the tests (docs/CUDA.md), in a minute; without
# NVIDIA's checkers, which need a card. PN_SANITIZER=FILE: compute-sanitizer, where it is not found.
set -u
root=$(dirname "$0")/..
program=${1:-build/pantheon}
folder=${2:-/tmp}
beside=$(dirname "$program")
end=$(($(date +%s) + ${PN_SECONDS:-470}))
for need in "$program" "$beside/card-bits" "$beside/card-kernels"; do
    [ -x "$need" ] || { echo "$need is missing: make cuda builds it" >&2; exit 2; }
done
work=$(mktemp -d "$folder/pantheon-cuda-XXXXXX") || exit 2
table=$work/table
failed=0 running= sanitizer=${PN_SANITIZER:-}
tiny=$root/models/pantheon-tiny-Q4_K_M.gguf

finish() {
    if [ -s "$table" ]; then
        echo
        cat "$table"
    fi
    rm -rf "$work"
}
interrupted() {
    printf '%-28s %s\n' interrupted "what follows is missing" >>"$table"
    if [ -n "$running" ]; then
        kill "$running" 2>/dev/null
        wait "$running"
    fi
    exit 1
}
trap finish EXIT
trap interrupted INT TERM HUP

# run SECONDS COMMAND...: into $work/out, within the limit and what is left of all the time; in the
# background, so that an interruption is heard at once.
run() {
    limit=$1
    shift
    left=$((end - $(date +%s)))
    [ "$limit" -lt "$left" ] || limit=$left
    if [ "$limit" -lt 1 ]; then
        echo "left out: the time is over" >"$work/out"
        return 124
    fi
    timeout -k 5 "$limit" "$@" >"$work/out" 2>&1 &
    running=$!
    wait "$running"
    status=$?
    running=
    [ $status -ne 124 ] || echo "stopped after $limit s" >>"$work/out"
    return $status
}
# stage NAME SECONDS COMMAND...: its last line into the table.
stage() {
    name=$1
    shift
    if run "$@"; then
        printf '%-28s %s\n' "$name" "$(tail -n 1 "$work/out")" >>"$table"
    else
        failed=1
        printf '%-28s FAILED: %s\n' "$name" "$(tail -n 1 "$work/out")" >>"$table"
    fi
    tail -n 1 "$table"
}
# lines NAME SECONDS COMMAND...: all its lines.
lines() {
    name=$1
    stage "$@"
    sed '$d' "$work/out" | sed 's/^/    /' | tee -a "$table"
}
cat >"$work/step" <<'END'
# What a stage may be beside a program; the shell runs it as: step FUNCTION ARGUMENT...
set -u
logits() { # device, file, options...
    device=$1 out=$2
    shift 2
    "$program" logits -m "$tiny" --device "$device" -o "$out" --tokens "$tokens" "$@"
}
same_bits() { # options...: GPU and CPU agree
    logits cuda "$work/gpu" "$@" && cmp "$work/cpu" "$work/gpu" && echo "equal bits"
}
speed() { # decode or prefill, options of pantheon bench: its figure
    what=$1
    shift
    "$program" bench --device cuda -m "$work/model.gguf" "$@" >"$work/figures" || return
    grep "^$what" "$work/figures"
}
clean() { # tool, command...: the verdict of compute-sanitizer
    tool=$1
    shift
    "$sanitizer" --tool "$tool" --error-exitcode 9 "$@" >"$work/verdict" 2>&1
    status=$?
    cat "$work/verdict"
    grep '^=========' "$work/verdict" | tail -n 1
    return $status
}
"$@"
END
step=$work/step

# --- sizes
if [ -n "${PN_DRY:-}" ]; then
    export SMALL=1
    n_token=5 n_long=9 batches="1 3" masks="0 8" kv_types=q8_0
    preset="--preset tiny --layers 4" depths="0 4 140" prompts="9 17 33" n_predict=2 repeat=1 ctx=256
    some_bits=qmv_tail
else
    n_token=48 n_long=1500 batches="1 5 16" masks="0 1 2 4 8 16 32 64 128 256 512 1024 2048" kv_types="f32 q8_0"
    preset="--preset 35b-a3b${PN_LAYERS:+ --layers $PN_LAYERS}"
    depths="0 4096 32768" prompts="512 2048 8192" n_predict=64 repeat=3 ctx=33024
    some_bits=
fi
tokens=$(seq -s , 10 $((9 + n_token)))
long=$(seq -s , 10 $((9 + n_long))) # on two GPUs: in micro-batches
[ -n "${PN_DRY:-}$sanitizer" ] || sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer \
    "$root/build/cuda/sanitizer/compute-sanitizer" 2>/dev/null | head -n 1)

export program work tiny tokens sanitizer
if ! run 60 sh "$step" logits cuda "$work/gpu"; then
    tail -n 1 "$work/out" >&2
    exit 3
fi

# --- the card, bits
if command -v nvidia-smi >/dev/null; then
    stage card 20 nvidia-smi --query-gpu=name,driver_version,pci.bus_id,memory.total --format=csv,noheader
fi
stage "bits: every kernel's tests" 120 env ${some_bits:+ONLY=$some_bits} "$beside/card-bits"
stage "logits on the CPU" 30 sh "$step" logits cpu "$work/cpu"
stage "bits: one pass" 30 sh "$step" same_bits
for batch in $batches; do
    stage "bits: batch $batch" 30 sh "$step" same_bits --batch "$batch"
done
stage "bits: experts on the CPU" 30 sh "$step" same_bits --cpu-moe
stage "bits: some on the CPU" 30 sh "$step" same_bits --n-cpu-moe 3
for mask in $masks; do
    stage "bits: QWEN35_FUSE=$mask" 30 env QWEN35_FUSE="$mask" sh "$step" same_bits
done
for kv in $kv_types; do
    stage "CPU: $kv" 30 sh "$step" logits cpu "$work/cpu" --kv-type "$kv"
    stage "bits: $kv" 30 sh "$step" same_bits --kv-type "$kv"
done

stage "CPU: a long prompt" 30 env tokens="$long" sh "$step" logits cpu "$work/cpu"
stage "bits: a long prompt" 30 env tokens="$long" sh "$step" same_bits
if run 30 env QWEN35_GPU_DIE_B=1 sh "$step" logits cuda "$work/gpu" || ! grep -q "there is no device 1" "$work/out"; then
    stage "bits: two GPUs, long" 30 env QWEN35_GPU_DIE_B=1 tokens="$long" sh "$step" same_bits
    stage "CPU: as before" 30 sh "$step" logits cpu "$work/cpu"
    for batch in $batches; do
        stage "bits: two GPUs, batch $batch" 30 env QWEN35_GPU_DIE_B=1 sh "$step" same_bits --batch "$batch"
    done
fi

# --- NVIDIA's checkers
if [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck; do
        stage "$tool: kernels" 40 env ONLY=tail sh "$step" clean $tool "$beside/card-bits"
        for batch in 1 16; do
            stage "$tool: batch $batch" 20 sh "$step" clean $tool "$program" logits -m "$tiny" --device cuda \
                -o "$work/gpu" --tokens 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 --batch $batch
        done
    done
else
    printf '%-28s %s\n' "memcheck, racecheck" "SKIPPED: there is no compute-sanitizer" | tee -a "$table"
fi

# --- speed
lines "the card at best" 60 env ONLY=limits "$beside/card-kernels"
for kernels in products experts delta attention; do
    lines "kernels: $kernels" 90 env ONLY=$kernels "$beside/card-kernels"
done
stage "synthetic model" 150 "$program" synth $preset --quant "${PN_QUANT:-q4_k_m}" -o "$work/model.gguf"
stage plan 30 "$program" logits --device cuda --plan -m "$work/model.gguf" --tokens 1 -o "$work/gpu"
for depth in $depths; do
    stage "decode at $depth" 90 sh "$step" speed decode -p 0 -n $n_predict -r $repeat -d "$depth" --ctx $ctx
done
for n in $prompts; do
    stage "prefill $n" 60 sh "$step" speed prefill -p "$n" -n 0 -r $repeat --ctx $ctx
done
lines "stages of decode" 60 env QWEN35_PROF=1 "$program" bench --device cuda -m "$work/model.gguf" \
    -p 0 -n $n_predict -r 1 --ctx $ctx
exit $failed
