package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/set"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// unused are the rights that the story below does not use, each with the reason why the operator has it.
var unused = map[string]string{
	"image.openshift.io/imagestreams list":  "only on OpenShift: TestTheDriverToolkitOfOpenShift",
	"image.openshift.io/imagestreams watch": "only on OpenShift: TestTheDriverToolkitOfOpenShift",
}

// TestEachRightIsNeeded: the operator has no right that it does not use, seen in the API server's audit log of
// one story with all that it does. That it lacks none is judged after every story.
func TestEachRightIsNeeded(t *testing.T) {
	t.Parallel()
	granted := shippedRights(t)
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.defineMonitoring()
	b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "environment"}})
	address := freeAddress(t)
	b.run("--leader-elect=true", "--metrics-bind-address="+address)
	object := b.samplePolicy()
	object.Spec.PSA = &v1.PSASpec{Enabled: new(true)}
	object.Spec.Driver = &v1.DriverSpec{SecretEnv: "environment"}
	object.Spec.DCGM = &v1.DCGMSpec{Enabled: new(true)}
	object.Spec.DCGMExporter = &v1.DCGMExporterSpec{ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: new(true)}}
	object.Spec.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: new(true)}
	b.create(object)
	b.awaitReady(1, time.Minute)
	b.Eventually(b.monitoring).WithTimeout(appearTime).Should(Equal(wantedMonitoring))
	token := b.tokenOf("anybody")
	b.Eventually(func() (page, error) { return scrape(unverified(), "https://"+address, token) }).
		WithTimeout(10 * time.Second).Should(HaveField("Code", http.StatusForbidden))

	b.change(`{"operator": {"runtimeClass": "gpu"}, "dcgm": {"enabled": false}, "dcgmExporter": {"enabled": false},
		"nodeStatusExporter": {"enabled": false}, "driver": {"enabled": false}}`)
	b.Eventually(func() []string { return b.unusedOf(granted) }).WithTimeout(30 * time.Second).WithPolling(time.Second).
		Should(HaveEach(Or(HaveSuffix(" watch"), HaveSuffix(" list"), BeKeyOf(unused))))
	// Watches are told when they end. A server that does not stream lists, as that of Kubernetes 1.33, is asked
	// for them in the old way; so is any by an operator that is told to.
	b.stop()
	operator, err := cluster.StartOperator(t.Context(), cluster.OperatorOptions{
		Binary: b.binary, Kubeconfig: b.kubeconfig, LogFile: filepath.Join(b.cluster.LogDir, "gpu-operator.log"),
		Env: []string{"KUBE_FEATURE_WatchListClient=false"},
	})
	b.Expect(err).NotTo(HaveOccurred())
	b.process.Operator = operator
	b.Eventually(func() []string { return b.unusedOf(granted) }).WithTimeout(30 * time.Second).WithPolling(time.Second).
		Should(HaveEach(Or(HaveSuffix(" watch"), BeKeyOf(unused))))
	b.stop()
	left := set.New(b.unusedOf(granted)...)
	t.Logf("%d rights, %d of them used by this story", len(granted), len(granted)-left.Len())
	b.Expect(left.SortedList()).To(ConsistOf(slices.Sorted(maps.Keys(unused))))
}

// unusedOf are those of the rights that no call of the operator has used so far.
func (b *bed) unusedOf(granted []string) []string {
	used := set.New[string]()
	for _, call := range b.operatorCalls(0) {
		resource := strings.Trim(call.Group+"/"+strings.TrimSuffix(call.Resource+"/"+call.Subresource, "/"), "/")
		used.Insert(resource + " " + call.Verb)
		if call.Verb == "patch" && call.Code == http.StatusCreated {
			used.Insert(resource + " create") // What is applied for the first time needs both.
		}
	}
	return set.New(granted...).Difference(used).SortedList()
}

// shippedRights are the triples of group, resource and verb of the operator's roles.
func shippedRights(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "config/rbac/role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	granted, decoder := set.New[string](), utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return granted.SortedList()
		} else if err != nil {
			t.Fatal(err)
		}
		count, writes := 0, 0
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					granted.Insert(strings.Trim(rule.APIGroups[0]+"/"+resource, "/") + " " + verb)
					count++
					if !slices.Contains([]string{"get", "list", "watch"}, verb) {
						writes++
					}
				}
			}
			if len(rule.APIGroups) != 1 || len(rule.NonResourceURLs) > 0 || strings.Contains(fmt.Sprint(rule), "*") {
				t.Errorf("a rule must be about one group, and name all that it allows: %v", rule)
			}
		}
		t.Logf("%s: %d triples of group, resource and verb, %d of them write", role.Kind, count, writes)
	}
}
