package upgrade

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	kresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// userPod is a running pod of a user with a GPU on node a.
func userPod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{labels.ResourceGPU: kresource.MustParse("1")}
	return pod
}

// failingLists refuses all lists.
var failingLists = interceptor.Funcs{List: func(
	context.Context, client.WithWatch, client.ObjectList, ...client.ListOption,
) error {
	return errInternal
}}

// The pods of users are read by the rules of the node's plan; without a plan none are.
func TestPodsOfUsers(t *testing.T) {
	const field = "spec.driver.upgradePolicy"
	elsewhere, ours := userPod("elsewhere"), userPod("plugin")
	elsewhere.Spec.NodeName, ours.Namespace = "b", "ns"
	ours.Labels = map[string]string{labels.Operand: "device-plugin"}
	const blocked = "needs " + field + ".podDeletion.force: it has no controller"
	for name, test := range map[string]struct {
		calls         interceptor.Funcs
		entry         func(*fleet.Entry)
		drained       bool
		without, none bool
		blocked, err  string
	}{
		"by the rules of podDeletion":   {blocked: blocked},
		"in a drain":                    {drained: true},
		"of an unknown node":            {without: true, none: true},
		"of a node that is not planned": {entry: func(e *fleet.Entry) { e.Planned = nil }, none: true},
		"by a selector that is wrong": {
			err: "correct " + field + ".waitForCompletion.podSelector: ", entry: func(e *fleet.Entry) {
				e.Planned.NodePlan.Spec.Driver.UpgradePolicy.WaitForCompletion = &v1.WaitForCompletionSpec{PodSelector: "a b"}
			},
		},
		"that cannot be read": {err: errInternal.Error(), calls: failingLists},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, test.calls, userPod("train"), elsewhere, ours)
			if !test.without {
				entry := u.managed("a")
				driver, policy := *entry.Planned.NodePlan.Spec.Driver, *entry.Planned.NodePlan.Spec.Driver.UpgradePolicy
				policy.Drain = &v1.DrainSpec{Enable: new(true), Force: new(true), DeleteEmptyDir: new(false)}
				driver.UpgradePolicy, entry.Planned.NodePlan.Spec.Driver = &policy, &driver
				if test.entry != nil {
					test.entry(entry)
				}
			}
			node := &upgrade.Node{Name: "a"}
			if test.drained {
				node.Record = &upgrade.Record{State: upgrade.StateDrain}
			}
			found, err := u.workloadOf(u.ctx, node)
			if test.err != "" {
				u.Expect(err).To(MatchError(ContainSubstring(test.err)))
				u.Expect(found).To(BeNil())
				return
			}
			u.Expect(err).NotTo(HaveOccurred())
			u.Expect(found == nil).To(Equal(test.none))
			if found != nil {
				u.Expect(found.Users).To(HaveLen(1))
				u.Expect(found.Users[0].Name).To(Equal("train"))
				u.Expect(found.Users[0].Blocked).To(Equal(test.blocked))
			}
		})
	}
}

// The pods of users are read for the nodes whose next step depends on them, and may be carried out.
func TestNodesWhosePodsAreRead(t *testing.T) {
	record := func(state upgrade.State) upgrade.Node {
		return upgrade.Node{
			Name: "a", UID: "1", Installs: true, KubeletReady: true, Record: &upgrade.Record{UID: "1", Round: 1, State: state},
		}
	}
	slot := upgrade.Slots{"a": {UID: "1", Round: 1}}
	drains := upgrade.Node{Name: "a", UID: "1", KubeletReady: true}
	drains.MIG.Drain = &upgrade.Drain{UID: "1", State: upgrade.DrainUsers}
	for name, test := range map[string]struct {
		node   upgrade.Node
		slots  upgrade.Slots
		change func(*unit)
		want   bool
	}{
		"in progress":        {node: record(upgrade.StatePodDeletion), want: true},
		"that is held":       {node: record(upgrade.StatePodDeletion), change: func(u *unit) { u.observed["a"].hold = true }},
		"without a policy":   {node: record(upgrade.StatePodDeletion), change: func(u *unit) { u.Basis.Decisions = nil }},
		"without a slot":     {node: record(upgrade.StateRequired)},
		"with a slot":        {node: record(upgrade.StateRequired), slots: slot, want: true},
		"whose upgrade ends": {node: record(upgrade.StateDone), slots: slot},
		"drained for MIG":    {node: drains, want: true},
		"at rest":            {node: upgrade.Node{Name: "a", KubeletReady: true}},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, interceptor.Funcs{})
			u.observed["a"], u.cluster.Slots = &observed{}, test.slots
			if test.change != nil {
				test.change(u)
			}
			u.Expect(u.needsWorkload(&test.node)).To(Equal(test.want))
		})
	}
}

