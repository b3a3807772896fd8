# All tasks of developers and CI. CI only calls these targets, so that a
# laptop and CI agree. Requires Go, make, git, bash; a C compiler for test-race. Everything else is
# built once from pinned Go modules into .cache/.

# --- Variables that can be set: make TARGET NAME=value ---------------------------------------------

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# NAME:TAG of the operator's image, such as registry.example.com/gpu-operator:dev. No default: a checkout has no image
# in any registry.
IMG     ?=
# NAME:TAG of the bundle image for the Operator Lifecycle Manager.
BUNDLE_IMG ?= $(image_name)-bundle:$(image_tag)
# The release before VERSION, which the bundle names; empty for the first one.
REPLACES ?=
# Namespace of the operator, for make run. Deployments take it from config/default.
OPERATOR_NAMESPACE ?= gpu-operator
# Additional arguments of the manager, for make run, or of helm, for make up.
ARGS ?=
# Additional arguments of go test, for example: make test-unit TESTFLAGS='-run Plan -v'
TESTFLAGS ?=
# The seed of what chance selects in tests, a number. In make ci it is the number of the day since 1970, so that
# another commit of the day, such as a mend, is judged by the same sample, and the next day by the one that follows.
SEED ?=
CONTAINER_TOOL ?= docker
# For the image: the architecture of image-tar and sbom, and the base image. Without one image-tar builds an
# image without a C library; docker-build then takes the one in the Dockerfile.
# For make release: the registry and path of images and chart, such as ghcr.io/clusterpolicy, PUSH=true to push them,
# and the image with opm that CATALOG_BASE puts the catalogue on (default none).
REGISTRY     ?=
PUSH         ?=
CATALOG_BASE ?= scratch
# For make up: REGISTRY pushes the image there instead of loading it into the cluster, LOAD names the kind of cluster
# (kind, k3d, minikube, k3s, containerd or docker), IMAGE_TAR is an archive that has the image IMG, ARGS are further
# arguments of helm, and TIMEOUT is how long it waits (15m). make down waits for the policy for TIMEOUT (5m).
LOAD      ?=
IMAGE_TAR ?=
# Folder of what is built.
DIST       ?= dist
ARCH       ?= $(shell go env GOARCH)
BASE_IMAGE ?=
KUBECTL        ?= kubectl

# make demo takes NODES (number), EXIT=1 (exit once ready), TIMEOUT (5m), BREAK (OPERAND:NODE) and REAL=1 (one more
# node, with containerd and a kubelet; needs root on Linux), or TOUR=1 (scenes, without the others).
# make passes them on as environment variables.
# make bench takes NODES (comma-separated numbers), ONLY (phases), TIMEOUT (of each wait, 15m), STRICT=1
# (fail if a goal is missed), STAGES=fast or delayed (kwok simulates the pods: only the phase compare),
# CONTROL_PLANE=default (its programs are not tuned) or minimal (etcd and API server alone), REPEAT (how often compare repeats its runs) and POLICY (file with
# the operator's policy in the phase compare).
# OTHER (the program of another operator), OTHER_POLICY (file), OTHER_VERSION (text), OTHER_ENV (file), OTHER_ARGS and
# OTHER_MANIFESTS (comma-separated files) make compare measure that operator, too. OTHER=pinned alone is NVIDIA's, in
# the version that test/incumbent pins.

# --- Derived --------------------------------------------------------------------------------------

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

module  := github.com/clusterpolicy/gpu-operator
cache   := $(CURDIR)/.cache

# Folder of what make deploy applies, in .cache: config/default is two folders above it.
DEPLOY_DIR ?= $(cache)/deploy

# The version of a module as pinned in a go.mod.
pinned = $(shell awk '$$1 == "$(2)" && NF > 1 { print $$2 }' $(1)/go.mod)

tools_dir := test/tools
# golangci-lint, both releases of helm, krew's check, kube-score, kubectl and the registry have modules of their own: otherwise the other tools would raise their many
# dependencies to versions that they were never tested with.
lint_dir  := $(tools_dir)/golangci-lint
helm_dir  := $(tools_dir)/helm
helm3_dir := $(tools_dir)/helm3
registry_dir := $(tools_dir)/registry
kubectl_dir  := $(tools_dir)/kubectl
score_dir := $(tools_dir)/kubescore
krew_dir  := $(tools_dir)/krew

