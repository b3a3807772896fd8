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
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// listsAsBefore makes client-go list and then watch, as it may do with Kubernetes 1.33 or older; newer API servers
// stream the list, which is a watch.
const listsAsBefore = "KUBE_FEATURE_WatchListClient=false"

// rightsBudget is the maximum number of permissions of each role, and of those to write.
var rightsBudget = map[string]struct{ all, write int }{"ClusterRole": {40, 15}, "Role": {45, 25}}

// TestEachRightIsNeeded: the operator uses all its permissions, according to the API server's audit log of one test
// with everything that it does. Then the permissions are removed one by one, and the check after every test notices
// each. That the shipped permissions suffice is checked after every test.
func TestEachRightIsNeeded(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	granted := shippedRights(t)
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.defineMonitoring()
	e.serveDriverToolkit(map[string]string{oldRelease: oldToolkit})
	e.serveOpenShift()
	coreOS := coreOSMachine("4.17", oldRelease)
	coreOS.Name = "old"
	coreOS.Labels[labels.MIGCapable] = labels.True // MIG manager has ConfigMaps.
	_, err := e.sim.AddNode(t.Context(), coreOS)
	e.Expect(err).NotTo(HaveOccurred())
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "environment"}})
	address := freeAddress(t)
	e.create(nvidiaDriver("unused", "ubuntu"))
	e.run(rightsArgs(address)...)
	e.create(e.largePolicy())
	e.awaitReady(2)
	e.Eventually(e.monitoring).WithTimeout(appearTime).Should(ContainElements(wantedMonitoring))
	token := e.tokenOf("anybody")
	e.Eventually(func() (page, error) { return scrape(unverified(), "https://"+address, token) }).
		Should(HaveField("Code", http.StatusForbidden))

	e.disownDriver()
	e.layoutState(labels.MIGStateFailed)
	e.Eventually(func() []string { return e.unusedOf(granted) }).WithPolling(time.Second).
		ShouldNot(ContainElement(BeElementOf(takeOverRight, logRight)))
	e.layoutState(labels.MIGStateSuccess)

	e.beginUpgrade()
	e.Eventually(func() []string { return e.unusedOf(granted) }).WithPolling(time.Second).WithTimeout(time.Minute).
		ShouldNot(ContainElement(BeElementOf(upgradeRights)))
	e.awaitReady(2)

	e.refusePods()
	e.deletePod("nvidia-device-plugin-daemonset", "gpu-00000")
	e.Eventually(func() []string { return e.unusedOf(granted) }).WithPolling(time.Second).
		ShouldNot(ContainElement("events list"))
	e.admitPods()

	e.change(shrunk)
	e.Eventually(func() []string { return e.unusedOf(granted) }).WithPolling(time.Second).
		Should(HaveEach(Or(HaveSuffix(" watch"), HaveSuffix(" list"))))
	// Watches are logged when they end. Servers that do not stream lists, such as Kubernetes 1.33, get list requests; so
	// does any server from an operator that is configured to do that.
	e.stop()
	e.change(`{"driver": {"enabled": true, "useNvidiaDriverCRD": false}}`)
	operator, err := cluster.StartOperator(t.Context(), e.rightsOptions(listsAsBefore))
	e.Expect(err).NotTo(HaveOccurred())
	e.process.Operator = operator
	e.Eventually(func() []string { return e.unusedOf(granted) }).WithPolling(time.Second).
		ShouldNot(ContainElement(HaveSuffix(" list")))
	e.stop()
	e.Expect(e.unusedOf(granted)).To(BeEmpty())
	e.Expect(e.refused().String()).To(BeEmpty(), "the shipped permissions must suffice")

	t.Run("without one of them", func(t *testing.T) { e.in(t).eachIsMissed(granted, token) })
}

// refusePods makes the API server refuse every new pod of the stack, so that the operator looks up why pods are
// missing.
func (e *env) refusePods() {
	e.t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	e.create(quota)
	e.Eventually(func() (corev1.ResourceList, error) {
		return quota.Status.Used, e.client.Get(e.t.Context(), client.ObjectKeyFromObject(quota), quota)
	}).ShouldNot(BeEmpty())
}

// upgradeRights are the permissions that only driver upgrades need.
var upgradeRights = []string{
	"pods/eviction create", "resource.k8s.io/resourceclaims get", "pods create", "pods delete",
}

// beginUpgrade gives the drivers another version, and a node a pod of a user with a resource claim.
func (e *env) beginUpgrade() {
	e.t.Helper()
	const user, name = "default", "claimant"
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: user, Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com"}},
		}}},
	}
	for _, object := range []client.Object{
		claim,
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: user, Name: name},
			Spec: corev1.PodSpec{
				NodeName:       "gpu-00000",
				ResourceClaims: []corev1.PodResourceClaim{{Name: "one", ResourceClaimName: new(name)}},
				Containers:     []corev1.Container{{Name: "main", Image: "example.com/x:1"}},
			},
		},
	} {
		e.Expect(client.IgnoreAlreadyExists(e.client.Create(e.t.Context(), object))).To(Succeed())
	}
	e.allocate(claim)
	e.change(`{"driver": {"version": "580.82.07",
		"upgradePolicy": {"autoUpgrade": true, "podDeletion": {"force": true}}}}`)
}

// allocate gives a claim a GPU, as the scheduler does.
func (e *env) allocate(claim *resourcev1.ResourceClaim) {
	e.t.Helper()
	e.Eventually(func() error {
		if err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "one", Driver: "gpu.nvidia.com", Pool: "gpu-00000", Device: "gpu-0"},
			},
		}}
		return e.client.Status().Update(e.t.Context(), claim)
	}).Should(Succeed())
}

