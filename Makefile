# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Everything that needs root says so itself.

BIN      := bin/imbang
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
GO       ?= go
FUZZTIME ?= 10m
SUDO     := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
export CGO_ENABLED = 0

# Where the kernel's user-space headers keep asm/types.h on this machine.
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
export BPF_CFLAGS ?= -idirafter /usr/include/$(MULTIARCH)

# Debian's packages for each target.
RUN_PACKAGES  := nginx-light iproute2
BPF_PACKAGES  := clang llvm libbpf-dev libc6-dev gcc
# Those of the second line are what the lab measures beside imbang, and with; a
# test compiles the data plane with made-up extensions.
TEST_PACKAGES := $(RUN_PACKAGES) netbase ldirectord keepalived prometheus ipvsadm mount $(BPF_PACKAGES) \
	nftables haproxy libnginx-mod-stream httperf apache2-utils siege wrk curl jq systemd
LINT_PACKAGES := clang-format

.DEFAULT_GOAL := help
.PHONY: help deb check-deb check-https check-functions check-bench check-vrrp check-proxy build generate reference check-generate test test-race fuzz check-xdp check-6.1 soak measure-slow-start measure-daemon measure-sync measure-failover measure-layer7 check-clock soak-guest check-upgrade check-upgrade-6.1 check-sync check-verdicts bench-ipvs screenshots lint format demo bench publish-studies figures clean install

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The whole hash, with -dirty if the tree has other changes.
COMMIT  ?= $(shell git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null)
LDFLAGS := -s -w -X imbang/internal/version.Version=$(VERSION) -X imbang/internal/version.Commit=$(COMMIT)

build: ## build bin/imbang and bin/imbang-lab; bin/ipvsadm and bin/imbang-ipvsadm are links to imbang
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/imbang ./cmd/imbang-lab
	@ln -sf imbang bin/ipvsadm
	@ln -sf imbang bin/imbang-ipvsadm

# Packagers set DESTDIR and do not need root.
PREFIX  ?= /usr/local
SBIN    := $(DESTDIR)$(PREFIX)/sbin
INSTALL := $(if $(DESTDIR),,$(SUDO))

install: build ## copy imbang and imbang-lab to $(DESTDIR)$(PREFIX)/sbin (/usr/local/sbin), with the link imbang-ipvsadm
	$(INSTALL) install -d $(SBIN)
	$(INSTALL) install -m 0755 $(BIN) bin/imbang-lab $(SBIN)
	$(INSTALL) ln -sf imbang $(SBIN)/imbang-ipvsadm

# nfpm, by its module version.
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4