// What was read is kept while the node waits for it, with why evictions were rejected, which is added to a copy.
func TestWorkloadsOfTheNextPass(t *testing.T) {
	train := userPod("train")
	train.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Controller: new(true)}}
	u := newUnit(t, interceptor.Funcs{}, train)
	u.managed("a")
	object := node(func(n *corev1.Node) { n.ResourceVersion = "7" })
	u.observed["a"] = &observed{node: object}
	u.memory.reject("train", refusal{text: "a PDB"}, u.Now, &u.Timing)
	u.memory.reject("gone", refusal{text: "a PDB"}, u.Now, &u.Timing)
	u.memory.noteWritten("left", "1")
	waits := upgrade.Node{
		Name: "a", UID: "1", Installs: true, KubeletReady: true,
		Record: &upgrade.Record{UID: "1", Round: 1, State: upgrade.StatePodDeletion},
	}
	for pass, requeued := range []time.Duration{2 * time.Second, time.Second} {
		u.cluster.Nodes = []upgrade.Node{waits, {Name: "b"}}
		u.observed["b"] = &observed{node: &corev1.Node{}}
		u.refreshWorkloads(u.ctx)
		workload := u.cluster.Nodes[0].Workload
		u.Expect(workload.Users).To(HaveLen(1), "pass %d", pass)
		u.Expect(workload.Users[0].Blocked).To(Equal("a PDB"))
		u.Expect(u.requeued()).To(Equal(requeued))
		u.Expect(u.Remembered()).To(And(HaveKeyWithValue("rejected", 1), HaveKeyWithValue("versions", 0)))
		kept := u.memory.workloads["a"]
		u.Expect(kept.workload.Users[0].Blocked).To(BeEmpty())
		u.Expect(kept.of).To(Equal(workloadBasis{version: "7", basis: u.Basis.Version}))
		u.Expect(u.Now.Sub(kept.at)).To(Equal(time.Duration(pass) * time.Second))
		u.Now = u.Now.Add(time.Second)
		if pass == 0 {
			u.Expect(u.server.Delete(u.ctx, userPod("train"))).To(Succeed(), "it is not read again")
		}
	}
	u.cluster.Nodes = []upgrade.Node{waits}
	u.refreshWorkloads(u.ctx)
	u.Expect(u.cluster.Nodes[0].Workload.Users).To(BeEmpty())
	u.Expect(u.memory.workloads).To(BeEmpty(), "it waits for none")
	u.Client, u.Live = interceptor.NewClient(u.server, failingLists), interceptor.NewClient(u.server, failingLists)
	u.cluster.Nodes = []upgrade.Node{waits}
	u.refreshWorkloads(u.ctx)
	failing, _ := u.memory.failing("a", u.Now, &u.Timing)
	u.Expect(failing).To(Equal("reading the pods: " + errInternal.Error()))
}

// A copy has all pods, and changes of it change nothing else.
func TestCopiesOfWorkloads(t *testing.T) {
	g := NewWithT(t)
	pods := func(name string) []upgrade.WorkloadPod { return []upgrade.WorkloadPod{{Name: name}} }
	kept := keptWorkload{workload: upgrade.Workload{Users: pods("user"), Jobs: pods("job"), Others: pods("other")}}
	copied := kept.copy()
	g.Expect(*copied).To(Equal(kept.workload))
	g.Expect(countPods(copied)).To(Equal(3))
	for _, of := range [][]upgrade.WorkloadPod{copied.Users, copied.Jobs, copied.Others} {
		of[0].Blocked = "x"
	}
	g.Expect(kept.workload).To(Equal(upgrade.Workload{Users: pods("user"), Jobs: pods("job"), Others: pods("other")}))
}

