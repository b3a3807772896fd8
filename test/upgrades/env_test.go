package upgrades

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	namespace = cluster.OperatorNamespace
	account   = "gpu-operator"
	repo      = "../.."
	// defaultFolder has the kustomization of the operator.
	defaultFolder = repo + "/config/default"
	policyName    = "cluster-policy"
	// tenant is a user's namespace.
	tenant = "default"
	// before and after are versions of the driver.
	before = "580.95.05"
	after  = "580.105.08"
	later  = "590.48.01"
)

// Timeouts for one step and for a whole upgrade, on a busy machine. A test about the speed of something measures it.
const (
	eventually  = 30 * time.Second
	readyTime   = 90 * time.Second
	upgradeTime = 2 * time.Minute
	// idle is how long the operator must write nothing to be at rest: longer than the delay of its counters.
	idle = 4 * time.Second
)

var operatorUser = cluster.ServiceAccountUser(namespace, account)

// clusters are lent to the tests.
var clusters = cluster.Pool{Folder: defaultFolder}

// env is a control plane with simulated nodes, and an operator.
type env struct {
	*WithT
	t       *testing.T
	cluster *cluster.Cluster
	// logDir has the logs of this test's operators.
	logDir string
	sim    *simulator.Simulator
	// client has all permissions; quiet is the same, but not in the audit log.
	client, quiet client.Client
	watch         *watcher
	binary        string
	// restored checks that the whole cluster is as before the policy was created, if options ask for a snapshot.
	restored func(except ...string)
	// managers are the running operators.
	managers *managers
}

type envOptions struct {
	// nodes are created with the names node-0 and so on.
	nodes int
	// scale of the simulator's timing; the default is 0.2.
	scale float64
	// policy changes the policy before it is created.
	policy func(*v1.DriverUpgradePolicySpec)
	// stopped starts no operator.
	stopped bool
	// snapshot records the whole cluster before the policy is created.
	snapshot bool
}

// in returns the env for a subtest: a failure there ends the subtest.
func (e *env) in(t *testing.T) *env {
	view := *e
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

// newEnv starts a control plane with GPU nodes whose driver has the version before, all of them ready.
func newEnv(t *testing.T, o envOptions) *env {
	t.Helper()
	c := clusters.Lend(t, "")
	e := &env{
		WithT: NewWithT(t), t: t, cluster: c, logDir: t.TempDir(), binary: *flagOperator, managers: &managers{},
		client: cluster.NewClient(t, c.Config), quiet: cluster.NewClient(t, c.SimulatorConfig),
	}
	if e.binary == "" {
		e.binary = cluster.FastOperator(t)
	}
	e.startSimulator(o)
	if o.snapshot {
		e.restored = cluster.Restored(t, c.SimulatorConfig)
	}
	e.watch = newWatcher(t, c.SimulatorConfig)
	t.Cleanup(e.finish)
	if !o.stopped {
		e.start()
	}
	e.createPolicy(o)
	if !o.stopped {
		e.awaitReady(o.nodes)
		e.atRest()
	}
	return e
}

// startSimulator creates the nodes. Durations are exact, since times are compared.
func (e *env) startSimulator(o envOptions) {
	e.t.Helper()
	scale := o.scale
	if scale == 0 {
		scale = 0.2
	}
	timing := simulator.DefaultTiming().Scale(scale)
	timing.Jitter = 0
	e.sim = simulator.Play(e.t, simulator.Options{Config: e.cluster.SimulatorConfig, Timing: &timing, Modules: true})
	for i := range o.nodes {
		e.addNode(nodeName(i))
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func nodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = nodeName(i)
	}
	return names
}

func (e *env) addNode(name string) {
	e.t.Helper()
	_, err := e.sim.AddNode(e.t.Context(), simulator.NodeSpec{Name: name})
	e.Expect(err).NotTo(HaveOccurred())
}

// createPolicy creates a policy with the operands that an upgrade depends on.
func (e *env) createPolicy(o envOptions) {
	e.t.Helper()
	policy, no := cluster.PolicyFor(e.t), false
	policy.Spec.DCGMExporter.Enabled, policy.Spec.GFD.Enabled = &no, &no
	policy.Spec.MIGManager.Enabled = &no
	policy.Spec.Driver.Version = before
	upgrade := &v1.DriverUpgradePolicySpec{AutoUpgrade: pointer(true)}
	if o.policy != nil {
		o.policy(upgrade)
	}
	policy.Spec.Driver.UpgradePolicy = upgrade
	e.Expect(e.client.Create(e.t.Context(), policy)).To(Succeed())
}

func pointer[T any](value T) *T { return &value }

// budget sets how many nodes may be upgraded at a time, and how many may be unavailable.
func budget(parallel int32, unavailable string) func(*v1.DriverUpgradePolicySpec) {
	return func(u *v1.DriverUpgradePolicySpec) {
		limit := intstr.Parse(unavailable)
		u.MaxParallelUpgrades, u.MaxUnavailable = &parallel, &limit
	}
}

// finish ends the operators and checks what applies to every test: the watcher's rules hold, no request was denied, and
// there was no panic and no data race.
func (e *env) finish() {
	defer e.explain()
	e.managers.stop(e)
	e.Expect(e.watch.broken()).To(BeEmpty(), "the rules of the watcher")
	e.Expect(e.calls(0).Forbidden().String()).To(BeEmpty(), "the shipped permissions must suffice")
	for _, path := range e.managers.logs {
		log, err := os.ReadFile(path)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(string(log)).NotTo(Or(ContainSubstring("panic"), ContainSubstring("DATA RACE")))
	}
}

// explain prints what the operators and the nodes did, if the test has failed.
func (e *env) explain() {
	if !e.t.Failed() {
		return
	}
	for _, path := range e.managers.logs {
		log, err := os.ReadFile(path)
		e.t.Logf("the end of %s (%v):\n%s", path, err, tail(string(log), *flagLines))
	}
	e.t.Logf("the nodes' versions:\n%s", e.watch.story())
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// edit changes the policy.
func (e *env) edit(change func(*v1.ClusterPolicySpec)) {
	e.t.Helper()
	policy := &v1.ClusterPolicy{}
	e.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := e.client.Get(e.t.Context(), client.ObjectKey{Name: policyName}, policy); err != nil {
			return err
		}
		change(&policy.Spec)
		return e.client.Update(e.t.Context(), policy)
	})).To(Succeed())
}