deb: build ## write out/imbang_VERSION_ARCH.deb: binaries, unit, default configuration, completions, manual pages
	rm -rf out/deb
	$(GO) run -ldflags '$(LDFLAGS)' ./internal/reference/man out/deb
	gzip -9n out/deb/man8/*.8
	build/licenses >out/deb/modules.txt
	gzip -9n out/deb/modules.txt
	printf 'imbang (%s) unstable; urgency=medium\n\n  * Built from revision %s.\n\n -- imbang developers <imbang@localhost.localdomain>  %s\n' \
		'$(DEB_VERSION)-1' '$(COMMIT)' "$$(git log -1 --format=%cD 2>/dev/null | grep . || date -R)" | gzip -9n >out/deb/changelog.Debian.gz
	VERSION='$(DEB_VERSION)' ARCH="$$($(GO) env GOARCH)" $(GO) run $(NFPM) package --config packaging/nfpm.yaml --packager deb --target out/

# Debian's versions begin with a number and grow; 0~ is before every release. -1 is behind
# it: the package is not part of the sources, and has a changelog of its own.
DEB_VERSION ?= $(shell git describe --tags --match 'v[0-9]*' 2>/dev/null | sed 's/^v//; s/-/+/g' | grep . || echo "0~$$(git rev-list --count HEAD 2>/dev/null || echo 0)+$$(git rev-parse --short HEAD 2>/dev/null)")

check-deb: deb ## check the package with lintian; install, upgrade, remove and purge it in a file system of its own (root, as for the tests)
	@build/need lintian
	lintian --fail-on error --allow-root out/imbang_$(DEB_VERSION)-1_*.deb
	build/check-deb out/imbang_$(DEB_VERSION)-1_*.deb
	@$(MAKE) --no-print-directory check-https

check-https: deb ## the commands of docs/how-to/https.md by systemd on a machine without HAProxy; upgrade under requests, port conflicts, removal (root)
	@build/need systemd nginx-light httperf curl jq openssl ca-certificates iproute2 procps
	build/check-https out/imbang_$(DEB_VERSION)-1_*.deb docs/how-to/https.md

# The Go packages with compiled BPF objects: the data plane, and what the lab runs.
BPF_GO := ./internal/bpfobj ./internal/bpfobj/lbtest ./internal/bpfobj/lbstages ./internal/director/testrun ./internal/lab/probe

# All C that clang-format keeps.
C_FILES := bpf/*.h bpf/*.c bpf/sched/*.h bpf/forward/*.h bpf/table/*.h bpf/lab/*.c build/ipvspeer/*.c

generate: ## compile the BPF programs (needs clang and libbpf-dev)
	@build/need $(BPF_PACKAGES)
	$(GO) generate $(BPF_GO)

reference: ## write the generated pages of docs/reference
	$(GO) generate ./internal/reference

check-generate: generate ## fail if the committed objects are not those of the sources
	git diff --exit-code --stat -- $(BPF_GO)

test: ## run every test; as root, or the privileged ones are skipped
	@build/need $(TEST_PACKAGES)
	build/test $(TESTFLAGS)

test-race: ## the same under the race detector (needs gcc)
	CGO_ENABLED=1 build/test -race $(TESTFLAGS)

fuzz: ## fuzz every target in turn, each for FUZZTIME; packets need root
	build/fuzz $(FUZZTIME)

check-xdp: ## every recorded scenario by XDP, native and generic (root)
	@build/need $(TEST_PACKAGES)
	$(SUDO) $(GO) test -count=1 -timeout 0 ./internal/lab/conform -run '^TestRecordings$$' -mode=xdp
	$(SUDO) $(GO) test -count=1 -timeout 0 ./internal/lab/conform -run '^TestRecordings$$' -mode=xdp-generic

check-functions: ## what the verifier walks of each program, by its log: releases before 6.8 lose code (root; check-6.1 has it)
	$(SUDO) $(GO) test -count=1 -tags walk -v ./internal/bpfobj -run '^TestFunctions'

check-bench: ## imbang bench path and stages with short samples, and the numbers of runs that reports name (root)
	$(SUDO) $(GO) test -count=1 -tags measure -v ./internal/acceptance -run '^TestBench(Path|Stages)$$'
	$(GO) test -count=1 -tags measure -v ./internal/lab/report -run '^TestNeeded'

check-vrrp: ## 20 transitions with keepalived in either role, four ways; all states with one more fault (root; minutes, some GB)
	@build/need $(TEST_PACKAGES)
	$(SUDO) $(GO) test -count=1 -v ./internal/daemon/vrrp/process -run '^TestKeepalived$$' -transitions=20
	$(GO) test -count=1 -timeout 0 -v ./internal/daemon/vrrp -run '^TestExplore$$' -faults=1

check-proxy: ## layer 7 at a constant rate: 0 failed requests over 100 reloads, 1000 changes of servers, 100 certificates and 20 upgrades; HAProxy killed; Chromium (root; 15 min)
	@build/need haproxy chromium
	$(SUDO) $(GO) test -count=1 -timeout 30m -tags proxy -v ./internal/daemon/l7/supervise -run '^(TestNoRequestFails|TestKilled|TestNotBack)$$'
	$(SUDO) $(GO) test -count=1 -timeout 30m -tags proxy -v ./internal/acceptance -run '^TestLayer7(NoRequestFails|VerdictDuringReloads?|HAProxyKilled|Chromium|VRRP.*)$$'

check-6.1: ## the tests on Debian 12's Linux 6.1, emulated (RUN=load: only load the programs)
	build/oldkernel/run $(RUN)

# Each run of the soak prints its seed; SEED repeats the choices of another one, and
# FAULTS=1 injects faults, which the auditor has to find and repair.
SOAK       ?= 30m
GUEST_SOAK ?= 12m
SOAKFLAGS   = -test.run '^TestSoak$$' -test.timeout 0 $(if $(SEED),-seed=$(SEED)) $(if $(FAULTS),-faults)

soak: ## random edits under traffic of every kind for SOAK, audited, on all CPUs (root; SEED=N, FAULTS=1)
	@mkdir -p bin
	$(GO) test -c -tags soak -o bin/soak.test ./internal/director
	cd internal/director && exec $(SUDO) ../../bin/soak.test $(SOAKFLAGS) -soak=$(SOAK)

measure-slow-start: ## what a returning server gets under each scheduler, into docs/bench and docs/images (root)
	$(SUDO) $(GO) test -count=1 ./internal/director -run '^TestSlowStart$$' -slow-starts=$(CURDIR)/docs/bench/slow-start.json
	$(GO) test -count=1 ./internal/lab/figures -run '^TestRampsImage$$' -update

measure-daemon: build ## how fast dead servers are found, what checks cost, changes at 70 % of capacity, into docs/bench/daemon.json (root; TRIALS=50 ROUNDS=3)
	$(SUDO) $(GO) test -count=1 -timeout 0 -tags measure -v ./internal/acceptance -run '^TestMeasure(Detection|Checks)$$|^TestRun(LosesNoRequest|ReloadsMany|RandomChanges|KeepsDevices)$$' \
		-executable=$(CURDIR)/bin/imbang -measures=$(CURDIR)/docs/bench/daemon.json -load-share=0.7 \
		-trials=$(or $(TRIALS),50) -rounds=$(or $(ROUNDS),3)

# The last commit without synchronization in the data plane.
BEFORE_SYNC := 3c81c91

measure-sync: build ## what connection synchronization costs, with and without it, into docs/bench/sync.json; how fast a backup joins (root; ROUNDS=7 EXPIRING=3)
	rm -rf out/before-sync && mkdir -p out/before-sync
	git archive $(BEFORE_SYNC) | tar -x -C out/before-sync
	cd out/before-sync && $(GO) build -trimpath -o . ./cmd/imbang-lab
	$(SUDO) $(GO) test -count=1 -timeout 0 -tags measure -v ./internal/acceptance -run '^TestMeasure(Openings|Expiring|SwitchedOff)$$' \
		-executable=$(CURDIR)/bin/imbang -sync-measures=$(CURDIR)/docs/bench/sync.json -sync-rounds=$(or $(ROUNDS),7) \
		-sync-expiring-rounds=$(or $(EXPIRING),3) -before=$(CURDIR)/out/before-sync/imbang-lab -before-commit=$(BEFORE_SYNC)
	$(SUDO) $(GO) test -count=1 -timeout 0 -tags measure -v ./internal/daemon/sync/replicate -run '^TestMeasure'

measure-layer7: build ## what a request costs: the rendered configuration beside one by hand, and a director in front of a node, into docs/bench/layer7.json (root; ROUNDS=100)
	@build/need haproxy wrk
	$(SUDO) $(GO) test -count=1 -timeout 0 -tags measure -v ./internal/acceptance -run '^TestMeasureLayer7' \
		-executable=$(CURDIR)/bin/imbang -layer7-measures=$(CURDIR)/docs/bench/layer7.json -rounds=$(or $(ROUNDS),100)

check-clock: build ## clock jumps of an hour under a daemon; sets the clock of the machine for a minute (root)
	$(SUDO) $(GO) test -count=1 -tags measure -v ./internal/acceptance -run "^TestRunClockJumps$$" -executable=$(CURDIR)/bin/imbang

soak-guest: ## the same for GUEST_SOAK on Debian 12's Linux 6.1, emulated, with 8 CPUs
	SUITES=build/oldkernel/suites.long TAGS=soak CPUS=8 MEMORY=4096 LIMIT=14400 OUT=out/soak-guest \
		ARGS="-soak=$(GUEST_SOAK) $(if $(SEED),-seed=$(SEED)) $(if $(FAULTS),-faults)" build/oldkernel/run soak

# The other builds are of this tree, with changes that build/otherbuilds makes.
check-upgrade: build ## upgrades under 2000 connections/s with 10000 idle ones, killed at every step: none lost (root)
	@build/need $(BPF_PACKAGES)
	build/otherbuilds bin/otherbuilds
	$(GO) test -c -tags upgrade -o bin/upgrade.test ./internal/acceptance
	cd internal/acceptance && exec $(SUDO) ../../bin/upgrade.test -test.run '^TestUpgradeUnderLoad$$' -test.timeout 0 \
		-executable=$(CURDIR)/bin/imbang -builds=$(CURDIR)/bin/otherbuilds

check-upgrade-6.1: ## the same on Debian 12's Linux 6.1, emulated, at a rate that emulation carries
	@build/need $(BPF_PACKAGES)
	build/otherbuilds bin/otherbuilds
	SUITES=build/oldkernel/suites.long TAGS=upgrade BUILDS=bin/otherbuilds MEMORY=4096 LIMIT=14400 OUT=out/upgrade-guest \
		build/oldkernel/run upgrade

# Linux's ip_vs runs in User Mode Linux.
check-sync: build ## connections synchronized with Linux's ip_vs in both directions, on every recorded scenario (root; SYNCFLAGS=-every)
	@build/need user-mode-linux ipvsadm kmod keepalived iproute2 iptables gcc libc6-dev
	$(CC) -O2 -Wall -shared -fPIC -o bin/xstate.so build/ipvspeer/xstate.c
	$(GO) test -c -tags peer -o bin/peer.test ./internal/acceptance/peer
	cd internal/acceptance/peer && exec $(SUDO) ../../../bin/peer.test -test.timeout 0 \
		-preload=$(CURDIR)/bin/xstate.so -executable=$(CURDIR)/bin/imbang $(SYNCFLAGS)
	$(SUDO) env LD_PRELOAD=$(CURDIR)/bin/xstate.so $(GO) test -count=1 -tags peer ./internal/lab/guest ./internal/lab/failover -run 'TestGuest|TestMachines|TestMachineDoesNotBoot'

check-verdicts: ## two studies whose answer is known, live: four equals, and a slow server (root)
	@build/need $(RUN_PACKAGES)
	$(SUDO) $(GO) test -count=1 -tags live ./internal/acceptance -run 'Live$$' -v

bench-ipvs: ## imbang against the kernel's IPVS on Debian 12's Linux 6.1, emulated: instructions a packet
	build/ipvsguest/run

screenshots: build ## retake the pictures in docs/images of the run in DIR (needs chromium)
	build/screenshots $(BIN) "$(DIR)"

lint: ## formatting, vet, staticcheck, modules
	@build/need $(LINT_PACKAGES) $(BPF_PACKAGES)
	@! git grep -nE "^(<<<<<<<|>>>>>>>) " -- . || { echo "conflicts of a merge"; exit 1; }
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted (make format): $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags soak,upgrade,live,measure,peer,walk,proxy ./internal/bpfobj ./internal/director ./internal/acceptance/... ./internal/daemon/sync/replicate ./internal/daemon/l7/supervise ./internal/lab/report ./internal/lab/guest ./internal/lab/failover
	"$$($(GO) tool -n staticcheck)" ./...
	"$$($(GO) tool -n staticcheck)" -tags soak,upgrade,live,measure,peer,walk,proxy ./internal/bpfobj ./internal/director ./internal/acceptance/... ./internal/daemon/sync/replicate ./internal/daemon/l7/supervise ./internal/lab/report ./internal/lab/guest ./internal/lab/failover
	$(GO) mod tidy -diff
	$(GO) mod verify
	clang-format --dry-run --Werror $(C_FILES)
	build/headers

format: ## format Go and C
	gofmt -w .
	clang-format -i $(C_FILES)

demo: ## compare ten schedulers on this machine, in under three minutes (root)
	@build/need $(RUN_PACKAGES)
	@$(MAKE) --no-print-directory build
	$(SUDO) $(BIN) lab run thesis --quick

bench: build ## the benchmark suite, into docs/bench/history.jsonl and docs/performance.md (root; BENCHFLAGS=--quick)
	@build/need $(TEST_PACKAGES)
	$(SUDO) $(BIN) bench --history docs/bench/history.jsonl $(BENCHFLAGS)
	$(BIN) bench page >docs/performance.md

STUDIES ?= $(basename $(notdir $(wildcard studies/*.yaml)))
PAGES   := README.md $(shell find docs -name '*.md' ! -name performance.md ! -path 'docs/reference/imbang*/*')

