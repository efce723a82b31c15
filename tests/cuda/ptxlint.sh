#!/bin/sh
# ptxlint.sh PTX...: every float operation in the compiled device code is an IEEE one that the source
# wrote: rounding .rn, no .approx, .ftz or .full, no double, no function of the hardware's. (What has no
# .rn the assembler might fuse or relax.) A comparison with a constant may have become min or max, which
# is the same; f16 to f32 is exact.
set -eu
bad=0
for file; do
    awk -v file="$file" '
        { sub(/^[ \t]+/, ""); sub(/^@!?%[a-z0-9]+[ \t]+/, "") }
        $1 !~ /^[a-z][a-z0-9]*\.[a-z0-9:._]*(f16|f32|f64|bf16|tf32)/ || $1 ~ /^\./ { next }
        { split($1, part, "."); op = part[1]; n[op]++ }
        $1 ~ /\.(approx|ftz|full|sat|f64|f16x2|bf16|tf32|rm|rp|rz)(\.|$)/ ||
        op ~ /^(ex2|lg2|sin|cos|rsqrt|tanh|mad)$/ || (op ~ /^(min|max)$/ && !/, 0f[0-9A-F]+;/) ||
        (op ~ /^(add|sub|mul|fma|div|sqrt|rcp)$/ && $1 !~ /\.rn(\.|$)/) ||
        (op == "cvt" && $1 !~ /\.(rn|rzi|rni|f32\.f16)(\.|$)/) { print file ":" NR ": " $0; bad++ }
        END {
            printf "%s:", file
            for (op in n) printf " %s %d", op, n[op]
            printf "%s\n", bad ? ": NOT IEEE" : ""
            exit bad > 0
        }' "$file" || bad=1
done
exit $bad
