package guides

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// claim is what a reader of a guide expects. Each has nodes of its own.
type claim struct {
	name  string
	check func(e *env)
}

// claims hold with the usual settings, claimsOfStrictPolicy with those of strict.
var (
	claims = []claim{
		{"4 GPUs by time-slicing in 4 are 16, 16 pods run and the 17th waits", sixteenPodsRun},
		{"a label of the node selects its sharing, and replaces no pod", labelSelectsSharing},
		{"a label that names no configuration leaves the GPUs as they are", unknownConfiguration},
		{"renamed shares have their own resource, and the product keeps its name", renamedShares},
		{"MPS in 10 is 10 a GPU, and a pod that requests 2 is refused", mpsReplicas},
		{"MIG all-1g.10gb is 7 a GPU of 80 GB, a pod gets one, and an 8th waits", sevenDevices},
		{"GPUs whose MIG layout is disabled are whole again", wholeAgain},
		{"a pod with mig-2g.20gb lands only where GPUs have such a device", deviceOfOneNode},
		{"MIG all-1g.10gb with strategy single by time-slicing in 4 is 28", twentyEight},
		{"a taint keeps pods off that do not tolerate it, and no operand", taintedNode},
		{"a node selector by product distinguishes shared GPUs from whole ones", selectByProduct},
		{"a quota of 8 refuses the 9th GPU", quotaOfEight},
		{"1 of 8 GPUs is unhealthy: the node is not ready, with 7 of 8 usable", oneOfEightUnhealthy},
		{"a MIG layout is applied again after a reboot", layoutAfterReboot},
		{"a changed sharing configuration replaces only the pods that read it", changedConfiguration},
		{"2 keys, 4 nodes: an edit of one key replaces only the pods of its nodes that read it", editedKey},
		{"spec.sharing of a node pool: 2 GPUs in 4 are 8, and a change replaces only the pods that read it", typedSharing},
		{"a broken ConfigMap on top of a good one changes nothing but what is reported", brokenConfiguration},
	}
	claimsOfStrictPolicy = []claim{
		{"1 of 8 GPUs is unhealthy and 7 are enough: the node is ready, with the same reason", sevenAreEnough},
		{"the layouts of a ConfigMap: 3g.40gb and 2g.20gb on one GPU", ownLayout},
	}
)

// h100 returns a node with GPUs of 80 GB, with labels as KEY, VALUE, ...
func h100(name string, gpus int, labels ...string) simulator.NodeSpec {
	spec := simulator.NodeSpec{Name: name, GPUs: gpus, Model: simulator.ModelH100, Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		spec.Labels[labels[i]] = labels[i+1]
	}
	return spec
}

// Labels that select node pools of the policy.
const (
	poolLabel  = "example.com/gpu-pool"
	poolMixed  = "mixed"
	poolEdited = "edited"
	poolTyped  = "typed"
	poolBroken = "broken"
)

func nodes() []simulator.NodeSpec {
	a100 := func(name string, labels ...string) simulator.NodeSpec {
		spec := h100(name, 1, labels...)
		spec.Model = simulator.ModelA100
		return spec
	}
	tainted := h100("tainted", 1)
	tainted.Taints = []corev1.Taint{{Key: wholeGPU, Value: "present", Effect: corev1.TaintEffectNoSchedule}}
	return []simulator.NodeSpec{
		h100("slices", 4, configLabel, "time-sliced"), h100("by-label", 2), h100("no-such-key", 2),
		h100("renamed", 1, configLabel, "renamed"), h100("mps", 1, configLabel, "mps"),
		h100("seven", 1, poolLabel, poolMixed), h100("balanced", 1, poolLabel, poolMixed), h100("single", 1),
		tainted, a100("a100"), a100("a100-shared", configLabel, "time-sliced"),
		h100("unhealthy", 8),
		h100("rebooted", 1, poolLabel, poolMixed), h100("whole-again", 1, poolLabel, poolMixed),
		h100("typed", 2, poolLabel, poolTyped), h100("broken", 1, poolLabel, poolBroken),
		h100("edited", 1, poolLabel, poolEdited), h100("edited-too", 1, poolLabel, poolEdited),
		h100("first", 1, configLabel, "first"), h100("first-too", 1, configLabel, "first"),
		h100("second", 1, configLabel, "second"), h100("second-too", 1, configLabel, "second"),
		h100("own-layout", 1, poolLabel, poolMixed),
	}
}