// takeOverRight is the permission that only pods of NVIDIA's operator need.
const takeOverRight = "pods patch"

// disownDriver makes the driver pods of a DaemonSet look as if NVIDIA's operator had created them.
func (e *env) disownDriver() {
	e.t.Helper()
	const driver = "nvidia-driver-daemonset"
	pods := &corev1.PodList{}
	e.Expect(e.client.List(
		e.t.Context(), pods, client.InNamespace(namespace), client.MatchingLabels{labels.App: driver},
	)).To(Succeed())
	e.Expect(pods.Items).NotTo(BeEmpty())
	theirs := []byte(`{"metadata": {"labels": {"` + labels.Operand + `": null,
		"controller-revision-hash": null, "pod-template-generation": null}}}`)
	for i := range pods.Items {
		e.Expect(e.client.Patch(
			e.t.Context(), &pods.Items[i], client.RawPatch(types.MergePatchType, theirs),
		)).To(Succeed())
	}
}

// logRight is the permission that only MIG layouts need that could not be applied. The nodes have no kubelets, so that
// there is no log.
const logRight = "pods/log get"

// layoutState reports an outcome of the MIG layout of the node with a MIG manager.
func (e *env) layoutState(state string) {
	e.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q, %q: %q}}}`,
		labels.MIGConfig, labels.MIGAllDisabled, labels.MIGConfigState, state)
	e.Expect(e.client.Patch(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}},
		client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

func (e *env) admitPods() {
	e.t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-pods"}}
	e.Expect(client.IgnoreNotFound(e.client.Delete(e.t.Context(), quota))).To(Succeed())
}

// largePolicy uses everything that needs a permission.
func (e *env) largePolicy() *v1.ClusterPolicy {
	e.t.Helper()
	object := e.samplePolicy()
	object.Spec.PSA = &v1.PSASpec{Enabled: new(true)}
	object.Spec.Driver = &v1.DriverSpec{SecretEnv: "environment"}
	object.Spec.DCGM = &v1.DCGMSpec{Enabled: new(true)}
	object.Spec.DCGMExporter = &v1.DCGMExporterSpec{ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: new(true)}}
	object.Spec.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: new(true)}
	return object
}

// usesDrivers makes the operator read the CustomResourceDefinition of NVIDIADriver.
const usesDrivers = `"useNvidiaDriverCRD": true`

// shrunk, merged into the spec of a large policy, makes the operator delete an object of each kind.
const shrunk = `{"operator": {"runtimeClass": "gpu"}, "dcgm": {"enabled": false}, "dcgmExporter": {"enabled": false},
	"nodeStatusExporter": {"enabled": false}, "driver": {"enabled": false, ` + usesDrivers + `},
	"migManager": {"enabled": false}}`

func rightsArgs(address string) []string {
	return []string{"--leader-elect=true", "--metrics-bind-address=" + address}
}

func (e *env) rightsOptions(env string, args ...string) cluster.OperatorOptions {
	return cluster.OperatorOptions{
		Binary: e.binary, Kubeconfig: e.kubeconfig, Args: args, Env: []string{env},
		LogFile: filepath.Join(e.logDir, "gpu-operator.log"),
	}
}

// unusedOf returns the permissions that no request of the operator has used so far.
func (e *env) unusedOf(granted []right) []string {
	used := set.New[string]()
	for _, call := range e.operatorCalls(0) {
		use := right{
			group: call.Group, resource: strings.TrimSuffix(call.Resource+"/"+call.Subresource, "/"), verb: call.Verb,
		}
		used.Insert(use.String())
		named := use
		named.name = call.Name
		used.Insert(named.String())
		if call.Verb == "patch" && call.Code == http.StatusCreated {
			use.verb = "create" // The first apply of an object needs both.
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

// right is one permission of the operator.
type right struct {
	// role is the kind of the role that grants it, which is its scope.
	role, group, resource, verb string
	// name is the object that it is limited to; empty for all.
	name string
}

func (r right) String() string {
	return strings.TrimSuffix(strings.Trim(r.group+"/"+r.resource, "/")+" "+r.name, " ") + " " + r.verb
}

// shippedRights returns the permissions of the operator's roles. They must be within their budget.
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
			for _, r := range granted {
				if r.role == "Role" && slices.Contains(granted, right{"ClusterRole", r.group, r.resource, r.verb, r.name}) {
					t.Errorf("%s is granted by both roles", r)
				}
			}
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
			t.Errorf("%s has %d triples of group, resource and verb, %d of them write: at most %d and %d", role.Kind, len(own),
				writes, most.all, most.write)
		}
		var list strings.Builder
		for _, r := range own {
			fmt.Fprintf(&list, "\n  %s", r)
		}
		t.Logf("%s: %d triples of group, resource and verb (at most %d), %d of them write (at most %d):%s", role.Kind,
			len(own), most.all, writes, most.write, &list)
		granted = append(granted, own...)
	}
}

func rightsOf(t *testing.T, role rbacv1.ClusterRole) []right {
	t.Helper()
	var own []right
	for _, rule := range role.Rules {
		if len(rule.APIGroups) != 1 || len(rule.ResourceNames) > 1 || len(rule.NonResourceURLs) > 0 || strings.Contains(
			fmt.Sprint(rule), "*",
		) {
			t.Errorf("a rule must be for one group, at most one resource name, and without wildcards: %v", rule)
			continue
		}
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				own = append(own, right{
					role: role.Kind, group: rule.APIGroups[0], resource: resource, verb: verb,
					name: strings.Join(rule.ResourceNames, ""),
				})
			}
		}
	}
	return own
}
