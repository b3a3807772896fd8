package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// fastPodStages are files of the kwok module, without pod-complete, which is for the pods of Jobs.
var fastPodStages = []string{"pod-ready.yaml", "pod-delete.yaml"}

// FastPodStages returns the paths of kwok's own fast pod stages, of the pinned version, for Options.Stages: a pod is
// Ready as soon as it is bound, and removed as soon as it is deleted. The go command downloads the kwok module unless
// it is in the module cache.
func FastPodStages(ctx context.Context) ([]string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", kwokModule)
	cmd.Dir = filepath.Join(root, "test", "controlplane")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find the stages of kwok: download %s: %w\n%s", kwokModule, err, stderr.Bytes())
	}
	module := struct{ Dir string }{}
	if err := json.Unmarshal(output, &module); err != nil {
		return nil, fmt.Errorf("find the stages of kwok: parse the output of go mod download: %w", err)
	}
	var paths []string
	for _, name := range fastPodStages {
		path := filepath.Join(module.Dir, "kustomize", "stage", "pod", "fast", name)
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("find the stages of kwok: %w", err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}
