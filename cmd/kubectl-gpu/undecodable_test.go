package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
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

// The policies of a cluster are shown beside one that cannot be decoded, which is the error in the end.
func TestPoliciesBesideOneThatCannotBeDecoded(t *testing.T) {
	g := NewWithT(t)
	c := newLiveCluster(kubectl{})
	c.policies = map[types.UID]*v1.ClusterPolicy{}
	for _, name := range []string{"good", "bad"} {
		text := fmt.Appendf(nil, `{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","metadata":{"name":%q,"uid":%[1]q},`+
			`"spec":{"dcgm":{"hostPort":%d}}}`, name, map[string]int{"good": 5555, "bad": 3_000_000_000}[name])
		c.setRawPolicy(false, (*json.RawMessage)(&text))
	}
	g.Expect(c.policies).To(HaveLen(2))
	g.Expect(c.policies["good"].Spec.DCGM.HostPort).To(BeEquivalentTo(5555))
	g.Expect(c.undecodable()).To(MatchError(HavePrefix("ClusterPolicy bad cannot be decoded: spec.dcgm.hostPort is")))
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
