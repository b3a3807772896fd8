package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// listsAsBefore makes client-go list and then watch. An API server of Kubernetes 1.33 or older may be asked in
// this way; a newer one streams the list, which is a watch.
const listsAsBefore = "KUBE_FEATURE_WatchListClient=false"

// rightsBudget is how many rights of each role there may be, and how many of these may write.
var rightsBudget = map[string]struct{ all, write int }{"ClusterRole": {30, 14}, "Role": {40, 25}}

// TestEachRightIsNeeded: the operator has no right that it does not use, seen in the API server's audit log of
// one story with all that it does. Then it lacks one right after the other, and the judgement after every story
// notices each time. That it lacks none of what is shipped is judged after every story.
func TestEachRightIsNeeded(t *testing.T) {
	t.Parallel()
	granted := shippedRights(t)
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.defineMonitoring()
	b.serveDriverToolkit(map[string]string{oldRelease: oldToolkit})
	coreOS := coreOSMachine("4.17", oldRelease)
	coreOS.Name = "old"
	coreOS.Labels[labels.MIGCapable] = labels.True // MIG manager has ConfigMaps.
	_, err := b.sim.AddNode(t.Context(), coreOS)
	b.Expect(err).NotTo(HaveOccurred())
	b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "environment"}})
	address := freeAddress(t)
	b.run(rightsArgs(address)...)
	b.create(b.largePolicy())
	b.awaitReady(2)
	b.Eventually(b.monitoring).WithTimeout(appearTime).Should(ContainElements(wantedMonitoring))
	token := b.tokenOf("anybody")
	b.Eventually(func() (page, error) { return scrape(unverified(), "https://"+address, token) }).
		Should(HaveField("Code", http.StatusForbidden))

	b.refusePods()
	b.deletePod("nvidia-device-plugin-daemonset", "gpu-00000")
	b.Eventually(func() []string { return b.unusedOf(granted) }).WithPolling(time.Second).
		ShouldNot(ContainElement("events list"))
	b.admitPods()

	b.change(shrunk)
	b.Eventually(func() []string { return b.unusedOf(granted) }).WithPolling(time.Second).
		Should(HaveEach(Or(HaveSuffix(" watch"), HaveSuffix(" list"))))
	// Watches are told when they end. A server that does not stream lists, as that of Kubernetes 1.33, is asked
	// for them in the old way; so is any by an operator that is told to.
	b.stop()
	b.change(`{"driver": {"enabled": true}}`)
	operator, err := cluster.StartOperator(t.Context(), b.rightsOptions(listsAsBefore))
	b.Expect(err).NotTo(HaveOccurred())
	b.process.Operator = operator
	b.Eventually(func() []string { return b.unusedOf(granted) }).WithPolling(time.Second).
		ShouldNot(ContainElement(HaveSuffix(" list")))
	b.stop()
	b.Expect(b.unusedOf(granted)).To(BeEmpty())
	b.Expect(b.refused().String()).To(BeEmpty(), "the shipped rights must do")

	t.Run("without one of them", func(t *testing.T) { b.in(t).eachIsMissed(granted, token) })
}

// refusePods has the API server refuse every new pod of the stack, so that the operator asks why pods are missing.
func (b *bed) refusePods() {
	b.t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	b.create(quota)
	b.Eventually(func() (corev1.ResourceList, error) {
		return quota.Status.Used, b.client.Get(b.t.Context(), client.ObjectKeyFromObject(quota), quota)
	}).ShouldNot(BeEmpty())
}

func (b *bed) admitPods() {
	b.t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-pods"}}
	b.Expect(client.IgnoreNotFound(b.client.Delete(b.t.Context(), quota))).To(Succeed())
}