CONTROLLER_GEN := $(cache)/tools/controller-gen-$(call pinned,$(tools_dir),sigs.k8s.io/controller-tools)
CRD_REF_DOCS   := $(cache)/tools/crd-ref-docs-$(call pinned,$(tools_dir),github.com/elastic/crd-ref-docs)
GOTESTSUM      := $(cache)/tools/gotestsum-$(call pinned,$(tools_dir),gotest.tools/gotestsum)
KUSTOMIZE      := $(cache)/tools/kustomize-$(call pinned,$(tools_dir),sigs.k8s.io/kustomize/kustomize/v5)
HELM           := $(cache)/tools/helm-$(call pinned,$(helm_dir),helm.sh/helm/v4)
HELM3          := $(cache)/tools/helm-$(call pinned,$(helm3_dir),helm.sh/helm/v3)
# What tests push a release to and install it with.
TEST_REGISTRY  := $(cache)/tools/registry-$(call pinned,$(registry_dir),github.com/distribution/distribution/v3)
TEST_KUBECTL   := $(cache)/tools/kubectl-$(call pinned,$(kubectl_dir),k8s.io/kubectl)
KUBE_SCORE     := $(cache)/tools/kube-score-$(call pinned,$(score_dir),github.com/zegl/kube-score)
# What checks the manifest of the plugin by the rules of krew's index.
KREW_CHECK     := $(cache)/tools/validate-krew-manifest-$(call pinned,$(krew_dir),sigs.k8s.io/krew)
GOLANGCI_LINT  := $(cache)/tools/golangci-lint-$(call pinned,$(lint_dir),github.com/golangci/golangci-lint/v2)

##@ General

.PHONY: help
help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z][a-z-]*:.*## / { printf "  %-15s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## Build the programs into bin/
	VERSION=$(VERSION) config/image/build.sh programs bin

.PHONY: kubectl
kubectl: $(TEST_KUBECTL) ## Build kubectl and its plugin, kubectl gpu, into bin/
	@mkdir -p bin && cp $(TEST_KUBECTL) bin/kubectl && CGO_ENABLED=0 go build -trimpath -o bin/kubectl-gpu ./cmd/kubectl-gpu
	@echo 'export PATH=$(CURDIR)/bin:$$PATH'

.PHONY: clean
clean: ## Remove build outputs; keep the tools and the control plane in .cache/
	rm -rf bin dist $(cache)/bin $(cache)/deploy

##@ Run

# make turns every failure into status 2, but the demo's own status is documented: 1 means "not ready
# in time". With -q make exits with 1 if a line is left to run, and + runs a line nevertheless.
ifeq ($(MAKECMDGOALS),demo)
MAKEFLAGS += -q
endif

.PHONY: demo demo-run
demo: demo-run ## Show GPU nodes becoming ready on a real control plane (NODES=8 EXIT=1 TIMEOUT=5m BREAK=driver:gpu-00003 REAL=1, or TOUR=1)
	$(if $(filter-out 0,$(file < $(cache)/demo.status)),@exit $(file < $(cache)/demo.status))

# The demo is a separate job (set -m) and gets each signal once, from here: otherwise a Ctrl-C in the
# terminal would also end its control plane before the demo does.
demo-run:
	+@test -e $(cache)/bin/demo || echo "Building the demo ..."
	+@mkdir -p $(cache)/bin && go build -o $(cache)/bin/demo ./test/demo
	+@set -m +e; $(cache)/bin/demo & demo=$$!; set +m; \
	trap 'kill -INT $$demo' INT; trap 'kill -TERM $$demo' TERM; \
	while wait $$demo; status=$$?; kill -0 $$demo 2>/dev/null; do :; done; \
	echo $$status > $(cache)/demo.status

.PHONY: run
run: image-name build ## Run the manager on this machine against the cluster of the current KUBECONFIG (ARGS=...)
	OPERATOR_NAMESPACE=$(OPERATOR_NAMESPACE) OPERATOR_IMAGE=$(IMG) exec bin/gpu-operator $(ARGS)

##@ Test

# The packages in test/ run one after another (-p 1), as their clusters would disturb each other's
# measurements, and always (-count=1), as go test does not notice that the operator's binary changed. Within a package
# tests mostly wait, so that more of them run in parallel than there are cores (cluster.SetParallel).
# The time limit of a package leaves room for building the control plane, about 10 minutes once.

# test-envtest runs the packages of the controllers whole.
unit          = $$(go list ./... | grep -v '^$(module)/test/\|/internal/controller' | xargs)
# Packages of which -short leaves out a part that no other test target runs.
shortened     = $$(git grep -lE 'testing\.Short\(\)|chance\.(Part|Numbers)' -- 'cmd/*_test.go' 'internal/*_test.go' \
  ':!internal/controller' | xargs -n 1 dirname | sort -u | sed 's|^|./|' | xargs)