// install sets the version of the driver.
func (e *env) install(version string) {
	e.t.Helper()
	e.edit(func(s *v1.ClusterPolicySpec) { s.Driver.Version = version })
}

// upgradePolicy changes the policy of upgrades.
func (e *env) upgradePolicy(change func(*v1.DriverUpgradePolicySpec)) {
	e.t.Helper()
	e.edit(func(s *v1.ClusterPolicySpec) { change(s.Driver.UpgradePolicy) })
}

// patchNode patches a node as an administrator.
func (e *env) patchNode(name, patch string) {
	e.t.Helper()
	e.watch.isForeign(e.mergeNode(name, patch))
}

// mergeNode patches a node, and returns the version of the node that this makes.
func (e *env) mergeNode(name, patch string) string {
	e.t.Helper()
	node := &corev1.Node{}
	node.Name = name
	e.Expect(e.client.Patch(e.t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
	return node.ResourceVersion
}

// cordon cordons or uncordons a node as an administrator.
func (e *env) cordon(name string, on bool) {
	e.t.Helper()
	e.patchNode(name, fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, on))
}

func (e *env) label(name, key, value string) {
	e.t.Helper()
	text := fmt.Sprintf("%q", value)
	if value == "" {
		text = "null"
	}
	e.patchNode(name, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, text))
}

func (e *env) annotate(name, key, value string) {
	e.t.Helper()
	e.patchNode(name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

func (e *env) policy() *v1.ClusterPolicy {
	e.t.Helper()
	policy := &v1.ClusterPolicy{}
	e.Expect(e.quiet.Get(e.t.Context(), client.ObjectKey{Name: policyName}, policy)).To(Succeed())
	return policy
}

func (e *env) mark() cluster.Mark {
	e.t.Helper()
	return e.cluster.MarkFor(e.t)
}

// calls returns the operator's requests since the mark.
func (e *env) calls(mark cluster.Mark) cluster.Calls {
	e.t.Helper()
	calls, err := e.cluster.Since(mark)
	e.Expect(err).NotTo(HaveOccurred())
	return calls.By(operatorUser)
}