// TestGuides: each claim holds.
func TestGuides(t *testing.T) {
	t.Parallel()
	machines := nodes()
	e := newEnv(t, machines)
	e.createConfigMaps()
	e.createPolicy(func(spec *v1.ClusterPolicySpec) {
		spec.DevicePlugin.Config = &v1.DevicePluginConfigSpec{Name: sharing}
		spec.NodePools = []v1.NodePoolSpec{{
			Name: poolMixed, NodeSelector: v1.NodePoolSelector{poolLabel: poolMixed},
			MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
		}, {
			Name: poolTyped, NodeSelector: v1.NodePoolSelector{poolLabel: poolTyped},
			Sharing: &v1.SharingSpec{TimeSlicing: &v1.TimeSlicingSpec{Replicas: 4}},
		}}
		for _, name := range []string{poolEdited, poolBroken} {
			spec.NodePools = append(spec.NodePools, v1.NodePoolSpec{
				Name: name, NodeSelector: v1.NodePoolSelector{poolLabel: v1.LabelValue(name)},
				DevicePlugin: &v1.NodePoolDevicePluginSpec{
					Config: &v1.NodePoolPluginConfigSpec{Name: v1.ObjectName(name), Default: "shares"},
				},
			})
		}
	})
	begin := time.Now()
	e.awaitAllReady(len(machines))
	t.Logf("%d nodes ready after %s", len(machines), time.Since(begin).Round(time.Second))
	var held atomic.Int32
	e.hold("claims", claims, &held)
	e.respec(strict)
	e.awaitDaemonSet("nvidia-mig-manager")
	e.hold("with a strict policy", claimsOfStrictPolicy, &held)
	t.Logf("claims of guides that hold: %d/%d", held.Load(), len(claims)+len(claimsOfStrictPolicy))
}

// hold checks claims at the same time, and counts those that hold.
func (e *env) hold(name string, claims []claim, held *atomic.Int32) {
	e.t.Helper()
	e.t.Run(name, func(t *testing.T) {
		for _, c := range claims {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if !t.Failed() {
						held.Add(1)
					}
				})
				c.check(e.in(t))
			})
		}
	})
}

// strict sets a short deadline, accepts a lost GPU of eight, and gives the MIG manager the layouts of a user.
func strict(spec *v1.ClusterPolicySpec) {
	spec.Deadlines = &v1.DeadlinesSpec{DevicePlugin: "15s"}
	enough := intstr.FromInt32(7)
	spec.Health = &v1.HealthSpec{MinUsable: &enough}
	spec.MIGManager.Config.Name = "own-layouts"
}

// awaitAllReady waits until the policy is ready with all nodes.
func (e *env) awaitAllReady(count int) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		object := e.policy()
		g.Expect(object.Status.State).To(Equal(v1.StateReady), "%+v", object.Status.Conditions)
		g.Expect(object.Status.NodeSummary.ReadyOfTotal).To(Equal(fmt.Sprintf("%d/%d", count, count)))
	}).WithTimeout(readyTime).Should(Succeed())
	for _, spec := range nodes() {
		e.expectReady(spec.Name)
	}
}

// halves shares each GPU by two.
const halves = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"

// createConfigMaps creates what guides have their readers write.
func (e *env) createConfigMaps() {
	e.t.Helper()
	for name, data := range map[string]map[string]string{
		sharing: {
			"time-sliced": "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n",
			"first":       halves,
			"second":      "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n",
			"exclusive":   "version: v1\n",
			"renamed": "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n" +
				"    resources: [{name: nvidia.com/gpu, replicas: 2}]\n",
			"mps": "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}\n",
			"mig-sliced": "version: v1\nflags: {migStrategy: single}\n" +
				"sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n",
		},
		poolEdited: {"shares": halves}, poolBroken: {"shares": halves},
		"own-layouts": {"config.yaml": `version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}]
  all-balanced: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}]
  large-and-small: [{devices: [0], mig-enabled: true, mig-devices: {"3g.40gb": 1, "2g.20gb": 2}}]
`},
	} {
		e.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data})
	}
}