publish-studies: ## run the studies, archive them in docs/studies and fill in the pages (root; commit first; STUDIES=thesis)
	@git diff --quiet HEAD || { echo "the tree has changes: commit them first, so that the runs name what was measured"; exit 1; }
	@build/need $(TEST_PACKAGES)
	@$(MAKE) --no-print-directory build
	for s in $(STUDIES); do \
		$(SUDO) rm -rf out/studies/$$s && $(SUDO) $(BIN) lab run $$s --out out/studies/$$s || exit; \
		rm -rf docs/studies/$$s && $(BIN) lab archive out/studies/$$s docs/studies/$$s || exit; \
	done
	@$(MAKE) --no-print-directory figures

FAILOVERFLAGS ?= --variants imbang@10ms,imbang@50ms --faults everything,freeze,link --trials 50

measure-failover: ## outages of the failover study: 300 trials, about an hour (root; FAILOVERFLAGS="--trials 30" for all variants and faults)
	@build/need $(TEST_PACKAGES) user-mode-linux kmod
	@$(MAKE) --no-print-directory build
	$(SUDO) $(BIN) lab run failover $(FAILOVERFLAGS)

figures: ## write the figures of stored results into README.md and docs/
	$(GO) run ./cmd/imbang-lab figures $(PAGES)

clean: ## remove what the targets made
	rm -rf bin