// A rejection is the reason of a pod that has no other.
func TestReasonsOfRejections(t *testing.T) {
	u := newUnit(t, interceptor.Funcs{})
	u.memory.reject("1", refusal{text: "a PDB"}, u.Now, &u.Timing)
	pods := []upgrade.WorkloadPod{{UID: "1"}, {UID: "1", Blocked: "no controller"}, {UID: "2"}}
	exist := map[types.UID]bool{}
	u.addRejections(pods, exist)
	u.Expect([]string{pods[0].Blocked, pods[1].Blocked, pods[2].Blocked}).To(Equal([]string{"a PDB", "no controller", ""}))
	u.Expect(exist).To(Equal(map[types.UID]bool{"1": true, "2": true}))
}

// Whether pods use the GPUs is read for the nodes that may get a layout now, unless it does not matter.
func TestTenantsOfALayout(t *testing.T) {
	now := func(e *fleet.Entry) {
		e.Planned.NodePlan.Spec.MIGManager.Config = &v1.MIGManagerConfigSpec{OnBusy: v1.MIGBusyNow}
	}
	hold := func(e *fleet.Entry) {
		e.Planned.NodePlan.Spec.MIGManager.Config = &v1.MIGManagerConfigSpec{OnBusy: v1.MIGBusyHold}
	}
	operands := userPod("plugin")
	operands.Namespace, operands.Labels = "ns", map[string]string{labels.Operand: "device-plugin"}
	timing := DefaultTiming()
	for name, test := range map[string]struct {
		pod      *corev1.Pod
		calls    interceptor.Funcs
		entry    func(*fleet.Entry)
		change   func(*unit)
		idle     bool
		read     bool
		busy     bool
		requeued time.Duration
		failing  string
	}{
		"idle":          {idle: true, read: true},
		"only operands": {pod: operands, idle: true, read: true},
		"in use":        {pod: userPod("train"), read: true, busy: true, requeued: timing.RetryBusy},
		"in use, and must wait": {
			pod: userPod("train"), entry: hold, read: true, busy: true, requeued: timing.RetryBusy,
		},
		"in use, but need not": {pod: userPod("train"), entry: now, idle: true},
		"held":                 {change: func(u *unit) { u.observed["a"].hold = true }},
		"without a policy":     {change: func(u *unit) { u.Basis.Decisions = nil }},
		"paused": {change: func(u *unit) {
			u.Basis.Decisions = new(*u.Basis.Decisions)
			u.Basis.Decisions.Input.Spec = effective.Of(v1.ClusterPolicySpec{Paused: new(true)})
		}},
		"not planned": {entry: func(e *fleet.Entry) { e.Planned = nil }},
		"unknown":     {change: func(u *unit) { u.Fleet.Delete("a") }},
		"read a moment ago": {
			change: func(u *unit) { u.memory.noteBusy("a", u.Now.Add(-20*time.Second)) }, busy: true, requeued: 10 * time.Second,
		},
		"read some time ago": {
			change: func(u *unit) { u.memory.noteBusy("a", u.Now.Add(-timing.RetryBusy)) }, idle: true, read: true,
		},
		"unreadable": {
			calls: failingLists, requeued: timing.FirstRetry,
			failing: "reading the pods: listing the pods of node a: " + errInternal.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			calls := interceptor.Funcs{List: func(
				ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption,
			) error {
				reads++
				return c.List(ctx, list, o...)
			}}
			if test.calls.List != nil {
				calls = test.calls
			}
			var exist []client.Object
			if test.pod != nil {
				exist = append(exist, test.pod.DeepCopy())
			}
			u := newUnit(t, calls, exist...)
			entry := u.managed("a")
			u.observed["a"] = &observed{node: &corev1.Node{}}
			u.cluster.Policies, u.cluster.Now = u.policies(), u.Now
			u.cluster.Nodes = []upgrade.Node{{
				Name: "a", UID: "1", KubeletReady: true, GPUReady: true, Installs: true,
				MIG: upgrade.MIG{Partitioned: true, Wanted: "x"},
			}}
			if test.entry != nil {
				test.entry(entry)
			}
			if test.change != nil {
				test.change(u)
			}
			u.refreshTenants(u.ctx)
			u.Expect(u.cluster.Nodes[0].MIG.Idle).To(Equal(test.idle))
			u.Expect(test.read).To(Equal(reads > 0))
			_, busy := u.memory.busy["a"]
			u.Expect(busy).To(Equal(test.busy))
			u.Expect(u.requeued()).To(Equal(test.requeued))
			failing, _ := u.memory.failing("a", u.Now, &u.Timing)
			u.Expect(failing).To(Equal(test.failing))
		})
	}
}

