package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
)

// The specs that Go cannot decode, or not in time, with the field that each error names.
var undecodableSpecs = map[string]string{
	"spec.driver.upgradePolicy.maxUnavailable": `{driver: {upgradePolicy: {maxUnavailable: 99999999999}}}`,
	"spec.toolkit.resources.limits[cpu]":       `{toolkit: {resources: {limits: {cpu: "1e-99999999999"}}}}`,
	"spec.nodeDiscovery.gracePeriod":           `{nodeDiscovery: {gracePeriod: 99999999h}}`,
}

// Each command that reads a policy from a file ends at once, with an error that names the object and the field.
func TestAFileThatCannotBeDecodedIsNamed(t *testing.T) {
	for field, spec := range undecodableSpecs {
		in := "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: bad}\nspec: " + spec + "\n"
		for _, args := range []string{
			"render -f - --nodes /dev/null", "convert --to node-pools -f -", "mirror list -f - --nodes /dev/null", "plan -f -",
			"diff -f -",
		} {
			t.Run(field+" "+args, func(t *testing.T) {
				g := NewWithT(t)
				begin := time.Now()
				got := kubectlGPU(in, strings.Fields(args)...)
				// The decoder of such a quantity never ends.
				g.Expect(time.Since(begin)).To(BeNumerically("<", 10*time.Second))
				g.Expect(got.code).NotTo(BeZero())
				g.Expect(got.errOut).To(ContainSubstring("ClusterPolicy bad cannot be decoded: " + field + " is "))
			})
		}
		t.Run(field+" validate", func(t *testing.T) {
			g, got := NewWithT(t), kubectlGPU(in, "validate", "-f", "-")
			g.Expect(got.code).To(Equal(1))
			g.Expect(got.out).To(ContainSubstring("ClusterPolicy bad: " + strings.NewReplacer("[cpu]", ".cpu").Replace(field)))
		})
	}
}

// A driver in the file of a policy is named as well.
func TestADriverThatCannotBeDecodedIsNamed(t *testing.T) {
	g := NewWithT(t)
	got := kubectlGPU(policyHead+"---\napiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: bad}\n"+
		`spec: {resources: {requests: {memory: "1e-99999999999"}}}`+"\n", "render", "-f", "-", "--nodes", "/dev/null")
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).To(ContainSubstring("NVIDIADriver bad cannot be decoded: spec.resources.requests[memory] is "))
}

// The policies of a cluster are shown beside one that cannot be decoded, which is named.
func TestPoliciesBesideOneThatCannotBeDecoded(t *testing.T) {
	g := NewWithT(t)
	c := newLiveCluster(nil)
	c.policies = map[apitypes.UID]*v1.ClusterPolicy{}
	for _, name := range []string{"good", "bad"} {
		text := fmt.Appendf(nil, `{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","metadata":{"name":%q,"uid":%[1]q},`+
			`"spec":{"dcgm":{"hostPort":%d}}}`, name, map[string]int{"good": 5555, "bad": 3_000_000_000}[name])
		object := &unstructured.Unstructured{}
		g.Expect(object.UnmarshalJSON(text)).To(Succeed())
		c.setRawPolicy(false, object)
	}
	g.Expect(c.policies).To(HaveLen(2))
	g.Expect(c.policies["good"].Spec.DCGM.HostPort).To(BeEquivalentTo(5555))
	g.Expect(c.undecodable()).To(And(HaveLen(1), HaveKeyWithValue("bad",
		MatchError(HavePrefix("ClusterPolicy bad cannot be decoded: spec.dcgm.hostPort is")))))
}

// Objects of the Prometheus operator that cannot be decoded, or not in time, do not stop a plan.
func TestAPlanBesideMonitorsThatCannotBeDecoded(t *testing.T) {
	g := NewWithT(t)
	const status = "status: {namespace: gpu-operator}\n---\n"
	file := installed(t, status, status+`apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: other, namespace: gpu-operator}
spec: {endpoints: [], selector: {}, nativeHistogramMinBucketFactor: "1e-99999999999"}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: other, namespace: gpu-operator}
spec: {groups: [{name: a, limit: 99999999999999999999}]}
---
`)
	for _, command := range []string{"plan", "diff"} {
		ended := make(chan output, 1)
		go func() { ended <- kubectlGPU(edit(installedSpec), command, "-f", "-", "--against", file) }()
		select {
		case got := <-ended:
			g.Expect(got.errOut).To(BeEmpty())
			g.Expect(got.out).To(And(Not(BeEmpty()), Not(ContainSubstring("decoded"))))
		case <-time.After(30 * time.Second): // The decoder of such a quantity never ends.
			t.Fatal(command + " does not end")
		}
	}
}