# Units that start goroutines or share data between some, or whose tests do. Each night the others are tested with the
# race detector, too: it makes tests ten times slower, above all those of the models.
concurrent    = $$(git grep -lE '^\s*go (func|[A-Za-z_.]+)\(|"sync(/atomic)?"|/errgroup"|\bchan\b' -- 'cmd/*.go' 'internal/*.go' \
  ':!internal/controller' ':!internal/health/healthaction' ':!internal/stack/plan' ':!internal/upgrade' \
  | xargs -n 1 dirname | sort -u | sed 's|^|./|' | xargs)
# Tests of the repository itself: the race detector finds nothing there.
rules         = ./test/architecture ./test/contract ./test/specgen ./test/docs/...
cluster_tests = $$(go list ./test/... | grep -v '/test/\(architecture\|contract\|specgen\|docs.*$(left_out)\)$$' | xargs)
suites        = ./internal/controller/...
# Packages tested at a time where many tests wait: more than a small machine has cores.
overlap       = 4

# $(1): format, $(2): packages, $(3): flags of go test. Without symbols for debuggers, linking the test programs takes half
# as long.
define go-test
	@mkdir -p $(cache)/times
	$(GOTESTSUM) --format=$(1) --hide-summary=skipped --packages="$(2)" --jsonfile=$(cache)/times/$@.json \
	  -- $(3) $(vet) -ldflags=-s $(TESTFLAGS)
endef

# A sample of the tests in test/ runs here, which is to end in 20 minutes on two cores; cluster.SkipInSample marks those
# that are left out.
.PHONY: test
test: export TEST_SAMPLE = 1
test: test-unit test-envtest test-clusters ## Run the tests of all areas: unit tests, controller suites, and a sample of those on a real control plane
	@go run ./test/times $(foreach part,$^,$(cache)/times/$(part).json)

# Tests leave much garbage and have little memory in use, so that collecting it often is a fifth of their time.
.PHONY: test-unit
test-unit: export GOGC = 400
test-unit: $(GOTESTSUM) ## Run the tests that do not need a control plane
	$(call go-test,standard-quiet,$(unit) $(rules),-short -p $(overlap))

.PHONY: test-envtest
test-envtest: $(GOTESTSUM) ## Run the controller suites on etcd and an API server
	$(call go-test,standard-quiet,$(suites),-count=1 -timeout=30m -p $(overlap) $(if $(TEST_SAMPLE),-skip=TestLargeCluster))

.PHONY: test-clusters
test-clusters: $(GOTESTSUM) ## Run all tests on a real control plane, with a sample of each campaign
	$(if $(TEST_SAMPLE),,cd config/image && go test -v -count=1 $(TESTFLAGS) ./...)
	cd test/monitoring && go test -v -count=1 $(TESTFLAGS) ./...
	cd test/olm && go test -v -count=1 $(TESTFLAGS) ./...
	$(call go-test,standard-verbose,$(cluster_tests),-count=1 -p 1 -timeout=60m)

.PHONY: test-race test-race-units test-race-suites
test-race: test-race-units test-race-suites ## Run concurrent units, controller suites and one end-to-end test with the race detector

test-race-units: $(GOTESTSUM)
	$(call go-test,standard-quiet,$(concurrent),-race -short)

# Without the tests of internal/controller itself, which drive the controllers one after another, for memory, times and
# lost state.
test-race-suites: $(GOTESTSUM)
	$(call go-test,standard-quiet,$$(go list $(suites) | grep -v '/internal/controller$$' | xargs),-race -count=1 -timeout=30m)
	$(call go-test,standard-verbose,./test/integration,-race -count=1 -run=TestNodesBecomeReady/newest -timeout=30m)

.PHONY: test-controller
test-controller: $(GOTESTSUM)
	$(call go-test,standard-quiet,./internal/controller,-count=1)

# Packages whose code is changed, one place at a time, to see whether a test fails; all places of all take many hours.
mutated ?= ./internal/... ./cmd/...
mutate   = go run ./test/mutate $(if $(SEED),-seed=$(SEED)) $(if $(OPERATORS),-operators=$(OPERATORS)) \
  $(if $(IMPORTERS),-importers=$(IMPORTERS)) $(if $(LANES),-lanes=$(LANES)) $(if $(SUITES),-suites) $(if $(REPORT),-report=$(REPORT)) \
  $(if $(MOST),-most=$(MOST)) $(if $(MOST_OF_PACKAGE),-most-of-package=$(MOST_OF_PACKAGE))

.PHONY: test-mutations
test-mutations: ## Change the code in one place at a time, and check that a test fails (mutated=PACKAGES MUTANTS=20 SEED=1 OPERATORS=error IMPORTERS=8 LANES=2 SUITES=1 MOST=8 MOST_OF_PACKAGE=15 REPORT=FILE)
	$(mutate) $(if $(MUTANTS),-mutants=$(MUTANTS)) $(mutated)

