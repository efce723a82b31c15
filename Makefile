# The only build file. `make run` and `make test` install what is missing, build and do what they say.
#   BUILD=release (default) | debug | asan | tsan     chooses flags for any target
#   O=DIR                                             where objects go (default build/$(BUILD))
BUILD ?= release
O     ?= build/$(BUILD)
BIN   := $(if $(filter build/release,$(O)),build/pantheon,$(O)/pantheon)
PREFIX ?= /usr/local
CC    := gcc
AR    ?= ar
V_MAJOR := 0

WARN  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes $(if $(CI),-Werror)
# One arithmetic: no contraction that the source does not ask for, never -ffast-math.
ARITH := -ffp-contract=off -fno-math-errno -fno-trapping-math
BASE  := -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -fPIC -fvisibility=hidden -pthread -g $(ARITH) $(WARN)
FLAGS_release := -O3 -fno-plt
FLAGS_debug   := -O1 -DPN_DEBUG -fno-omit-frame-pointer
FLAGS_asan    := -O1 -DPN_DEBUG -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
FLAGS_tsan    := -O1 -DPN_DEBUG -fno-omit-frame-pointer -fsanitize=thread
FLAGS_fuzz    := $(FLAGS_asan) -fsanitize=fuzzer-no-link
ALL_CFLAGS  = $(BASE) $(FLAGS_$(BUILD)) $(CFLAGS)
ALL_LDFLAGS = $(FLAGS_$(BUILD)) -pthread $(LDFLAGS)
LDLIBS := -ljansson -lutf8proc -lm
CLI_LDLIBS := -ledit

# A folder of kernels/ is one instruction set level; its flags are used nowhere else.
ISA_avx2    := -mavx2 -mfma -mf16c -mbmi2
ISA_avxvnni := $(ISA_avx2) -mavxvnni
ISA_avx512  := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mprefer-vector-width=512
ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
NOT_BUILT := $(if $(filter x86_64,$(ARCH)),src/kernels/neon/%,src/kernels/avx%)
# clang 14 needs many minutes for these files with -fsanitize=undefined; gcc's asan build has them.
ISA_MORE := $(if $(filter fuzz,$(BUILD)),-fno-sanitize=undefined)
isa_flags = $(foreach d,avx2 avxvnni avx512,$(if $(findstring src/kernels/$(d)/,$(1)),$(ISA_$(d)) $(ISA_MORE)))