// The nodes that the operator manages are read, and others only while they have the state of an upgrade.
func TestNodesThatAreRead(t *testing.T) {
	annotated := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations = map[string]string{key: "{"} }
	}
	for name, test := range map[string]struct {
		node      func(*corev1.Node)
		unmanaged bool
		absent    bool
		read      bool
	}{
		"managed":            {read: true},
		"not there any more": {absent: true},
		"not managed":        {unmanaged: true},
		"upgraded before":    {unmanaged: true, read: true, node: annotated(labels.UpgradeRecord)},
		"drained before":     {unmanaged: true, read: true, node: annotated(labels.MIGDrain)},
		"in a state, without a record": {unmanaged: true, read: true, node: func(n *corev1.Node) {
			n.Labels = map[string]string{labels.UpgradeState: "upgrade-done"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var exist []client.Object
			if !test.absent {
				exist = append(exist, node(test.node))
			}
			u := newUnit(t, interceptor.Funcs{Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, o ...client.GetOption,
			) error {
				NewWithT(t).Expect(o).To(ConsistOf(client.UnsafeDisableDeepCopy))
				return c.Get(ctx, key, object)
			}}, exist...)
			entry := u.managed("a")
			entry.Facts.HasGPU = !test.unmanaged
			entry.Latest.Usable = true
			u.memory.noteCall("a", "patching", errInternal, u.Now, &u.Timing)
			u.memory.noteWritten("a", "1")
			u.Expect(u.readNodes(u.ctx)).To(Succeed())
			u.holdNodes()
			u.Expect(u.cluster.Now).To(Equal(u.Now))
			u.Expect(u.cluster.Policies).To(HaveLen(1))
			u.Expect(u.cluster.Nodes).To(HaveLen(map[bool]int{true: 1}[test.read]))
			if !test.read {
				u.Expect(u.observed).To(BeEmpty())
				return
			}
			of, read := u.observed["a"], u.cluster.Nodes[0]
			u.Expect(of.node.Name).To(Equal("a"))
			u.Expect(test.unmanaged).To(Equal(of.entry != entry))
			u.Expect(of.hold).To(BeTrue(), "a call has failed")
			u.Expect(read.Name).To(Equal("a"))
			u.Expect(read.GPUReady).To(Equal(!test.unmanaged))
			u.Expect(read.Failing).To(Equal("patching: " + errInternal.Error()))
			u.Expect(read.FailingSince).To(Equal(u.Now))
		})
	}
}

// Nodes are planned in the order of their names, with the others that are at rest; an error of a read names its node.
func TestReadsOfNodes(t *testing.T) {
	named := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	u := newUnit(t, interceptor.Funcs{}, named("c"), named("a"), named("b"), named("d"))
	for _, name := range []string{"c", "a", "b"} {
		u.managed(name)
	}
	u.view.Rest = upgrade.Rest{}
	u.managed("d").Resting = &upgrade.Resting{Name: "d", UpToDate: true}
	entry := *u.Fleet.Get("d")
	u.Fleet.Set(&entry)
	u.view = u.Fleet.UpgradeView(noNames)
	u.Expect(u.readNodes(u.ctx)).To(Succeed())
	u.Expect(slices.IsSortedFunc(u.cluster.Nodes, func(a, b upgrade.Node) int {
		return slices.Compare([]byte(a.Name), []byte(b.Name))
	})).To(BeTrue())
	u.Expect(u.cluster.Nodes).To(HaveLen(3))
	u.Expect(u.cluster.Rest).To(Equal(u.view.Rest))
	u.Expect(u.isAnyAtRest(upgrade.Slots{"a": {}, "left": {}})).To(BeFalse())
	u.Expect(u.isAnyAtRest(upgrade.Slots{"a": {}, "d": {}})).To(BeTrue())

	u.Client = interceptor.NewClient(u.server, interceptor.Funcs{Get: func(
		context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption,
	) error {
		return errForbidden
	}})
	u.Expect(u.readNodes(u.ctx)).To(MatchError(MatchRegexp("^reading node [abc]: things")))
	u.Client = interceptor.NewClient(u.server, failingLists)
	u.Expect(u.readNodes(u.ctx)).To(MatchError(ContainSubstring(errInternal.Error())))
}