# Eight packages, as building their tests takes longer than running them. Mutants of on-node packages are left out, as
# they may signal processes of the machine.
sampled  = $$(go list $(mutated) | grep -v '/internal/onnode/\|/cmd/gpu-node' | xargs)
# Without the suites all packages but the controllers are judged; the suites judge these. A run that was interrupted is
# continued, at the same commit with the same seed. Mutants of on-node packages may signal processes of the machine: hence
# a PID namespace. The second run judges the rows of both.
.PHONY: test-mutants-report
test-mutants-report: ## Try 20 mutants of each package and write the table of docs/test-report.md; takes hours (needs root; SEED=1)
	unshare --pid --fork --mount-proc $(MAKE) --no-print-directory test-mutations MUTANTS=20 SEED=$(or $(SEED),1) \
	  IMPORTERS=8 LANES=2 MOST=100 REPORT=docs/test-report.md
	unshare --pid --fork --mount-proc $(MAKE) --no-print-directory test-mutations MUTANTS=20 SEED=$(or $(SEED),1) \
	  SUITES=1 MOST=8 MOST_OF_PACKAGE=15 REPORT=docs/test-report.md mutated=$(suites)

.PHONY: test-mutants-sample
test-mutants-sample: ## Try a random sample of test-mutations, in 4 minutes (SEED=1 repeats one)
	$(mutate) -packages=8 -mutants=15 -budget=3m30s -most=40 $(sampled)

.PHONY: test-full
test-full: test-unit ## Run all tests with complete campaigns and models; takes hours
	for module in config/image test/monitoring test/olm; do (cd $$module && go test -v -count=1 $(TESTFLAGS) ./...) || exit; done
	$(MAKE) --no-print-directory test-mutants-sample
	TEST_FULL=1 go test -v -count=1 -p 1 -timeout 12h $(TESTFLAGS) $(shortened) ./test/...
	$(MAKE) --no-print-directory test-next

.PHONY: test-next
test-next: ## Run the main tests on the newest supported Kubernetes; builds its control plane once
	KUBERNETES_VERSION=next go test -v -count=1 -p 1 -timeout 90m $(TESTFLAGS) ./test/integration ./test/guides \
	  -run '^(TestNodesBecomeReady|TestAPI|TestAdmissionPolicies|TestValidateAgreesWithTheAPIServer|TestGangSchedulingOnTheNextKubernetes)$$'

.PHONY: test-node
test-node: $(GOTESTSUM) ## Run the stack on a real node: kubelet, containerd and runc (needs root on Linux)
	$(call go-test,standard-verbose,./test/node,-count=1 -timeout=60m)

.PHONY: test-operand
test-operand: ## Add an operand to a copy of the repository, and show that four places are enough
	TEST_OPERAND=1 go test -count=1 -timeout=30m $(TESTFLAGS) ./test/addoperand

.PHONY: test-gpu
test-gpu: ## Run the on-node programs against this machine's NVIDIA driver; skipped without one
	@if [ ! -e /proc/driver/nvidia/version ] && ! command -v nvidia-smi >/dev/null; then \
	  echo "SKIPPED: this machine has no NVIDIA driver"; exit 0; \
	fi; \
	$(MAKE) --no-print-directory build; \
	GPU_TEST=1 go test -v -count=1 $(TESTFLAGS) ./test/gpu

# The bundle is written into dist/gpu-bundle; its archive takes 5 minutes more.
.PHONY: gpu-bundle
gpu-bundle: ## Write dist/gpu-bundle.tar.xz: all that a machine with a GPU needs for the tests, without network and Go
	go run ./test/gpubundle -out $(DIST)/gpu-bundle -archive $(DIST)/gpu-bundle.tar.xz