LIB_SRC := $(filter-out $(NOT_BUILT),$(wildcard src/base/*.c src/gguf/*.c src/quant/*.c src/kernels/*.c \
             src/kernels/*/*.c src/tokenizer/*.c src/chat/*.c src/sampling/*.c src/models/*.c \
             src/engine/*.c src/tools/*.c))
CLI_SRC := $(wildcard src/cli/*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(O)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(O)/%.o)
LIB     := $(O)/libpantheon.a
SO      := $(O)/libpantheon.so.$(V_MAJOR)

TEST_SRC := $(wildcard tests/unit/test_*.c tests/kernels/test_*.c tests/golden/test_*.c)
TEST_BIN := $(TEST_SRC:%.c=$(O)/%)
TEST_HELP := $(patsubst %.c,$(O)/%.o,$(wildcard tests/support/*.c))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
# The kernel tests but for those with cmocka: one program, which runs where no test library is.
KERNEL_TEST := $(O)/tests/kernels/test_kernels
KERNEL_TEST_OBJ := $(patsubst %.c,$(O)/%.o,$(wildcard tests/kernels/[!t]*.c) tests/kernels/test_kernels.c)
REPLAY_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(O)/tests/fuzz/replay_%)

.PHONY: all run test test-c test-py setup-build setup-test
all: $(BIN) $(SO)

# --- compile ------------------------------------------------------------------------------------
$(O)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(call isa_flags,$<) -MMD -MP -c $< -o $@

$(LIB): $(LIB_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(SO): $(LIB_OBJ)
	$(CC) -shared -Wl,-soname,libpantheon.so.$(V_MAJOR) $(ALL_LDFLAGS) $^ $(LDLIBS) -o $@

$(BIN): $(CLI_OBJ) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) $(CLI_OBJ) $(LIB) $(LDLIBS) $(CLI_LDLIBS) -o $@

# --- run ----------------------------------------------------------------------------------------
setup-build:
	@scripts/setup build
setup-test:
	@scripts/setup test

run: setup-build
	@$(MAKE) --no-print-directory all
	$(BIN) run -p "What is the capital of France?"

# --- tests --------------------------------------------------------------------------------------
# Tests link the static library, so they may call what is hidden in the shared one.
$(O)/tests/%: $(O)/tests/%.o $(TEST_HELP) $(LIB)
	$(CC) $(ALL_LDFLAGS) $< $(TEST_HELP) $(LIB) -lcmocka $(LDLIBS) -o $@
$(O)/tests/%.o: ALL_CFLAGS += -Itests
$(O)/tests/unit/test_options: $(O)/tests/unit/test_options.o $(O)/src/cli/options.o $(LIB)
	$(CC) $(ALL_LDFLAGS) $^ -lcmocka $(LDLIBS) -o $@

$(O)/tests/fuzz/replay_%: $(O)/tests/fuzz/%.o $(O)/tests/fuzz/replay.o $(LIB)
	$(CC) $(ALL_LDFLAGS) $^ $(LDLIBS) -o $@

$(KERNEL_TEST): $(KERNEL_TEST_OBJ) $(LIB)
	$(CC) $(ALL_LDFLAGS) $^ -lm -o $@

test: setup-test
	@$(MAKE) --no-print-directory test-c
	@$(MAKE) --no-print-directory aarch64

test-c: $(TEST_BIN) $(REPLAY_BIN)
	@for t in $(TEST_BIN); do echo "== $$t"; $$t || exit 1; done
	@for t in $(REPLAY_BIN); do echo "== $$t"; $$t tests/fuzz/corpus/$${t##*replay_fuzz_} || exit 1; done

# SEED=n repeats a run, BENCH=1 times the kernels, SOAK=1 runs full products; ONLY=text, ISA=name choose.
.PHONY: check-kernels aarch64
check-kernels: $(KERNEL_TEST)
	@SEED=$(SEED) BENCH=$(BENCH) SOAK=$(SOAK) ONLY=$(ONLY) ISA=$(ISA) $(KERNEL_TEST)

# The library and the kernel tests for aarch64, run under qemu: the same bits as here, by their digest.
AARCH64 := $(O)/aarch64
aarch64: $(KERNEL_TEST)
	@$(MAKE) --no-print-directory CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar O=$(AARCH64) BUILD=release \
	  CFLAGS="-idirafter /usr/include" LDFLAGS=-static $(AARCH64)/libpantheon.a $(AARCH64)/tests/kernels/test_kernels
	SEED=1 ISA=scalar $(KERNEL_TEST) > $(AARCH64)/here.txt || { cat $(AARCH64)/here.txt; exit 1; }
	SEED=1 qemu-aarch64 $(AARCH64)/tests/kernels/test_kernels > $(AARCH64)/there.txt || { cat $(AARCH64)/there.txt; exit 1; }
	diff $(AARCH64)/here.txt $(AARCH64)/there.txt && tail -1 $(AARCH64)/there.txt

# --- fuzzing: clang's libFuzzer with sanitizers; `make fuzz` runs every target FUZZ_TIME seconds -----
FUZZ_TIME ?= 600
.PHONY: fuzz
fuzz: $(FUZZ_SRC:tests/fuzz/fuzz_%.c=fuzz-%)
# What is found goes to build/fuzz; crashes are kept there too and move into the corpus with their fix.
fuzz-%: setup-test
	@$(MAKE) --no-print-directory BUILD=fuzz CC=clang build/fuzz/tests/fuzz/fuzz_$*
	@mkdir -p build/fuzz/found/$*
	build/fuzz/tests/fuzz/fuzz_$* -max_total_time=$(FUZZ_TIME) -timeout=10 -rss_limit_mb=2048 \
	  -artifact_prefix=build/fuzz/$*- $(FUZZ_ARGS) build/fuzz/found/$* tests/fuzz/corpus/$*
$(O)/tests/fuzz/fuzz_%: $(O)/tests/fuzz/fuzz_%.o $(LIB)
	$(CC) $(FLAGS_asan) -fsanitize=fuzzer -pthread $^ $(LDLIBS) -o $@

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_BIN:=.d) $(KERNEL_TEST_OBJ:.o=.d) $(TEST_HELP:.o=.d) $(FUZZ_SRC:%.c=$(O)/%.d)
.SECONDARY:
