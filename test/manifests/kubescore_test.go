package manifests

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

// graded is kube-score's result for an object.
type graded struct {
	TypeMeta struct {
		Kind string `json:"kind"`
	} `json:"type_meta"`
	ObjectMeta struct {
		Name string `json:"name"`
	} `json:"object_meta"`
	Checks []struct {
		Check struct {
			ID string `json:"id"`
		} `json:"check"`
		Grade    int  `json:"grade"`
		Skipped  bool `json:"skipped"`
		Comments []struct {
			// Path is the name of the container; empty for the object.
			Path string `json:"path"`
		} `json:"comments"`
	} `json:"checks"`
}

// allOK is the best grade of kube-score.
const allOK = 10

// kubeScore runs kube-score.
func kubeScore(t *testing.T, input []byte, args ...string) []byte {
	t.Helper()
	g := NewWithT(t)
	program, err := pinned.Tool(repo, "kubescore", "kube-score", "github.com/zegl/kube-score")
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = bytes.NewReader(input)
	var printed, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complaint
	err = cmd.Run()
	// It exits with 1 on findings.
	if exit := (&exec.ExitError{}); errors.As(err, &exit) && exit.ExitCode() == 1 && printed.Len() > 0 {
		err = nil
	}
	g.Expect(err).NotTo(HaveOccurred(), "%s", &complaint)
	return printed.Bytes()
}

// kubeScoreChecks returns the names of all checks of kube-score.
func kubeScoreChecks(t *testing.T) []string {
	t.Helper()
	g := NewWithT(t)
	rows, err := csv.NewReader(bytes.NewReader(kubeScore(t, nil, "list"))).ReadAll()
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, row := range rows {
		names = append(names, row[0])
	}
	return names
}

// byKubeScore returns kube-score's findings for the objects, by all checks including optional ones. No annotation
// disables one.
func byKubeScore(t *testing.T, objects []*unstructured.Unstructured) *verdict {
	t.Helper()
	g := NewWithT(t)
	var documents bytes.Buffer
	for _, object := range objects {
		text, err := json.Marshal(object.Object)
		g.Expect(err).NotTo(HaveOccurred())
		documents.WriteString("---\n")
		documents.Write(append(text, '\n'))
	}
	printed := kubeScore(t, documents.Bytes(), "score", "--output-format", "json", "--all-default-optional",
		"--disable-ignore-checks-annotations", "--kubernetes-version", "v"+version.OldestKubernetes, "-")
	var scored []graded
	g.Expect(json.Unmarshal(printed, &scored)).To(Succeed(), "%s", printed)
	v := newVerdict()
	for _, object := range scored {
		v.take(object)
	}
	for _, object := range objects {
		if object.GetKind() == "DaemonSet" && !listens(object) {
			// No policy is needed for what no client can reach. What the pods call, the API server and for the driver
			// repositories of packages, no selector can name.
			delete(v.found, finding{"pod-networkpolicy", "DaemonSet/" + object.GetName(), ""})
		}
	}
	return v
}

// listens reports whether a container of the object's pods declares a port.
func listens(object *unstructured.Unstructured) bool {
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	return slices.ContainsFunc(containers, func(container any) bool {
		fields, _ := container.(map[string]any)
		return fields["ports"] != nil
	})
}

// take adds kube-score's result for one object.
func (v *verdict) take(object graded) {
	name := object.TypeMeta.Kind + "/" + object.ObjectMeta.Name
	for _, check := range object.Checks {
		v.judged[check.Check.ID]++
		if check.Skipped || check.Grade >= allOK {
			continue
		}
		if len(check.Comments) == 0 {
			v.found[finding{check.Check.ID, name, ""}] = true
		}
		for _, comment := range check.Comments {
			v.found[finding{check.Check.ID, name, comment.Path}] = true
		}
	}
}