# The programs are those of the bundle: the folder has nothing else, and PATH only the system. Where a real node can
# run, as root with cgroup v1, no part may be skipped.
.PHONY: test-gpu-bundle
test-gpu-bundle: ## Run the bundle with a played driver from an empty folder (needs root on Linux)
	go run ./test/gpubundle -out $(DIST)/gpu-bundle
	@empty=$$(mktemp -d); trap 'rm -rf "$$empty"' EXIT; trap 'exit 130' INT TERM; \
	mv $(DIST)/gpu-bundle "$$empty/gpu-bundle"; cd "$$empty"; \
	all=; if [ "$$(id -u)" = 0 ] && grep -qE '^cgroup .*[, ]memory[, ]' /proc/self/mounts; then all=-all; fi; \
	status=0; env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin gpu-bundle/run.sh -played $$all || status=$$?; \
	if [ $$status != 0 ]; then tail -n 200 results/*.txt || true; fi; \
	exit $$status

bench_other = $(if $(filter pinned,$(OTHER)),-other=pinned,$(bench_program))
bench_program = $(if $(OTHER),-other="$(OTHER)" -other-policy="$(OTHER_POLICY)" -other-version="$(OTHER_VERSION)" \
  -other-env="$(OTHER_ENV)" -other-args="$(OTHER_ARGS)" -other-manifests="$(OTHER_MANIFESTS)")

.PHONY: bench
bench: ## Measure the operator against its goals and write docs/benchmarks.md (NODES=100,1000 ONLY=install,floor STRICT=1 STAGES=fast REPEAT=5)
	@mkdir -p $(cache)/bin && go build -o $(cache)/bin/bench ./test/bench
	$(cache)/bin/bench $(if $(NODES),-nodes=$(NODES)) $(if $(ONLY),-only=$(ONLY)) $(if $(TIMEOUT),-timeout=$(TIMEOUT)) $(if $(filter-out 0,$(STRICT)),-strict) \
	  $(if $(STAGES),-stages=$(STAGES)) $(if $(CONTROL_PLANE),-control-plane=$(CONTROL_PLANE)) $(if $(POLICY),-policy=$(POLICY)) $(bench_other) $(if $(REPEAT),-repeat=$(REPEAT)) $(if $(SOAK),-soak=$(SOAK)) $(if $(DRIVER_SECONDS),-driver-seconds=$(DRIVER_SECONDS))

.PHONY: bench-node
bench-node: ## Measure how fast a waiting program on a node notices a marker
	go test -run '^$$' -bench . -benchtime 200x $(TESTFLAGS) ./cmd/gpu-node

##@ Generate and check

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Generate the DeepCopy methods of the API types
	$(CONTROLLER_GEN) object paths=./api/...

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate the CRDs and the operator's roles from the markers in the code
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases
	@for file in properties nvidiadriver-properties; do \
	  test -e config/crd/$$file.json || echo "{}" > config/crd/$$file.json; done
	go run ./test/trimcrd config/crd/bases/nvidia.com_clusterpolicies.yaml config/crd/properties.json
	go run ./test/trimcrd config/crd/bases/nvidia.com_nvidiadrivers.yaml config/crd/nvidiadriver-properties.json
	$(CONTROLLER_GEN) rbac:roleName=gpu-operator paths='./internal/...;./cmd/...' output:rbac:dir=config/rbac
	go run ./config/rbac/generate

.PHONY: docs
docs: $(CRD_REF_DOCS) ## Generate the API reference docs/api.md and the tables of the other pages
	@$(CRD_REF_DOCS) --log-level=ERROR --source-path=./api --max-depth=20 --renderer=markdown --output-path=docs/api.md \
	  --config=$(tools_dir)/apidocs/config.yaml --templates-dir=$(tools_dir)/apidocs
	@go run ./test/docs/generate

.PHONY: dashboards
dashboards: ## Generate the dashboards for Grafana, config/dashboards/*.json
	cd config/dashboards/generate && go run .

.PHONY: pictures
pictures: ## Draw the dashboards from recorded series, and the page of kubectl gpu ui, into docs/images
	@mkdir -p docs/images
	cd test/monitoring && UPDATE_PICTURES=1 go test -count=1 -run TestPictures ./dashboards
	UPDATE_PICTURES=1 go test -count=1 -run TestPicture ./test/browser

.PHONY: chart
chart: ## Generate the Helm chart config/helm/gpu-operator
	go run ./config/helm/generate

.PHONY: bundle
bundle: ## Generate the bundle for the Operator Lifecycle Manager, bundle/
	go run ./config/manifests/generate

.PHONY: golden
golden: ## Update the golden files of the tests
	UPDATE_GOLDEN=1 go test -short -count=1 ./internal/operand/operands ./internal/stack/plan ./internal/removal ./internal/stack/render

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w $(go_files)

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters of .golangci.yml
	$(GOLANGCI_LINT) run ./...
	cd config/image && $(GOLANGCI_LINT) run ./...
	cd test/monitoring && $(GOLANGCI_LINT) run ./...
	cd test/olm && $(GOLANGCI_LINT) run ./...
	cd test/node/standin && $(GOLANGCI_LINT) run ./...
	cd config/dashboards/generate && $(GOLANGCI_LINT) run ./...

go_files = $$(git ls-files --cached --others --exclude-standard '*.go')
modules  = $$(git ls-files --cached --others --exclude-standard '*go.mod' | xargs -n 1 dirname)

# The content of the working tree as a git tree, without touching the index: verify compares
# before with after, and also works with uncommitted changes.
worktree = rm -f $(cache)/verify.index && GIT_INDEX_FILE=$(cache)/verify.index git add -A \
	&& GIT_INDEX_FILE=$(cache)/verify.index git write-tree

.PHONY: verify
verify: ## Regenerate all generated files and fail if one changes; check that the campaign's bugs apply
	@unformatted=$$(gofmt -l $(go_files)); \
	if [ -n "$$unformatted" ]; then printf 'Files are not formatted; run make fmt:\n%s\n' "$$unformatted" >&2; exit 1; fi
	@for dir in $(modules); do \
	  (cd "$$dir" && go mod tidy -diff) || { echo "$$dir/go.mod or go.sum is not tidy; run go mod tidy in $$dir" >&2; exit 1; }; \
	done
	@for bug in test/campaign/bugs/*.patch; do \
	  git apply --check "$$bug" || { echo "update $$bug with the source: the campaign seeds this bug" >&2; exit 1; }; \
	done
	@mkdir -p $(cache); before=$$($(worktree)); \
	$(MAKE) --no-print-directory generate manifests docs dashboards chart bundle golden; \
	after=$$($(worktree)); \
	changed=$$(git diff --name-status "$$before" "$$after"); \
	if [ -n "$$changed" ]; then \
	  printf 'Generated files were out of date and have been regenerated; commit them:\n%s\n' "$$changed" >&2; exit 1; \
	fi

.PHONY: verify-reports
verify-reports: ## Fail if a part of docs/test-report.md or docs/benchmarks.md is more than 200 commits or 14 days old
	VERIFY_REPORTS=1 go test ./test/docs -count=1 -run '^TestReportsAreRecent$$'

.PHONY: ci ci-parts
ci: ## What CI runs: verify, lint and tests, with one in eight of those that make test leaves out (TEST_SHARE=1: all)
	@seed=$(or $(SEED),$$(($$(date +%s) / 86400))); again="make ci SEED=$$seed repeats what chance selects"; \
	echo "$$again"; status=0; SEED=$$seed $(MAKE) --no-print-directory ci-parts || status=$$?; echo "$$again"; exit $$status

# One in eight of the tests that make test leaves out runs, so that CI ends in time. The seed selects them: in eight
# days each has run.
ci-parts: export TEST_SHARE ?= 8
# lint has vetted all packages.
ci-parts: vet = -vet=off
# test-node is a part of its own.
ci-parts: left_out = \|node
# What takes turns by the day.
turn_0 = test-race-units test-envtest
turn_1 = test-race-suites test-controller
turn_2 = test-envtest test-gpu-bundle test-operand
ci-parts: verify lint test-unit test-mutants-sample test-clusters test-node \
  $(turn_$(shell expr $(or $(SEED),1) % 3))

##@ Deploy

.PHONY: chart-package
chart-package: image-name $(HELM) ## Package the chart of release VERSION with the image IMG into dist/
	go run ./config/helm/generate -version '$(VERSION:v%=%)' -image '$(IMG)' -out dist/gpu-operator
	$(HELM) package dist/gpu-operator --destination dist

.PHONY: bundle-package
bundle-package: image-name ## Generate the bundle of release VERSION with the image IMG into dist/bundle/ (BUNDLE_DIGESTS=1 or a file)
	$(if $(filter 1,$(BUNDLE_DIGESTS)),@mkdir -p dist && go run ./config/manifests/generate -list-images | \
	  (cd config/image && go run . digests) > dist/bundle-digests)
	go run ./config/manifests/generate $(if $(BUNDLE_DIGESTS),-digests '$(if $(filter 1,$(BUNDLE_DIGESTS)),dist/bundle-digests,$(BUNDLE_DIGESTS))') \
	  -version '$(VERSION:v%=%)' -replaces '$(REPLACES:v%=%)' -image '$(IMG)' \
	  -created "$$(git log -1 --format=%cI)" -out dist/bundle

.PHONY: bundle-build
bundle-build: bundle-package ## Build the bundle image BUNDLE_IMG of release VERSION
	$(CONTAINER_TOOL) build -f dist/bundle/bundle.Dockerfile -t $(BUNDLE_IMG) dist/bundle

.PHONY: build-installer
build-installer: image-name deployment ## Write all manifests, with the image IMG, to dist/install.yaml
	@mkdir -p $(DIST)
	$(KUSTOMIZE) build $(DEPLOY_DIR) > $(DIST)/install.yaml

.PHONY: docker-build
docker-build: image-name ## Build the image IMG
	$(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) \
	  $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) $(if $(GOPROXY),--build-arg GOPROXY=$(GOPROXY)) -t $(IMG) .

.PHONY: image-tar
image-tar: image-name rootfs ## Write the image IMG to dist/ as an OCI archive, without a container engine (ARCH= BASE_IMAGE=)
	$(image) --name=$(IMG) --base='$(BASE_IMAGE)' --revision=$(REVISION) --out=$(CURDIR)/dist/gpu-operator-$(ARCH).oci.tar
	@echo dist/gpu-operator-$(ARCH).oci.tar

.PHONY: sbom
sbom: rootfs ## Write the SBOM of the programs in the image to dist/, in CycloneDX format (ARCH=)
	$(image) --sbom=$(CURDIR)/dist/gpu-operator-$(ARCH).cdx.json
	@echo dist/gpu-operator-$(ARCH).cdx.json

image = cd config/image && go run . --rootfs=$(CURDIR)/dist/rootfs-$(ARCH) --arch=$(ARCH) --version=$(VERSION)

.PHONY: rootfs
rootfs:
	@rm -rf dist/rootfs-$(ARCH)
	GOARCH=$(ARCH) VERSION=$(VERSION) config/image/build.sh rootfs dist/rootfs-$(ARCH)

.PHONY: release
release: $(KUSTOMIZE) ## Build release VERSION for REGISTRY into dist/: images, chart, install.yaml, bundle, catalogue, SBOMs (PUSH=true)
	@[ -n '$(REGISTRY)' ] || { echo 'REGISTRY is not set: name the registry and path that the release is pushed to,' \
	  'such as REGISTRY=registry.example.com/gpu' >&2; exit 2; }
	cd config/image && go run . release --root='$(CURDIR)' --out='$(abspath $(DIST))' --version='$(VERSION)' \
	  --registry='$(REGISTRY)' --base='$(BASE_IMAGE)' --catalog-base='$(CATALOG_BASE)' --replaces='$(REPLACES)' --revision='$(REVISION)' \
	  $(if $(PLUGIN_PLATFORMS),--plugin-platforms='$(PLUGIN_PLATFORMS)') \
	  --created="$$(git log -1 --format=%cI)" --push=$(if $(filter-out false 0,$(PUSH)),true,false)

.PHONY: install
install: $(KUSTOMIZE) ## Install the CRDs into the cluster of the current KUBECONFIG
	$(KUSTOMIZE) build config/crd | $(KUBECTL) apply -f -

.PHONY: uninstall
uninstall: $(KUSTOMIZE) ## Remove the CRDs and thereby every ClusterPolicy and NVIDIADriver
	$(KUSTOMIZE) build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: image-name deployment ## Install CRDs, RBAC and the operator with the image IMG
	$(KUSTOMIZE) build $(DEPLOY_DIR) | $(KUBECTL) apply -f -

.PHONY: undeploy
undeploy: deployment ## Delete all ClusterPolicies, wait until the stack is gone, and remove what deploy installed (TIMEOUT=5m)
	$(delete-policies)
	$(KUSTOMIZE) build $(DEPLOY_DIR) | $(KUBECTL) delete --ignore-not-found -f -

define delete-policies
	@if $(KUBECTL) get customresourcedefinition clusterpolicies.nvidia.com >/dev/null 2>&1; then \
	  $(KUBECTL) delete clusterpolicies.nvidia.com --all --timeout=$(or $(TIMEOUT),5m) || { \
	    echo 'ClusterPolicies are left: kubectl get clusterpolicies shows what they wait for. Repeat the command, or finish' \
	      'without the operator: kubectl gpu cleanup' >&2; exit 1; }; \
	fi
endef

load = KUBECTL='$(KUBECTL)' CONTAINER_TOOL='$(CONTAINER_TOOL)' LOAD='$(LOAD)' config/image/load.sh
# The image needs a C library, so that this is not the default of image-tar.
up_base  = $(or $(BASE_IMAGE),$(shell sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile))
# Another content has another tag, so that it replaces the operator's pods.
up_tag   = dev-$(shell { cat dist/rootfs-$(ARCH)/usr/bin/*; echo '$(up_base)'; } | sha256sum | head -c 12)
up_image = $(or $(IMG),$(or $(REGISTRY),localhost)/gpu-operator:$(up_tag))
up_file  = $(or $(abspath $(IMAGE_TAR)),$(CURDIR)/dist/gpu-operator-$(ARCH).oci.tar)

.PHONY: up up-way
up: up-way $(HELM) $(if $(IMAGE_TAR),image-name,rootfs) ## Build and load the image, install the chart with its policy, wait until ready (REGISTRY= LOAD= ARGS= TIMEOUT=15m)
	$(if $(IMAGE_TAR),,@$(image) --name='$(up_image)' --base='$(up_base)' --revision=$(REVISION) \
	  $(if $(REGISTRY),--push,--out='$(up_file)'))
	$(if $(REGISTRY),,@$(load) load '$(up_file)')
	@go build -o $(cache)/bin/kubectl-gpu ./cmd/kubectl-gpu
	@$(HELM) upgrade --install gpu-operator config/helm/gpu-operator --namespace $(OPERATOR_NAMESPACE) --create-namespace \
	  --wait --timeout $(or $(TIMEOUT),15m) --set operator.image='$(up_image)' $(ARGS) || { $(cache)/bin/kubectl-gpu status || true; \
	  echo 'The GPUs are not ready: kubectl gpu explain says why. Repeat make up, or remove all with make down' >&2; exit 1; }
	@$(cache)/bin/kubectl-gpu status

# Nothing is built for a cluster that the image cannot get to.
up-way:
	@[ -z '$(REGISTRY)' ] || [ -z '$(IMAGE_TAR)' ] || { \
	  echo 'IMAGE_TAR is loaded, not pushed: leave out IMAGE_TAR or REGISTRY' >&2; exit 2; }
	@[ -n '$(REGISTRY)' ] || { way=$$($(load) way) && echo "The image is loaded by $$way"; }

.PHONY: down
down: $(HELM) ## Delete all ClusterPolicies, wait until the stack is gone, and remove what up installed (TIMEOUT=5m)
	$(delete-policies)
	@$(HELM) uninstall gpu-operator --namespace $(OPERATOR_NAMESPACE) --ignore-not-found --no-hooks --wait
	@$(KUBECTL) delete --ignore-not-found customresourcedefinitions clusterpolicies.nvidia.com nvidiadrivers.nvidia.com
	@$(KUBECTL) delete --ignore-not-found --timeout=$(or $(TIMEOUT),5m) namespace $(OPERATOR_NAMESPACE)

.PHONY: image-name
image-name:
	@[ -n '$(IMG)' ] || { echo 'IMG is not set: name an image that the cluster can pull,' \
	  'such as IMG=registry.example.com/gpu-operator:dev; make docker-build or make image-tar builds it' >&2; exit 2; }

# config/default with the image IMG, as an overlay outside the tracked files.
.PHONY: deployment
deployment: $(KUSTOMIZE)
	@mkdir -p $(DEPLOY_DIR) && cp config/manager/operator_image.yaml $(DEPLOY_DIR)/
	@printf '%s\n' 'resources: [../../config/default]' \
	  $(if $(IMG),'$(image_override)') \
	  'replacements: [{path: operator_image.yaml}]' > $(DEPLOY_DIR)/kustomization.yaml

image_override = images: [{name: IMAGE-NOT-SET, newName: "$(image_name)", newTag: "$(image_tag)"}]
image_tag  = $(lastword $(subst :, ,$(IMG)))
image_name = $(patsubst %:$(image_tag),%,$(IMG))

# --- Tools, each built once per version ----------------------------------------------------------

# $(1): folder of the module, $(2): package, $(3): further flags of the linker.
define build-tool
	@echo "Building $(notdir $@) (first time only) ..."
	@mkdir -p $(@D)
	@cd $(1) && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w $(3)' -o $@.building $(2)
	@mv $@.building $@
endef

$(CONTROLLER_GEN):
	$(call build-tool,$(tools_dir),sigs.k8s.io/controller-tools/cmd/controller-gen)

$(CRD_REF_DOCS):
	$(call build-tool,$(tools_dir),github.com/elastic/crd-ref-docs)

$(GOTESTSUM):
	$(call build-tool,$(tools_dir),gotest.tools/gotestsum)

$(KUSTOMIZE):
	$(call build-tool,$(tools_dir),sigs.k8s.io/kustomize/kustomize/v5)

$(HELM):
	$(call build-tool,$(helm_dir),helm.sh/helm/v4/cmd/helm)

# Helm 3 gets the release of Kubernetes that it assumes without a cluster from its own Makefile: that of client-go.
$(HELM3):
	$(call build-tool,$(helm3_dir),helm.sh/helm/v3/cmd/helm,$(foreach part,Major=1 Minor=$(word 2,$(subst ., \
	  ,$(call pinned,$(helm3_dir),k8s.io/client-go))),-X helm.sh/helm/v3/pkg/chartutil.k8sVersion$(part)))

$(TEST_REGISTRY):
	$(call build-tool,$(registry_dir),github.com/distribution/distribution/v3/cmd/registry)

$(TEST_KUBECTL):
	$(call build-tool,$(kubectl_dir),.)

$(KREW_CHECK):
	$(call build-tool,$(krew_dir),sigs.k8s.io/krew/cmd/validate-krew-manifest)

$(KUBE_SCORE):
	$(call build-tool,$(score_dir),github.com/zegl/kube-score/cmd/kube-score)

$(GOLANGCI_LINT):
	$(call build-tool,$(lint_dir),github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
