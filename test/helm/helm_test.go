package helm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/mod/modfile"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/version"
)

const (
	repo      = "../.."
	chart     = repo + "/config/helm/gpu-operator"
	release   = "gpu-operator"
	namespace = "gpu-operator"
)

// helmBinary is the Helm that test/tools/helm pins, where make keeps its tools.
var helmBinary = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(repo, "test", "tools", "helm")
	path := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file, err := modfile.ParseLax(path, data, nil)
	if err != nil {
		return "", err
	}
	for _, required := range file.Require {
		if required.Mod.Path != "helm.sh/helm/v4" {
			continue
		}
		binary, err := filepath.Abs(filepath.Join(repo, ".cache", "tools", "helm-"+required.Mod.Version))
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(binary); err == nil {
			return binary, nil
		}
		build := exec.Command("make", "-C", repo, binary)
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		return binary, build.Run()
	}
	return "", fmt.Errorf("%s does not require Helm", path)
})

// helmOutput is what Helm prints; an error has what it complains about.
func helmOutput(ctx context.Context, home string, env []string, args ...string) (string, error) {
	binary, err := helmBinary()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	// Nothing of the person who runs the tests, such as repositories or plugins.
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

// render is what helm template prints for the flags.
func render(t *testing.T, flags ...string) (string, error) {
	t.Helper()
	args := append([]string{"template", release, chart, "--namespace", namespace, "--kube-version", version.NewestKubernetes + ".0"}, flags...)
	return helmOutput(t.Context(), t.TempDir(), nil, args...)
}

// set makes flags of Helm from assignments separated by spaces.
func set(assignments string) []string {
	var flags []string
	for assignment := range strings.FieldsSeq(assignments) {
		flags = append(flags, "--set", assignment)
	}
	return flags
}

// decode splits YAML documents into objects.
func decode(text string) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		document := json.RawMessage{}
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(document) == 0 || string(document) == "null" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(document); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

// find is the object of this kind and name; nil if there is none.
func find(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	return nil
}

// policyOf is the ClusterPolicy among the objects, decoded strictly.
func policyOf(g *WithT, objects []*unstructured.Unstructured) *v1.ClusterPolicy {
	found := find(objects, "ClusterPolicy", "cluster-policy")
	g.Expect(found).NotTo(BeNil(), "the chart makes a ClusterPolicy")
	text, err := found.MarshalJSON()
	g.Expect(err).NotTo(HaveOccurred())
	policy := &v1.ClusterPolicy{}
	g.Expect(yaml.UnmarshalStrict(text, policy)).To(Succeed())
	return policy
}
