# Headwater: `make demo` and `make test` are all it takes; both install what is missing and say so first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man/man1
SYSCONFDIR ?= /etc
SYSTEMD_UNIT_DIR ?= $(PREFIX)/lib/systemd/system
SYSUSERS_DIR ?= $(PREFIX)/lib/sysusers.d
DESTDIR ?=
FUZZ_SECONDS ?= 60
STORMS ?= 10000
SOAK_SECONDS ?= 1200
# Passed on to cargo build, for example: make build BUILD=--no-default-features
BUILD ?=
# Passed on to the demo, for example: make demo DEMO="--rates 50,50 --loss 1%"
DEMO ?=
# Passed on to the comparison, for example: make bench BENCH="--scenario fat --repeat 3"
BENCH ?=

CARGO ?= cargo
CARGO_HOME_DIR := $(or $(CARGO_HOME),$(HOME)/.cargo)
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BINARY := $(TARGET_DIR)/release/headwater
# rustup's cargo first, so that one that was just installed is found; nft and tc often live outside a user's PATH.
export PATH := $(CARGO_HOME_DIR)/bin:$(PATH):/usr/sbin:/sbin

.PHONY: help deps build demo bench test plugins exercise golden lint experiments storms soak fuzz install uninstall clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

deps: ## Install what building and the demo need, where it is missing
	@scripts/install-deps build net

build: ## Build the release binary
	@scripts/install-deps build
	$(CARGO) build --release --locked --package headwater $(BUILD)

demo: deps build ## Three sources, one receiver, real packets on this machine
	$(BINARY) demo $(DEMO)

bench: deps build ## How fast it is here, beside curl, aria2, rqbit, libtorrent, uftp and iperf3 (80 minutes, on an idle machine)
	@scripts/install-deps bench
	$(BINARY) bench wire
	$(BINARY) bench codec
	$(BINARY) bench store
	$(BINARY) bench delivery $(BENCH)

# The second time as users get it, but for what is optimized at the end, which takes minutes: an optimization that only release builds have was
# wrong once (rust-lang/rust#158206).
test: export HEADWATER_SKIPPED = $(CURDIR)/target/skipped
test: deps ## Run all tests; what could not run, and why, is listed at the end
	@scripts/install-deps bpf
	@rm -f $(HEADWATER_SKIPPED)
	$(CARGO) test --workspace --locked
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false $(CARGO) test --release --locked --package headwater-flow --package headwater-machine --package headwater-transport --lib --test datacast
	@scripts/skipped $(HEADWATER_SKIPPED)

plugins: ## Build and test the plugins for engines (Java 17 and Maven), with the agent that was built last
	scripts/plugins-test

exercise: deps ## Add a transport to a copy of this tree, by a patch, and test it there (3 minutes)
	scripts/exercise

golden: deps ## Compare the small-scale tables of every experiment with the committed ones, bit by bit (2 minutes)
	scripts/golden

