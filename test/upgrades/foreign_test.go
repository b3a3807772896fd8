package upgrades

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// foreignWrite is what another client writes to a node whose upgrade evicts pods, or to the slots.
type foreignWrite struct {
	name string
	do   func(e *env, node string)
}

// noRecord and noLabel remove the record and the label of a node, in a merge patch.
const (
	noRecord = `"annotations":{"nvidia.com/gpu-operator.driver-upgrade":null}`
	noLabel  = `"labels":{"nvidia.com/gpu-driver-upgrade-state":null}`
)

func foreignWrites() []foreignWrite {
	patch := func(name, text string) foreignWrite {
		return foreignWrite{name, func(e *env, node string) { e.patchNode(node, text) }}
	}
	record := func(text string) foreignWrite {
		return foreignWrite{"record " + text, func(e *env, node string) { e.annotate(node, recordKey, text) }}
	}
	field := func(key string, value any) foreignWrite {
		return foreignWrite{fmt.Sprint("record ", key, "=", value), func(e *env, node string) {
			e.annotate(node, recordKey, withField(e, node, key, value))
		}}
	}
	slot := func(text string) foreignWrite {
		return foreignWrite{"slot " + text, func(e *env, node string) { e.writeSlot(node, text) }}
	}
	return []foreignWrite{
		patch("the remedy: no record, no label, no cordon",
			`{"metadata":{`+noRecord+`,`+noLabel+`},"spec":{"unschedulable":false}}`),
		patch("no record, no label", `{"metadata":{`+noRecord+`,`+noLabel+`}}`),
		patch("no record", `{"metadata":{`+noRecord+`}}`),
		patch("no record, label node-maintenance-required",
			`{"metadata":{`+noRecord+`,"labels":{"nvidia.com/gpu-driver-upgrade-state":"node-maintenance-required"}}}`),
		patch("label upgrade-tomorrow", `{"metadata":{"labels":{"nvidia.com/gpu-driver-upgrade-state":"upgrade-tomorrow"}}}`),
		record(""), record("{"), record("[]"),
		field("since", "2999-01-01T00:00:00Z"), field("state", "upgrade-tomorrow"), field("state", stateDone),
		field("state", stateRequired), field("uid", "other"), field("round", 0), field("round", int64(1)<<62),
		slot(`{"uid":"UID","round":77}`), slot(`{"uid":"UID","layout":"x","since":"2999-01-01T00:00:00Z"}`), slot("{"),
	}
}

// withField is the record of a node with another value of a field.
func withField(e *env, node, key string, value any) string {
	e.t.Helper()
	record := map[string]any{}
	if text := e.watch.node(node).annotations[recordKey]; text != "" {
		// Another write may have left what is no record.
		_ = json.Unmarshal([]byte(text), &record)
	}
	record[key] = value
	text, err := json.Marshal(record)
	e.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// writeSlot writes the entry of a node in the ConfigMap with the slots. UID stands for that of the node.
func (e *env) writeSlot(node, text string) {
	e.t.Helper()
	text = strings.ReplaceAll(text, "UID", e.watch.node(node).uid)
	patch, err := json.Marshal(map[string]any{"data": map[string]string{node: text}})
	e.Expect(err).NotTo(HaveOccurred())
	slots := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: slotsName}}
	err = e.client.Patch(e.t.Context(), slots, client.RawPatch(types.MergePatchType, patch))
	e.Expect(client.IgnoreNotFound(err)).To(Succeed())
}

// TestForeignWrites: whatever another client writes to a node in the middle of its upgrade, and to the slots, the other
// nodes are upgraded once the deadline of the node has passed.
func TestForeignWrites(t *testing.T) {
	t.Parallel()
	const evictionSeconds = 5
	e := newEnv(t, envOptions{nodes: 3, policy: func(u *v1.DriverUpgradePolicySpec) {
		budget(1, "100%")(u)
		u.PodDeletion = &v1.PodDeletionSpec{TimeoutSeconds: pointer(int32(evictionSeconds))}
	}})
	node := nodeName(0)
	e.deploy(workload{name: "user", node: node, gpus: "1"}, 1)
	e.protect("hold", "user")
	for i, writes := range chosenWrites(t) {
		version := []string{after, later}[i%2]
		e.beginAgain(node, version)
		e.awaitState(node, stateEviction)
		for _, write := range writes {
			t.Logf("%d: %s", i, write.name)
			write.do(e, node)
		}
		e.awaitUpgraded(version, nodeName(1), nodeName(2))
	}
}

// beginAgain makes all nodes wait for their upgrade to the version, and lets it begin: the node gets its slot first.
func (e *env) beginAgain(node, version string) {
	e.t.Helper()
	e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) { u.Paused = pointer(true) })
	e.install(version)
	e.patchNode(node, `{"metadata":{`+noRecord+`,`+noLabel+`},"spec":{"unschedulable":false}}`)
	e.Eventually(func() []string {
		var states []string
		for _, name := range nodeNames(3) {
			states = append(states, e.progress(name))
		}
		return states
	}).WithTimeout(upgradeTime).Should(HaveEach(ContainSubstring("UpgradePaused")))
	e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) { u.Paused = pointer(false) })
}

// chosenWrites are the writes of each upgrade: some of them and of their pairs, or all, in a full run.
func chosenWrites(t *testing.T) [][]foreignWrite {
	t.Helper()
	all := foreignWrites()
	nameOf := func(writes []foreignWrite) string { return writes[0].name + " and " + writes[len(writes)-1].name }
	var singles, pairs [][]foreignWrite
	for i := range all {
		singles = append(singles, all[i:i+1])
		for k := range all {
			pairs = append(pairs, []foreignWrite{all[i], all[k]})
		}
	}
	if full() {
		// All its parts need the same order.
		return partOf(t, append(singles, pairs...))
	}
	singles = chance.Sample(t, "single writes", singles, 4, nameOf)
	pairs = chance.Sample(t, "pairs of writes", pairs, 2, nameOf)
	switch {
	case cluster.Sampled():
		return singles[:2]
	default:
		return append(singles, pairs...)
	}
}

// partOf is the part of a full run that -upgrades.part selects.
func partOf(t *testing.T, all [][]foreignWrite) [][]foreignWrite {
	t.Helper()
	var part, parts int
	if _, err := fmt.Sscanf(*flagPart, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts {
		t.Fatalf("-upgrades.part=%s is no part such as 3/40: %v", *flagPart, err)
	}
	return all[(part-1)*len(all)/parts : part*len(all)/parts]
}
