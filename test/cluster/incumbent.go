package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	incumbentModule = "github.com/NVIDIA/gpu-operator"
	// Where its program has its manifests in the container, what the kubelet mounts there, and a folder of the host.
	incumbentFiles   = "/opt/gpu-operator"
	incumbentAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
	incumbentHost    = "/host-etc"
)

// Incumbent is NVIDIA's operator in the version that test/incumbent/go.mod pins. Its program and its files come from
// its Go module: nothing of them is in this repository.
type Incumbent struct {
	// Program is the path of its program.
	Program string
	// Version is that of the module.
	Version string
	// dir is the folder of the module.
	dir string
}

// EnsureIncumbent builds NVIDIA's operator unless it is in the cache in the pinned version. It writes a line to
// progress when it builds. Concurrent processes wait for each other.
func EnsureIncumbent(ctx context.Context, progress io.Writer) (Incumbent, error) {
	root, err := repositoryRoot()
	if err != nil {
		return Incumbent{}, err
	}
	pins := filepath.Join(root, "test", "incumbent")
	module, err := download(ctx, pins, incumbentModule)
	if err != nil {
		return Incumbent{}, err
	}
	dir := filepath.Join(root, ".cache", "incumbent", module.Version)
	program := tool{
		name: "gpu-operator", pkg: incumbentModule + "/cmd/gpu-operator", module: incumbentModule, version: module.Version,
		dir: pins, cold: "2 min",
	}
	if err := ensure(ctx, dir, []tool{program}, progress); err != nil {
		return Incumbent{}, fmt.Errorf("NVIDIA's operator: %w", err)
	}
	return Incumbent{Program: filepath.Join(dir, program.name), Version: module.Version, dir: module.Dir}, nil
}

// module is what the go command reports of a module.
type module struct {
	// Version is the pinned one, and Dir the folder of the module cache with its files.
	Version, Dir string
}

// download returns a module that the go.mod in dir requires, which it downloads unless it is in the module cache.
func download(ctx context.Context, dir, path string) (module, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return module{}, fmt.Errorf("download %s: %w\n%s%s", path, err, text, stderr.Bytes())
	}
	found := module{}
	if err := json.Unmarshal(text, &found); err != nil {
		return module{}, fmt.Errorf("read where %s was downloaded to: %w", path, err)
	}
	return found, nil
}

// Chart returns the folder of its Helm chart, with that of Node Feature Discovery in it.
func (i Incumbent) Chart() string { return filepath.Join(i.dir, "deployments", "gpu-operator") }

// Definitions returns the files with its CRDs, in the order of their names.
func (i Incumbent) Definitions() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(i.Chart(), "crds", "*.yaml"))
	if err == nil && len(files) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("find the CRDs of NVIDIA's operator: %w", err)
	}
	return files, nil
}

// Files returns, for ProgramOptions, what its image and its pod have: the manifests, the namespace of the pod, in which
// it elects a leader, and the name of the operating system of its node, Ubuntu 24.04. They are written to scratch, an
// empty folder.
func (i Incumbent) Files(scratch, namespace string) (map[string]string, error) {
	image, account := filepath.Join(scratch, "image"), filepath.Join(scratch, "account")
	host := filepath.Join(scratch, "host")
	for folder, source := range map[string]string{
		image: filepath.Join(i.dir, "assets"), filepath.Join(image, "manifests"): filepath.Join(i.dir, "manifests"),
	} {
		if err := os.CopyFS(folder, os.DirFS(source)); err != nil {
			return nil, fmt.Errorf("make the files of an image: %w", err)
		}
	}
	for path, text := range map[string]string{
		filepath.Join(account, "namespace"): namespace,
		filepath.Join(host, "os-release"):   "ID=ubuntu\nVERSION_ID=\"24.04\"\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("make the files of a pod: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("make the files of a pod: %w", err)
		}
	}
	return map[string]string{incumbentFiles: image, incumbentAccount: account, incumbentHost: host}, nil
}
