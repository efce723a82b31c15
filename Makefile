# The only build file. `make help` lists the targets; `make run` and `make test` install what is
# missing, build, and do what they say.
#   BUILD=release (default) | debug | asan | tsan    flags, for any target; each in build/$(BUILD)
#   O=DIR   where objects go      V=1   show whole commands      JOBS=N   at a time (default: cores)
BUILD  ?= release
O      ?= build/$(BUILD)
BIN    := $(if $(filter build/release,$(O)),build/pantheon,$(O)/pantheon)
PREFIX ?= /usr/local
CC     := gcc
CXX    := g++
AR     ?= ar
JOBS   ?= $(shell nproc)
VERSION := $(shell sed -n 's/^.define PN_VERSION "\([^"]*\)".*/\1/p' include/pantheon/base.h)
V_MAJOR := $(firstword $(subst ., ,$(VERSION)))
Q      := $(if $(V),,@)
say     = @$(if $(V),:,printf '  %-6s %s\n' $(1) $(2))
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS) --no-print-directory
endif

# --- flags --------------------------------------------------------------------------------------
WARN  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes $(if $(CI),-Werror)
# One arithmetic: no contraction that the source does not ask for, never -ffast-math.
ARITH := -ffp-contract=off -fno-math-errno -fno-trapping-math
BASE  := -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -fPIC -fvisibility=hidden -pthread -g $(ARITH) $(WARN)
FLAGS_release := -O3 -fno-plt
FLAGS_debug   := -O1 -DPN_DEBUG -fno-omit-frame-pointer
FLAGS_asan    := $(FLAGS_debug) -fsanitize=address,undefined -fno-sanitize-recover=undefined
FLAGS_tsan    := $(FLAGS_debug) -fsanitize=thread
FLAGS_fuzz    := $(FLAGS_asan) -fsanitize=fuzzer-no-link
ALL_CFLAGS  = $(BASE) $(FLAGS_$(BUILD)) $(CFLAGS)
ALL_LDFLAGS = $(FLAGS_$(BUILD)) -pthread $(LDFLAGS)
LDLIBS := -ljansson -lutf8proc -lm
CLI_LDLIBS := -ledit
SERVER_LDLIBS := -Wl,--as-needed -levent -levent_openssl -lssl -lcrypto -Wl,--no-as-needed

# A folder of kernels/ is one instruction set level; its flags are used nowhere else.
ISA_avx2    := -mavx2 -mfma -mf16c -mbmi2
ISA_avxvnni := $(ISA_avx2) -mavxvnni
ISA_dotprod := -march=armv8.2-a+dotprod
ISA_i8mm    := $(ISA_dotprod)+i8mm
ISA_avx512  := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mprefer-vector-width=512
ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
NOT_BUILT := $(if $(filter x86_64,$(ARCH)),$(addprefix src/kernels/,neon/% dotprod/% i8mm/%),src/kernels/avx%)
# clang 14 needs many minutes for these files with -fsanitize=undefined; gcc's asan build has them.
ISA_MORE := $(if $(filter fuzz,$(BUILD)),-fno-sanitize=undefined)
isa_flags = $(foreach d,avx2 avxvnni avx512 dotprod i8mm,$(if $(findstring src/kernels/$(d)/,$(1)),$(ISA_$(d)) $(ISA_MORE)))

