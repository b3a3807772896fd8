package packaged

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

// Chart is the folder of the chart in the repository, which is not released: values must set the operator's image.
const Chart = "config/helm/gpu-operator"

// ReleaseChart writes the chart of a release with this version and image to the folder out.
func ReleaseChart(ctx context.Context, repo, out, version, image string) error {
	cmd := exec.CommandContext(ctx, "go", "run", "./config/helm/generate",
		"-version", version, "-image", image, "-out", out)
	cmd.Dir = repo
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making the chart of a release: %w\n%s", err, text)
	}
	return nil
}

// HelmFunc runs a release of Helm: Helm or Helm3.
type HelmFunc func(ctx context.Context, repo, home string, env []string, args ...string) (string, error)

// Client runs Helm with all permissions of a kubeconfig.
type Client struct {
	Repo, Home, Kubeconfig string
	// Namespace is used unless the arguments name one.
	Namespace string
	// Release is the release of Helm; nil means Helm.
	Release HelmFunc
}

// Run returns what Helm prints.
func (c Client) Run(ctx context.Context, args ...string) (string, error) {
	if !slices.Contains(args, "--namespace") {
		args = append(slices.Clone(args), "--namespace", c.Namespace)
	}
	run := c.Release
	if run == nil {
		run = Helm
	}
	return run(ctx, c.Repo, c.Home, []string{"KUBECONFIG=" + c.Kubeconfig}, args...)
}

// Sets returns Helm's flags for assignments separated by spaces.
func Sets(assignments string) []string {
	var flags []string
	for assignment := range strings.FieldsSeq(assignments) {
		flags = append(flags, "--set", assignment)
	}
	return flags
}

// Helm runs the Helm that test/tools/helm of the repository pins, and returns what it prints. It ignores the user's
// repositories and plugins: home is an empty folder. The error includes Helm's output.
func Helm(ctx context.Context, repo, home string, env []string, args ...string) (string, error) {
	return helm(ctx, repo, home, env, args, "helm", "helm.sh/helm/v4")
}

// Helm3 is like Helm for the Helm 3 that test/tools/helm3 pins.
func Helm3(ctx context.Context, repo, home string, env []string, args ...string) (string, error) {
	return helm(ctx, repo, home, env, args, "helm3", "helm.sh/helm/v3")
}

func helm(ctx context.Context, repo, home string, env, args []string, dir, module string) (string, error) {
	binary, err := pinned.Tool(repo, dir, "helm", module)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home,
		"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
	}, env...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, complaint.String())
	}
	return out.String(), nil
}

// Decode splits YAML documents into objects, and omits empty ones.
func Decode(text string) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		document := json.RawMessage{}
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("splitting manifests: %w", err)
		}
		if len(document) == 0 || string(document) == "null" {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(document); err != nil {
			return nil, fmt.Errorf("decoding manifests: %w", err)
		}
		objects = append(objects, object)
	}
}