lint: ## Check formatting, run clippy, and shellcheck where there is one
	@scripts/install-deps build lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package headwater --all-targets --no-default-features --locked -- -D warnings
	@if command -v shellcheck >/dev/null; then shellcheck scripts/* .ci/run; fi

experiments: deps ## Weighted sharing of one link, measured in namespaces (about a minute, on an idle machine)
	$(CARGO) test --release --locked --package headwater --test shared_link -- \
	  --ignored --nocapture --test-threads=1

storms: deps ## Break STORMS random simulated networks, hosts, disks and controllers: all must be delivered, or reported
	HEADWATER_STORMS=$(STORMS) $(CARGO) test --release --locked --package headwater-experiment --test storms -- \
	  --nocapture everybody_has_it
	HEADWATER_STORMS=2000 $(CARGO) test --release --locked --package headwater-experiment --test storms -- \
	  --nocapture casts_to_up_to_200
	HEADWATER_STORMS=1000 $(CARGO) test --release --locked --package headwater-sim --test fault_storms -- --nocapture

soak: deps ## Deliveries at full speed while sources die, stop and come back, for SOAK_SECONDS: nothing may grow
	HEADWATER_SOAK_SECONDS=$(SOAK_SECONDS) HEADWATER_SOAK_MIB=256 $(CARGO) test --release --locked --package headwater \
	  --test soak -- --nocapture

fuzz: ## Run every fuzz target for FUZZ_SECONDS each
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

# Not rebuilt when it is there: `make build && sudo make install` needs no cargo for root.
$(BINARY):
	$(MAKE) build

# The binary that is built keeps its line tables, for backtraces and profiles of whoever builds it; the installed one does without. They
# are most of its size, and the message of a panic names its line all the same.
install: $(BINARY) ## Install binary, completions, manual pages and systemd units below PREFIX, and a config file in /etc if there is none
	install -d $(DESTDIR)$(BINDIR)
	@if command -v strip >/dev/null; then \
	  echo strip --strip-debug -o $(DESTDIR)$(BINDIR)/headwater $(BINARY); \
	  rm -f $(DESTDIR)$(BINDIR)/headwater; \
	  strip --strip-debug -o $(DESTDIR)$(BINDIR)/headwater $(BINARY); \
	else \
	  echo "there is no strip (package binutils): the binary is installed with its line tables"; \
	  install -m 755 $(BINARY) $(DESTDIR)$(BINDIR)/headwater; \
	fi
	chmod 755 $(DESTDIR)$(BINDIR)/headwater
	install -d $(DESTDIR)$(DATADIR)/bash-completion/completions $(DESTDIR)$(DATADIR)/zsh/site-functions \
	  $(DESTDIR)$(DATADIR)/fish/vendor_completions.d $(DESTDIR)$(MANDIR)
	$(BINARY) completions bash >$(DESTDIR)$(DATADIR)/bash-completion/completions/headwater
	$(BINARY) completions zsh >$(DESTDIR)$(DATADIR)/zsh/site-functions/_headwater
	$(BINARY) completions fish >$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/headwater.fish
	$(BINARY) man $(DESTDIR)$(MANDIR)
	install -d $(DESTDIR)$(SYSTEMD_UNIT_DIR)
	sed 's|@BINDIR@|$(BINDIR)|' packaging/systemd/headwater@.service >$(DESTDIR)$(SYSTEMD_UNIT_DIR)/headwater@.service
	sed 's|@BINDIR@|$(BINDIR)|' packaging/systemd/headwater-agent.service >$(DESTDIR)$(SYSTEMD_UNIT_DIR)/headwater-agent.service
	install -D -m 644 packaging/systemd/headwater.sysusers $(DESTDIR)$(SYSUSERS_DIR)/headwater.conf
	@if [ -e $(DESTDIR)$(SYSCONFDIR)/headwater/config.toml ]; then \
	  echo "$(DESTDIR)$(SYSCONFDIR)/headwater/config.toml is there already and stays as it is"; \
	else \
	  echo install -D -m 644 packaging/config.toml $(DESTDIR)$(SYSCONFDIR)/headwater/config.toml; \
	  install -D -m 644 packaging/config.toml $(DESTDIR)$(SYSCONFDIR)/headwater/config.toml; \
	fi

# A config file that was changed is its owner's.
uninstall: ## Remove what install put there
	@if cmp -s packaging/config.toml $(DESTDIR)$(SYSCONFDIR)/headwater/config.toml; then \
	  echo rm $(DESTDIR)$(SYSCONFDIR)/headwater/config.toml; \
	  rm -f $(DESTDIR)$(SYSCONFDIR)/headwater/config.toml; \
	  rmdir --ignore-fail-on-non-empty $(DESTDIR)$(SYSCONFDIR)/headwater; \
	fi
	rm -f $(DESTDIR)$(SYSTEMD_UNIT_DIR)/headwater@.service $(DESTDIR)$(SYSUSERS_DIR)/headwater.conf
	rm -f $(DESTDIR)$(BINDIR)/headwater $(DESTDIR)$(DATADIR)/bash-completion/completions/headwater \
	  $(DESTDIR)$(DATADIR)/zsh/site-functions/_headwater \
	  $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/headwater.fish \
	  $(DESTDIR)$(MANDIR)/headwater.1 $(DESTDIR)$(MANDIR)/headwater-*.1

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf fuzz/target fuzz/artifacts fuzz/coverage
