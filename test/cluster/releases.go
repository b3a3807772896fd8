package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

const (
	// Newest is the newest release of Kubernetes on which all tests run, pinned in test/controlplane/go.mod.
	Newest = "newest"
	// Oldest is the oldest supported release, pinned in test/controlplane/oldest/go.mod.
	Oldest = "oldest"
	// Next is the newest supported release, pinned in test/controlplane/next/go.mod, on which the main tests run. Only
	// make test-next and make test-full run on it, because it is built for that alone.
	Next = "next"

	// VersionVariable is the environment variable with the default version, to run a whole test suite on another
	// release.
	VersionVariable = "KUBERNETES_VERSION"
	// AssetsVariable is envtest's environment variable for a folder with etcd and kube-apiserver. If no version is
	// named, these are run instead of the pinned ones.
	AssetsVariable = "KUBEBUILDER_ASSETS"

	modulePath       = "github.com/clusterpolicy/gpu-operator"
	kubernetesModule = "k8s.io/kubernetes"
	kwokModule       = "sigs.k8s.io/kwok"
)

// tool is one program of the control plane, with the module that pins its source.
type tool struct {
	name    string
	pkg     string
	module  string
	version string
	// dir has the go.mod that pins the version.
	dir string
	// envtest marks the tools that envtest runs and AssetsVariable can replace.
	envtest bool
	// cold is the duration of a first build, for the progress line.
	cold string
	// variables are those of the program that the linker sets, beside the version of Kubernetes.
	variables map[string]string
	// environment returns further variables for the build, given a cache folder; nil if it needs none.
	environment func(ctx context.Context, dir string) ([]string, error)
	// linker are further flags of the Go linker; empty for none.
	linker string
}

// release is one supported Kubernetes version with the tools that make up its control plane.
type release struct {
	version string
	tools   []tool
	// dir has the tools that are built.
	dir string
	// assets has the tools that envtest runs; empty if they are built too.
	assets string
}

// ensure builds the missing tools.
func (r release) ensure(ctx context.Context, progress io.Writer) error {
	tools := r.tools
	if r.assets != "" {
		tools = slices.DeleteFunc(slices.Clone(tools), func(t tool) bool { return t.envtest })
	}
	return ensure(ctx, r.dir, tools, progress)
}

// envtestTools returns the tools that envtest runs.
func (r release) envtestTools() []tool {
	return slices.DeleteFunc(slices.Clone(r.tools), func(t tool) bool { return !t.envtest })
}

// program returns the path of a tool.
func (r release) program(name string) string {
	isNamed := func(t tool) bool { return t.name == name }
	if r.assets != "" && slices.ContainsFunc(r.envtestTools(), isNamed) {
		return filepath.Join(r.assets, name)
	}
	return filepath.Join(r.dir, name)
}

// Releases returns the releases on which tests run that are about all of them: that of VersionVariable, or else Newest
// and Oldest.
func Releases() []string {
	if version := os.Getenv(VersionVariable); version != "" {
		return []string{version}
	}
	return []string{Newest, Oldest}
}

// findRelease returns the release that the version names: Newest, Oldest, Next or an exact version such as v1.36.3 that
// one of the go.mod files pins. The empty string selects that of VersionVariable, else Newest, with the programs of
// AssetsVariable for envtest.
func findRelease(root, version string) (release, error) {
	rel, err := findPinned(root, cmp.Or(version, os.Getenv(VersionVariable), Newest))
	if err != nil {
		return release{}, err
	}
	rel.dir = filepath.Join(root, ".cache", "controlplane", rel.version)
	if version == "" {
		rel.assets = os.Getenv(AssetsVariable)
	}
	return rel, nil
}

// findPinned returns the release that the version names, as findRelease.
func findPinned(root, version string) (release, error) {
	main := filepath.Join(root, "test", "controlplane")
	var choices []string
	for _, pinned := range []struct{ name, folder string }{{Newest, ""}, {Oldest, "oldest"}, {Next, "next"}} {
		found, err := readRelease(filepath.Join(main, pinned.folder), main)
		if err != nil {
			return release{}, err
		}
		if version == pinned.name || version == found.version {
			return found, nil
		}
		choices = append(choices, fmt.Sprintf("%s (%s)", pinned.name, found.version))
	}
	return release{}, fmt.Errorf("no release of Kubernetes is pinned as %q: choose one of %s", version,
		strings.Join(choices, ", "))
}

// readRelease reads the versions of the Kubernetes tools from the module in kubeDir and of the others from mainDir.
func readRelease(kubeDir, mainDir string) (release, error) {
	tools := []tool{
		{
			name: "etcd", envtest: true, pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3", dir: mainDir,
			cold: "1 min",
		},
		{
			name: "kube-apiserver", envtest: true, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: kubernetesModule,
			dir: kubeDir, cold: "5 min",
		},
		{
			name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", module: kubernetesModule,
			dir: kubeDir, cold: "1 min",
		},
		{
			name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler", module: kubernetesModule, dir: kubeDir,
			cold: "30 s",
		},
		{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok", module: kwokModule, dir: mainDir, cold: "2 min"},
	}
	rel := release{}
	for i := range tools {
		version, err := requiredVersion(tools[i].dir, tools[i].module)
		if err != nil {
			return release{}, err
		}
		tools[i].version = version
		if tools[i].module == kubernetesModule {
			rel.version = version
		}
	}
	rel.tools = tools
	return rel, nil
}

// requiredVersion reads the version of a module from the go.mod in dir.
func requiredVersion(dir, module string) (string, error) {
	path := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read pinned versions: %w", err)
	}
	file, err := modfile.ParseLax(path, data, nil)
	if err != nil {
		return "", fmt.Errorf("parse pinned versions: %w", err)
	}
	for _, req := range file.Require {
		if req.Mod.Path == module {
			return req.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", path, module)
}

// repositoryRoot walks up from the working directory to the go.mod of this project.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modfile.ModulePath(data) == modulePath {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of %s in %s or above", modulePath, start)
		}
	}
}

// linkerFlags returns the flags of the linker: for the variables, and for the Kubernetes version, without which the
// API server reports v0.0.0-master.
func (t tool) linkerFlags() string {
	flags := "-s -w"
	if t.linker != "" {
		flags += " " + t.linker
	}
	for _, name := range slices.Sorted(maps.Keys(t.variables)) {
		flags += fmt.Sprintf(" -X %s=%s", name, t.variables[name])
	}
	if t.module != kubernetesModule {
		return flags
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(t.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	for name, value := range map[string]string{"gitVersion": t.version, "gitMajor": major, "gitMinor": minor} {
		flags += fmt.Sprintf(" -X k8s.io/component-base/version.%s=%s", name, value)
	}
	return flags
}
