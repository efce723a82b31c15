#!/bin/sh
# all_tested.sh FOLDER: every kernel of the device code was run by a test (the .ran files of the
# programs in FOLDER), else it is named and the exit status is 1.
set -eu
cd "$1"
if [ ! -e kernel_names.inc ]; then
    echo "tests/cuda: SKIPPED, the shim is x86-64 code"
    exit 0
fi
sed 's/.*(\(.*\))/\1/' kernel_names.inc | sort -u >kernel_names
cat test_*.ran | sort -u >kernels_ran
untested=$(comm -23 kernel_names kernels_ran)
[ -z "$untested" ] || { echo "tests/cuda: no test runs" $untested; exit 1; }
echo "tests/cuda: all $(wc -l <kernel_names) kernels are run by a test"