// largePolicy makes use of all that needs a right.
func (b *bed) largePolicy() *v1.ClusterPolicy {
	b.t.Helper()
	object := b.samplePolicy()
	object.Spec.PSA = &v1.PSASpec{Enabled: new(true)}
	object.Spec.Driver = &v1.DriverSpec{SecretEnv: "environment"}
	object.Spec.DCGM = &v1.DCGMSpec{Enabled: new(true)}
	object.Spec.DCGMExporter = &v1.DCGMExporterSpec{ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: new(true)}}
	object.Spec.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: new(true)}
	return object
}

// shrunk, merged into the spec of a large policy, has the operator delete an object of each kind.
const shrunk = `{"operator": {"runtimeClass": "gpu"}, "dcgm": {"enabled": false}, "dcgmExporter": {"enabled": false},
	"nodeStatusExporter": {"enabled": false}, "driver": {"enabled": false}, "migManager": {"enabled": false}}`

func rightsArgs(address string) []string {
	return []string{"--leader-elect=true", "--metrics-bind-address=" + address}
}

func (b *bed) rightsOptions(env string, args ...string) cluster.OperatorOptions {
	return cluster.OperatorOptions{
		Binary: b.binary, Kubeconfig: b.kubeconfig, Args: args, Env: []string{env},
		LogFile: filepath.Join(b.cluster.LogDir, "gpu-operator.log"),
	}
}

// unusedOf are those of the rights that no call of the operator has used so far.
func (b *bed) unusedOf(granted []right) []string {
	used := set.New[string]()
	for _, call := range b.operatorCalls(0) {
		use := right{group: call.Group, resource: strings.TrimSuffix(call.Resource+"/"+call.Subresource, "/"), verb: call.Verb}
		used.Insert(use.String())
		if call.Verb == "patch" && call.Code == http.StatusCreated {
			use.verb = "create" // What is applied for the first time needs both.
			used.Insert(use.String())
		}
	}
	var unused []string
	for _, r := range granted {
		if !used.Has(r.String()) {
			unused = append(unused, r.String())
		}
	}
	return unused
}

// right lets the operator do one thing.
type right struct {
	// role is the kind of the role that has it, which tells where it holds.
	role, group, resource, verb string
	// name is the one object that it is about; empty for all.
	name string
}

func (r right) String() string { return strings.Trim(r.group+"/"+r.resource, "/") + " " + r.verb }

// shippedRights are those of the operator's roles. They must be within their budget.
func shippedRights(t *testing.T) []right {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "config/rbac/role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var granted []right
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return granted
		} else if err != nil {
			t.Fatal(err)
		}
		own := rightsOf(t, role)
		writes := len(slices.DeleteFunc(slices.Clone(own), func(r right) bool {
			return slices.Contains([]string{"get", "list", "watch"}, r.verb)
		}))
		most, known := rightsBudget[role.Kind]
		if !known || len(own) > most.all || writes > most.write {
			t.Errorf("%s has %d triples of group, resource and verb, %d of them write: at most %d and %d", role.Kind, len(own), writes, most.all, most.write)
		}
		var list strings.Builder
		for _, r := range own {
			fmt.Fprintf(&list, "\n  %s %s", r, r.name)
		}
		t.Logf("%s: %d triples of group, resource and verb (at most %d), %d of them write (at most %d):%s", role.Kind, len(own), most.all, writes, most.write, &list)
		granted = append(granted, own...)
	}
}

func rightsOf(t *testing.T, role rbacv1.ClusterRole) []right {
	t.Helper()
	var own []right
	for _, rule := range role.Rules {
		if len(rule.APIGroups) != 1 || len(rule.ResourceNames) > 1 || len(rule.NonResourceURLs) > 0 || strings.Contains(fmt.Sprint(rule), "*") {
			t.Errorf("a rule must be about one group, about all objects or one, and name all that it allows: %v", rule)
			continue
		}
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				own = append(own, right{role: role.Kind, group: rule.APIGroups[0], resource: resource, verb: verb, name: strings.Join(rule.ResourceNames, "")})
			}
		}
	}
	return own
}