// Only the active policy fails the command, and only after the exit code that a script asks for.
func TestStatusBesideAPolicyThatCannotBeDecoded(t *testing.T) {
	bad := errors.New("ClusterPolicy bad cannot be decoded: spec.a")
	for name, test := range map[string]struct {
		active   *overview.Policy
		detailed bool
		want     types.GomegaMatcher
	}{
		"another one is active":                  {&overview.Policy{Name: "good", Ready: "True"}, false, BeNil()},
		"another one is active, with exit codes": {&overview.Policy{Name: "good", Ready: "True"}, true, BeNil()},
		"it is active": {
			&overview.Policy{Name: "bad", Ready: "False"}, false, MatchError(ContainSubstring("ClusterPolicy bad is active")),
		},
		"it is active, with exit codes":   {&overview.Policy{Name: "bad", Ready: "False"}, true, MatchError(errNotReady)},
		"it is still called ready":        {&overview.Policy{Name: "bad", Ready: "True"}, true, HaveOccurred()},
		"none is active":                  {nil, false, BeNil()},
		"none is active, with exit codes": {nil, true, MatchError(errNotReady)},
	} {
		t.Run(name, func(t *testing.T) {
			g, printed := NewWithT(t), &strings.Builder{}
			err := statusOptions{detailedExit: test.detailed}.verdict(printed, map[string]error{"bad": bad}, test.active)
			g.Expect(err).To(test.want)
			g.Expect(printed.String()).To(Equal("kubectl gpu: ClusterPolicy bad cannot be decoded: spec.a\n"))
		})
	}
}

// A plan for the policy that corrects the one in the cluster is made; without the correction it is refused.
func TestAPlanBesideObjectsThatCannotBeDecoded(t *testing.T) {
	g := NewWithT(t)
	file := installed(t, "spec: "+installedSpec, "spec: "+strings.Replace(installedSpec, "autoUpgrade: true",
		"maxUnavailable: 99999999999", 1))
	got := kubectlGPU("", "plan", "--against", file)
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).To(ContainSubstring(
		"ClusterPolicy cluster-policy cannot be decoded: spec.driver.upgradePolicy.maxUnavailable is 99999999999"))
	got = kubectlGPU(edit(installedSpec), "plan", "-f", "-", "--against", file)
	g.Expect(got.code).To(BeZero(), got.errOut)
	g.Expect(got.errOut + got.out).NotTo(ContainSubstring("decoded"))
}

// The operator applies the policy that is active after the edit.
func TestAPlanForThePolicyThatBecomesActive(t *testing.T) {
	const (
		bad = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\n" +
			"metadata: {name: bad, uid: b, creationTimestamp: %q%s}\nspec: %s\n"
		spec = "{driver: {upgradePolicy: {maxUnavailable: 99999999999}}}"
		kept = ", finalizers: [nvidia.com/gpu-operator.removal]"
	)
	first := fmt.Sprintf(bad, "2026-01-01T00:00:00Z", "", spec)
	active := strings.NewReplacer("name: bad, uid: b", "name: good, uid: g", spec, "{}").Replace(
		fmt.Sprintf(bad, "2026-01-02T00:00:00Z", kept, spec))
	for name, test := range map[string]struct {
		cluster, edited string
		code            int
		err             string
	}{
		"a new one": {cluster: first, edited: "new"},
		"a new one beside one that was active": {
			cluster: fmt.Sprintf(bad, "2026-01-01T00:00:00Z", kept, spec), edited: "new", code: 1,
			err: "bad is the active ClusterPolicy",
		},
		"the correction of the only one": {cluster: first, edited: "bad"},
		"the correction of an older one beside the active one": {
			cluster: first + "---\n" + active, edited: "bad", code: 1, err: "good is the active ClusterPolicy",
		},
		"the active one": {cluster: first + "---\n" + active, edited: "good"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text, err := os.ReadFile("testdata/plan-objects.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			file := filepath.Join(t.TempDir(), "cluster.yaml")
			const daemonSet = "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: other, namespace: other}\n"
			g.Expect(os.WriteFile(file, []byte(test.cluster+daemonSet+"---\n"+string(text)), 0o600)).To(Succeed())
			got := kubectlGPU(strings.Replace(edit("{gfd: {enabled: false}}"), "cluster-policy", test.edited, 1), "plan",
				"-f", "-", "--against", file)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.errOut).To(ContainSubstring(test.err))
			if test.edited == "new" && test.code == 0 {
				g.Expect(got.out).To(ContainSubstring("ClusterPolicy bad cannot be decoded"))
			}
		})
	}
}