# --- sources, found by folder -------------------------------------------------------------------
LIB_SRC := $(filter-out $(NOT_BUILT),$(wildcard src/base/*.c src/gguf/*.c src/quant/*.c src/kernels/*.c \
             src/kernels/*/*.c src/cuda/*.c src/tokenizer/*.c src/chat/*.c src/sampling/*.c src/grammar/*.c src/models/*.c \
             src/engine/*.c src/tools/*.c))
SERVER_SRC := $(wildcard src/server/*.c src/server/page/*.c)
CLI_SRC := $(wildcard src/cli/*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(O)/%.o)
SERVER_OBJ := $(SERVER_SRC:%.c=$(O)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(O)/%.o)
LIB     := $(O)/libpantheon.a
SERVER  := $(O)/libserver.a
SO      := $(O)/libpantheon.so.$(V_MAJOR)
# Two programs without cmocka, which run where no test library is.
KERNEL_TEST     := $(O)/tests/kernels/test_kernels
LOGITS_DIGEST   := $(O)/tests/golden/logits_digest
KERNEL_TEST_OBJ := $(patsubst %.c,$(O)/%.o,$(wildcard tests/kernels/[!t]*.c) tests/kernels/test_kernels.c)
TEST_SRC  := $(wildcard tests/unit/test_*.c tests/kernels/test_*.c tests/golden/test_*.c)
TEST_HELP := $(patsubst %.c,$(O)/%.o,$(wildcard tests/support/*.c))
FUZZ_SRC  := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ      := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%)
HEADERS   := $(filter-out %.inc.h src/cuda/device/nvrtc/% $(NOT_BUILT),$(shell find include src -name '*.h' | sort))
ALL_C     := $(shell find include src tests -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | sort)

# --- compile ------------------------------------------------------------------------------------
.PHONY: all clean
all: $(BIN) $(SO)

$(O)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(call isa_flags,$<) -MMD -MP -c $< -o $@

$(LIB): $(LIB_OBJ)
$(SERVER): $(SERVER_OBJ)
$(LIB) $(SERVER):
	$(call say,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(SO): $(LIB_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) $(ALL_LDFLAGS) $^ $(LDLIBS) -o $@

# The chat page: its sources become one file, which the assembler includes.
PAGE := $(O)/src/server/page/page
$(PAGE).html: $(wildcard src/server/page/*.html src/server/page/*.css src/server/page/*.js src/server/page/vendor/*) \
             src/server/page/build.sh
	$(call say,PAGE,$@)
	@mkdir -p $(@D)
	$(Q)src/server/page/build.sh src/server/page $(PAGE)
$(PAGE).o: $(PAGE).html
$(PAGE).o: ALL_CFLAGS += -Wa,-I$(O)/src/server/page

$(BIN): $(CLI_OBJ) $(SERVER) $(LIB)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ $(SERVER_LDLIBS) $(LDLIBS) $(CLI_LDLIBS) -o $@

# llguidance compiles schemas and grammars (docs/SAMPLING.md): from its wheel on PyPI, loaded at run time.
.PHONY: llguidance
LLGUIDANCE := build/llguidance/libpantheon_llguidance.so
llguidance: $(LLGUIDANCE)
$(LLGUIDANCE): scripts/llguidance
	$(call say,WHEEL,$@)
	@CC="$(CC)" scripts/llguidance $(@D)

# The device code as cubins, which the program then holds, and as PTX for the tests; compilers from PyPI.
# Cubins that are there are kept up to date by every build; without them the program has no code for GPUs.
.PHONY: cuda cuda-ptx
CUDA_DIR := build/cuda
CUDA_SM  := 37 50 52 60 61 70 75 80 86 89 90 100 120
PTX_SM   := 37 75 90
SPILL_SM := 37 90 # assembled in CI, one a compiler; all of CUDA_SM in `make soak`
DEVICE   := $(wildcard src/cuda/device/*.cu src/cuda/device/*.cuh src/cuda/*.h src/cuda/device/nvrtc/*.h) \
            src/base/arith.h src/quant/acts.h src/quant/type_ids.h
CUBINS   := $(patsubst %,$(CUDA_DIR)/pantheon-%.cubin,$(CUDA_SM))
PTX      := $(patsubst %,$(CUDA_DIR)/pantheon-%.ptx,$(PTX_SM))
CUDA_HAVE := $(filter $(wildcard $(CUDA_DIR)/*.cubin),$(CUBINS))
$(CUDA_DIR)/fetched: scripts/cuda.py
	$(call say,WHEEL,$@)
	@mkdir -p $(@D)
	@scripts/setup cuda && scripts/cuda.py fetch $(@D) && touch $@
$(CUBINS): $(CUDA_DIR)/pantheon-%.cubin: $(DEVICE) $(CUDA_DIR)/fetched
	$(call say,NVRTC,$@)
	$(Q)scripts/cuda.py cubin $* $@ $(@D) src/cuda/device/pantheon.cu
$(CUDA_DIR)/pantheon-%.ptx: $(DEVICE) $(CUDA_DIR)/fetched
	$(call say,NVRTC,$@)
	$(Q)scripts/cuda.py $(if $(CI),$(if $(filter $(SPILL_SM),$*),checked-))ptx $* $@ $(@D) src/cuda/device/pantheon.cu
cuda: $(CUBINS) cuda-ptx
	@scripts/cuda.py check $(CUBINS)
	@scripts/cuda.py sanitizer $(CUDA_DIR) || echo "compute-sanitizer cannot be fetched: bench/cuda.sh goes without it"
	@$(MAKE) all card
cuda-ptx: $(PTX)
	@tests/cuda/ptxlint.sh $(PTX)
$(O)/src/cuda/cubins.o: $(CUDA_HAVE)
$(O)/src/cuda/cubins.o: ALL_CFLAGS += -Wa,-I$(CUDA_DIR) '-DFC_CUBIN_LIST(X)=$(patsubst $(CUDA_DIR)/pantheon-%.cubin,X(%),$(CUDA_HAVE))'

clean:
	rm -rf build

# --- run, install -------------------------------------------------------------------------------
.PHONY: run install setup-%
setup-%:
	@scripts/setup $*

run: setup-build
	@$(MAKE) all
	@echo '$$ $(BIN) run --temp 0 --no-think -p "What is the capital of France?"'
	@$(BIN) run --temp 0 --no-think -p "What is the capital of France?"
	@echo 'Chat: $(BIN) run    a real model: $(BIN) run -m FILE.gguf    all commands: $(BIN) --help'

install: all
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/pkgconfig include/pantheon share/pantheon)
	install -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/pantheon
	install -m 644 $(LIB) $(SO) $(DESTDIR)$(PREFIX)/lib
	ln -sf $(notdir $(SO)) $(DESTDIR)$(PREFIX)/lib/libpantheon.so
	install -m 644 include/pantheon/*.h $(DESTDIR)$(PREFIX)/include/pantheon
	install -m 644 models/*.gguf $(DESTDIR)$(PREFIX)/share/pantheon
	$(if $(wildcard $(LLGUIDANCE)),install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/pantheon $(wildcard $(dir $(LLGUIDANCE))*))
	printf 'prefix=%s\nName: pantheon\nDescription: inference of qwen35moe models, bit for bit\nVersion: %s\nCflags: -I$${prefix}/include\nLibs: -L$${prefix}/lib -lpantheon\nLibs.private: $(LDLIBS) -pthread\n' \
	  '$(PREFIX)' '$(VERSION)' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/pantheon.pc

# --- tests: docs/TESTING.md ---------------------------------------------------------------------
# Each program's run is a target, so that -j runs them side by side; it prints its closing line, and
# all it said when it fails. SEED=, SOAK=1 and the like reach the tests as environment.
.PHONY: test test-all test-c test-short test-py check-kernels check-headers lint format soak ci ci-release ci-asan ci-tsan
# ThreadSanitizer of gcc 12 does not know all places that randomized addresses may have.
RUN := $(if $(filter tsan,$(BUILD)),$(shell setarch -R true 2>/dev/null && echo setarch -R))
# test-short: with threads, and, where they are not what is looked for, without.
SHORT := unit/test_base unit/test_seq unit/test_cache unit/test_cache_disk \
         unit/test_requests_disk unit/test_http unit/test_http_life unit/test_http_listen unit/test_http_guard \
         golden/test_variants
ifneq ($(BUILD),tsan)
SHORT += unit/test_qwen35moe_load unit/test_model_oom unit/test_cache_random unit/test_gguf unit/test_json unit/test_chat unit/test_sampling \
         unit/test_tokenizer unit/test_rope
endif

# Tests link the static library, so they may call what is hidden in the shared one.
$(O)/tests/%.o: ALL_CFLAGS += -Itests
$(O)/tests/%: $(O)/tests/%.o $(TEST_HELP) $(SERVER) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $(filter %.o,$^) $(SERVER) $(LIB) -lcmocka $(SERVER_LDLIBS) $(LDLIBS) -o $@
$(O)/tests/unit/test_options: $(O)/src/cli/options.o
# These count allocations and writes, hold them up or make them fail.
wrap = $(foreach f,$(1),-Wl,--wrap=$(f))
ALLOCS := malloc calloc realloc aligned_alloc mmap
$(O)/tests/unit/test_no_alloc: ALL_LDFLAGS += $(call wrap,$(ALLOCS))
$(O)/tests/unit/test_model_oom: ALL_LDFLAGS += $(call wrap,$(ALLOCS) free munmap pthread_create)
$(O)/tests/unit/test_store: ALL_LDFLAGS += $(call wrap,pwrite clock_gettime)
$(O)/tests/unit/test_store_faults: ALL_LDFLAGS += $(call wrap,pwrite openat faccessat)
$(O)/tests/unit/test_cache_disk: ALL_LDFLAGS += $(call wrap,pwrite)
$(O)/tests/unit/test_requests_disk: ALL_LDFLAGS += $(call wrap,pread)
$(KERNEL_TEST): $(KERNEL_TEST_OBJ)
$(LOGITS_DIGEST): $(O)/tests/golden/logits_digest.o
$(KERNEL_TEST) $(LOGITS_DIGEST): $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $(filter %.o,$^) $(LIB) -lm -o $@
$(O)/tests/fuzz/replay_%: $(O)/tests/fuzz/fuzz_%.o $(O)/tests/fuzz/replay.o $(SERVER) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ $(SERVER_LDLIBS) $(LDLIBS) -o $@

run_test = @if $(RUN) $(1) > $(1).log 2>&1; then echo "$(2): $$(tail -n 1 $(1).log)"; \
	  else cat $(1).log; echo "$(2): FAILED; to repeat: $(RUN) $(1)"; exit 1; fi
TEST_RUN := $(TEST_SRC:tests/%.c=run-%)
.PHONY: $(TEST_RUN)
$(TEST_RUN): run-%: $(O)/tests/%
	$(call run_test,$<,tests/$*)
replay-%: $(O)/tests/fuzz/replay_%
	@n=$$($(RUN) $< tests/fuzz/corpus/$*) && echo "tests/fuzz/corpus/$*: $$n"

test: setup-test
	@$(MAKE) llguidance || echo "llguidance cannot be fetched: its tests are SKIPPED"
	@$(MAKE) $(CUDA_DIR)/fetched || echo "NVRTC cannot be fetched: the tests of the device code's PTX are SKIPPED"
	@$(MAKE) test-all
test-all:
	@$(MAKE) -k $(TEST_PARTS); s=$$?; $(MAKE) test-py && exit $$s
TEST_PARTS := test-c test-cuda lint $(if $(filter release,$(BUILD)),aarch64)
test-c: $(TEST_RUN) $(addprefix replay-,$(FUZZ))
# What .ci/run runs, everything fetched before: the three builds side by side, so that one compiles
# while another waits for its servers.
ci:
	@$(MAKE) llguidance $(CUDA_DIR)/fetched $(VENV)/ok
	@$(MAKE) -k -Otarget ci-release ci-asan ci-tsan
ci-release:
	@$(MAKE) test-py $(TEST_PARTS)
ci-asan ci-tsan: ci-%:
	@$(MAKE) test-short BUILD=$*
# What CI runs under the sanitizers: under asan all that reads what comes from outside, without the slow
# and the many-process tests of the server and the long conversations, which differ in tokens alone;
# under tsan what has threads: the server under load, passes of several threads, and $(SHORT).
SHORT_PY := not (depend_on or kv_types or test_server.py or test_agents.py or test_long_agents.py or \
            test_batch.py or test_deploy.py or test_ten_turns)
ifeq ($(BUILD),tsan)
SHORT_PY += and (test_load.py or test_bench.py or test_logits.py)
endif
test-short: test-short-py $(addprefix run-,$(SHORT)) $(if $(filter tsan,$(BUILD)),,$(addprefix replay-,$(FUZZ)))
test-short-py: ARGS = -k '$(SHORT_PY)'

# --- CUDA without a GPU: docs/CUDA.md -----------------------------------------------------------
# The device code as C++, one library an architecture (tests/cuda/cushim.h), checked by the compiler
# where it can, and the tests of its kernels; the shim's fibers are x86-64 code.
CUDA_TEST := $(if $(filter x86_64,$(ARCH)),$(patsubst tests/cuda/%.cpp,$(O)/tests/cuda/%,$(wildcard tests/cuda/test_*.cpp)))
CUDA_HARNESS := $(addprefix $(O)/tests/,cuda/harness.o cuda/backends_cpu.o cuda/backend_shim.o cuda/backend_ptx.o cuda/ptx_parse.o cuda/ptx_run.o cuda/ptx_alu.o cuda/ptx_memory.o cuda/standin.o kernels/harness.o kernels/qmv_data.o)
SHIM := $(addprefix $(O)/tests/cuda/shim-,370.so 900.so)
# ThreadSanitizer knows nothing of fibers, and device code runs in one thread: the shim is without it.
$(SHIM): NO_TSAN = yes
CXX_ALL = -std=c++17 -Iinclude -Isrc -Itests -fPIC -fvisibility=hidden -pthread -g $(ARITH) -Wall -Wextra -Wshadow \
          $(if $(CI),-Werror) $(if $(NO_TSAN),$(filter-out -fsanitize=thread,$(FLAGS_$(BUILD))),$(FLAGS_$(BUILD)))
HAS_FMA := $(shell grep -qsw fma /proc/cpuinfo && echo -mfma)
$(O)/tests/cuda/ptx_alu.o: CXX_ALL += $(HAS_FMA)
SHIM_FLAGS := -O2 -DPN_CUSHIM $(HAS_FMA) -fno-strict-aliasing -Wno-unknown-pragmas -fsanitize-undefined-trap-on-error \
              -fsanitize=alignment,bounds,shift-exponent,signed-integer-overflow,integer-divide-by-zero,null
$(O)/tests/%.o: tests/%.cpp Makefile
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXX_ALL) -MMD -MP -c $< -o $@
$(O)/tests/cuda/kernel_names.inc: $(wildcard src/cuda/device/*.cu* src/cuda/args*.h) tests/cuda/cushim.h Makefile
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXX_ALL) -DPN_CUSHIM -DCUSHIM_NAMES -DPN_ARCH=900 -E -P -x c++ src/cuda/device/pantheon.cu | \
	  grep -oE 'cushim_kernel_name +[a-z0-9_]+' | sed 's/.* \(.*\)/CUSHIM_KERNEL(\1)/' | sort -u > $@
$(patsubst $(O)/tests/cuda/shim-%.so,$(O)/tests/cuda/shim_kernels-%.o,$(SHIM)): $(O)/tests/cuda/shim_kernels-%.o: tests/cuda/shim_kernels.cpp $(O)/tests/cuda/kernel_names.inc Makefile
	$(call say,CXX,$@)
	$(Q)$(CXX) $(CXX_ALL) $(SHIM_FLAGS) -DPN_ARCH=$* -I$(@D) -MMD -MP -c $< -o $@
$(SHIM): $(O)/tests/cuda/shim-%.so: $(O)/tests/cuda/shim_kernels-%.o $(O)/tests/cuda/cushim.o
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared $(FLAGS_$(BUILD)) $^ -o $@
# The stand-in for libcuda.so.1, over the shims (tests/cuda/fakecuda.h).
FAKECUDA := $(O)/tests/cuda/fakecuda.so
$(FAKECUDA): $(patsubst %.cpp,$(O)/%.o,$(wildcard tests/cuda/fake*.cpp)) | $(SHIM)
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared $(FLAGS_$(BUILD)) $^ -ldl -o $@
# The cost model: docs/CUDA.md. CARD=H200 QUICK=1 MIX='q4_k_m -v' choose.
.PHONY: cuda-cost
COST_OBJ := $(addprefix $(O)/tests/cuda/cost_,count.o card.o l2.o)
COST_SM  := 37 86 90
$(O)/tests/cuda/test_cost: $(COST_OBJ)
$(O)/tests/cuda/cost: %: %.o %_launch.o %_model.o $(COST_OBJ) $(addprefix $(O)/tests/cuda/,ptx_parse.o ptx_run.o ptx_alu.o ptx_memory.o standin.o) $(LIB) | $(SHIM) $(FAKECUDA)
	$(call say,LINK,$@)
	$(Q)$(CXX) $(ALL_LDFLAGS) $(call wrap,fwrite pn_synth_gen_fill fc_repack_weight fc_cubins) $^ $(LDLIBS) -ldl -o $@
$(CUDA_DIR)/pantheon-%.uses: $(CUDA_DIR)/pantheon-%.cubin scripts/cuda.py
	$(Q)scripts/cuda.py uses $< > $@
cuda-cost: $(O)/tests/cuda/cost $(foreach s,$(COST_SM),$(CUDA_DIR)/pantheon-$s.ptx $(CUDA_DIR)/pantheon-$s.uses)
	@$< $(MIX)
$(CUDA_TEST): %: %.o $(CUDA_HARNESS) $(LIB) | $(SHIM) $(FAKECUDA)
	$(call say,LINK,$@)
	$(Q)$(CXX) $(ALL_LDFLAGS) $^ $(LDLIBS) -ldl -o $@
# Whole passes, in C: the stand-in's device code is in place of the program's.
CUDA_HOST_TEST := $(if $(CUDA_TEST),$(patsubst tests/cuda/%.c,$(O)/tests/cuda/%,$(wildcard tests/cuda/test_*.c)))
$(CUDA_HOST_TEST): ALL_LDFLAGS += $(call wrap,fc_cubins)
$(CUDA_HOST_TEST): | $(SHIM) $(FAKECUDA)
CUDA_RUN := $(patsubst $(O)/tests/%,run-%,$(CUDA_TEST) $(CUDA_HOST_TEST))
# What bench/cuda.sh runs on a card beside the program: the kernels' tests, and their speed. And all
# three of them for a dry run: with code for the stand-in, which LD_LIBRARY_PATH=$(STANDIN) lets them find.
.PHONY: card standin
CARD_PROGRAMS := $(if $(CUDA_TEST),$(addprefix $(dir $(BIN)),card-bits card-kernels))
STANDIN := $(O)/tests/cuda/standin
card: $(CARD_PROGRAMS)
standin: $(if $(CUDA_TEST),$(addprefix $(STANDIN)/,pantheon card-bits card-kernels libcuda.so.1))
CARD_HARNESS := $(addprefix $(O)/tests/,cuda/harness.o cuda/backend_card.o cuda/card.o cuda/card_limits.o kernels/harness.o kernels/qmv_data.o)
CARD_CODE := $(O)/tests/support/standin_code.o
%card-bits: $(filter-out %/test_device.o %/test_cost.o,$(CUDA_TEST:=.o)) $(CARD_HARNESS) $(LIB)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) $^ $(LDLIBS) -ldl -o $@
%card-kernels: $(O)/tests/cuda/card_kernels.o $(CARD_HARNESS) $(LIB)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) $^ $(LDLIBS) -ldl -o $@
$(STANDIN)/card-bits $(STANDIN)/card-kernels: $(CARD_CODE)
$(STANDIN)/%: ALL_LDFLAGS += $(call wrap,fc_cubins)
$(STANDIN)/pantheon: $(CLI_OBJ) $(CARD_CODE) $(SERVER) $(LIB)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ $(SERVER_LDLIBS) $(LDLIBS) $(CLI_LDLIBS) -o $@
$(STANDIN)/libcuda.so.1: | $(FAKECUDA)
	@mkdir -p $(@D)
	$(Q)ln -sf ../fakecuda.so $@
.PHONY: test-cuda $(CUDA_RUN)
# The PTX, too, where its compilers have been fetched.
$(CUDA_RUN): run-%: $(O)/tests/% $(SHIM) $(FAKECUDA) $(if $(wildcard $(CUDA_DIR)/fetched),$(PTX))
	$(call run_test,$<,tests/$*)
# Planted faults, each of which a test must notice: tests/cuda/mutations.toml. SOAK=1: all, not a few.
MUTANTS := $(if $(CUDA_TEST),$(if $(filter release,$(BUILD)),$(shell sed -n \
             's/^\[$(if $(SOAK),[a-z]*,quick)\.\(.*\)\]$$/mutant-\1/p' tests/cuda/mutations.toml)))
mutant-%: export SHIM_CXX = $(filter-out -Werror,$(CXX) $(CXX_ALL) $(SHIM_FLAGS))
mutant-%: export TEST_CC = $(filter-out -Werror,$(CC) $(ALL_CFLAGS))
mutant-%: export LINK_CXX = $(CXX) $(FLAGS_$(BUILD))
mutant-%: export LINK_TEST = $(CXX) $(ALL_LDFLAGS) @TEST@ $(CUDA_HARNESS) $(LIB) $(LDLIBS) -ldl
mutant-%: export LINK_C = $(CC) $(ALL_LDFLAGS) $(call wrap,fc_cubins) @TEST@ $(TEST_HELP) $(SERVER) $(LIB) \
                          -lcmocka $(SERVER_LDLIBS) $(LDLIBS)
mutant-%: $(CUDA_TEST) $(CUDA_HOST_TEST) $(O)/tests/unit/test_placement
	@tests/cuda/mutate.py $* $(O)

test-cuda: $(CUDA_RUN) $(MUTANTS) $(if $(wildcard $(CUDA_DIR)/fetched),cuda-ptx)
	@tests/cuda/all_tested.sh $(O)/tests/cuda

# Programs from outside, by pytest in a venv of its own. ARGS='-k name' chooses.
# PY_EXTRA=FILE: requirements of tests that are skipped without them.
PY_REQS := tests/py/requirements.txt $(PY_EXTRA)
VENV := build/venv/$(shell cat $(PY_REQS) | cksum | cut -d ' ' -f 1)
$(VENV)/ok:
	$(call say,VENV,$@)
	@rm -rf build/venv && python3 -m venv $(VENV)
	@$(VENV)/bin/pip install -q --disable-pip-version-check $(addprefix -r ,$(PY_REQS)) && touch $@
test-py test-short-py: all $(VENV)/ok $(if $(filter release,$(BUILD)),standin)
	@PANTHEON=$(BIN) BUILD=$(BUILD) STANDIN=$(STANDIN) $(RUN) $(VENV)/bin/pytest -q tests/py $(if $(SOAK),,-m 'not soak') $(ARGS)

check-kernels: $(KERNEL_TEST)
	@$(KERNEL_TEST)

# The library and two tests for aarch64, run under qemu: every level gives the bits of this machine.
.PHONY: aarch64
AARCH64 := $(O)/aarch64
aarch64: $(KERNEL_TEST) $(LOGITS_DIGEST)
	@$(MAKE) CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar O=$(AARCH64) BUILD=release LDFLAGS=-static \
	  CFLAGS="-idirafter /usr/include" $(patsubst $(O)/%,$(AARCH64)/%,$(LIB) $(KERNEL_TEST) $(LOGITS_DIGEST))
	@tests/aarch64.sh $(O) $(AARCH64)

# Every header compiles alone as C17, the public ones as C++17 too.
check-headers:
	@$(foreach h,$(HEADERS),echo '#include "$(CURDIR)/$(h)"' | \
	  $(CC) $(BASE) -Werror $(call isa_flags,$(h)) -fsyntax-only -x c - &&) \
	$(foreach h,$(wildcard include/pantheon/*.h),echo '#include "$(h:include/%=%)"' | \
	  $(CXX) -std=c++17 -Iinclude -Wall -Wextra -Werror -fsyntax-only -x c++ - &&) \
	echo "headers: $(words $(HEADERS)) compile alone"

# clang-format 14 decides; other versions break lines elsewhere, so they only warn.
lint: check-headers
	@python3 scripts/tidy.py && echo "tidy: clean"
	@if clang-format --version | grep -q 'version 14'; then clang-format --dry-run -Werror $(ALL_C) && echo "format: clean"; \
	else echo "format: SKIPPED, clang-format 14 is not here"; fi
format:
	clang-format -i $(ALL_C)

# --- fuzzing: clang's libFuzzer with sanitizers; `make fuzz` runs every target FUZZ_TIME seconds ---
FUZZ_TIME ?= 600
.PHONY: fuzz
fuzz: $(addprefix fuzz-,$(FUZZ))
# What is found goes to build/fuzz; crashes are kept there too and move into the corpus with their fix.
fuzz-%: setup-fuzz
	@$(MAKE) BUILD=fuzz O=build/fuzz CC=clang build/fuzz/tests/fuzz/fuzz_$*
	@mkdir -p build/fuzz/found/$*
	build/fuzz/tests/fuzz/fuzz_$* -max_total_time=$(FUZZ_TIME) -timeout=10 -rss_limit_mb=2048 \
	  -artifact_prefix=build/fuzz/$*- $(FUZZ_ARGS) build/fuzz/found/$* tests/fuzz/corpus/$*
$(O)/tests/fuzz/fuzz_%: $(O)/tests/fuzz/fuzz_%.o $(SERVER) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(FLAGS_asan) -fsanitize=fuzzer -pthread $^ $(SERVER_LDLIBS) $(LDLIBS) -o $@

# The long tests, hours: full products, all tests under the sanitizers, half an hour of each fuzz target.
soak: setup-test setup-fuzz
	@$(MAKE) cuda
	@$(MAKE) SOAK=1 test-all
	@$(MAKE) BUILD=asan test-all
	@$(MAKE) BUILD=tsan test-all
	@$(MAKE) FUZZ_TIME=1800 fuzz

# --- bench, editors, help -----------------------------------------------------------------------
.PHONY: bench compdb help
# Pantheon and llama.cpp alternately, half an hour; llama.cpp is built on the first call, ten minutes.
# ARGS='--mixes q4_k_m --rounds 1 --no-peer' and others: bench/compare.py --help.
BENCH_VENV := build/bench-venv/$(shell cksum < bench/requirements.txt | cut -d ' ' -f 1)
$(BENCH_VENV)/ok: | setup-bench
	$(call say,VENV,$@)
	@rm -rf build/bench-venv && python3 -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/pip install -q --disable-pip-version-check -r bench/requirements.txt && touch $@
bench: all $(BENCH_VENV)/ok
	@$(BENCH_VENV)/bin/python bench/compare.py --pantheon $(BIN) $(ARGS)

compdb:
	@mkdir -p build
	@{ echo '['; $(foreach s,$(LIB_SRC) $(SERVER_SRC) $(CLI_SRC),echo '{"directory": "$(CURDIR)", "file": "$(s)", "command": "$(CC) $(ALL_CFLAGS) $(call isa_flags,$(s)) -c $(s)"},';) \
	} | sed '$$ s/,$$/]/' > build/compile_commands.json

help:
	@sed -n 's/^#: \?//p' $(firstword $(MAKEFILE_LIST))
#: make run        answers a prompt with the bundled model; installs what is missing to build
#: make test       every test, under 20 minutes on two cores; installs the test packages too
#: make test-c     the C tests alone: make run-unit/test_gguf runs one, replay-gguf one fuzz corpus
#: make cuda       cubins of the device code into the program, compilers from PyPI: docs/CUDA.md
#: make test-cuda  the CUDA kernels on the CPU, no GPU needed: make run-cuda/test_NAME runs one, ONLY= BACKEND= choose
#: make standin    the program on the stand-in driver, and what bench/cuda.sh runs on a card: docs/CUDA.md
#: make test-py    the programs from outside, by pytest; ARGS='-k chat' chooses
#: make check-kernels   the kernels against scalar code: SEED= repeats, ONLY= ISA= choose, BENCH=1 times
#: make aarch64    every level of aarch64 under qemu: kernels and logits have the same bits
#: make lint       layers, sizes, format, every header alone;   make format formats the C sources
#: make fuzz       every fuzz target FUZZ_TIME=600 seconds; make fuzz-gguf one of them
#: make soak       the long tests: full products, sanitizers over everything, half an hour a fuzz target
#: make bench      both engines on slices of the 35B: bench/results, half an hour; ARGS='--help'
#: make install    PREFIX=/usr/local DESTDIR=   program, libraries, headers, bundled model, pantheon.pc
#: make llguidance   fetches the library that compiles JSON schemas and grammars, from PyPI
#: make compdb     build/compile_commands.json for editors;   make clean removes build/
#: BUILD=debug|asan|tsan with any of them: another build, in build/BUILD. V=1 shows whole commands.

$(O)/%.d: ;
-include $(LIB_OBJ:.o=.d) $(SERVER_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_SRC:%.c=$(O)/%.d) $(KERNEL_TEST_OBJ:.o=.d) $(TEST_HELP:.o=.d) $(wildcard $(O)/tests/cuda/*.d) \
  $(FUZZ_SRC:%.c=$(O)/%.d) $(O)/tests/fuzz/replay.d $(LOGITS_DIGEST).d
.SECONDARY:
