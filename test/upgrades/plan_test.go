package upgrades

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// plannedNode is a node in the output of kubectl gpu plan -o json.
type plannedNode struct {
	Name    string   `json:"name"`
	Round   int      `json:"round"`
	Reason  string   `json:"reason"`
	Evicted []string `json:"evicted"`
	Blocked []struct {
		Pod     string `json:"pod"`
		Message string `json:"message"`
	} `json:"blocked"`
}

// TestPlanComesTrue: kubectl gpu plan names the nodes in their order, the pods that are evicted and those that block.
// Then the edit is made.
func TestPlanComesTrue(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const nodes = 4
	e := newEnv(t, envOptions{nodes: nodes, policy: budget(1, "1")})
	e.deploy(workload{name: "web", node: nodeName(0)}, 3)
	e.deploy(workload{name: "training", node: nodeName(0), gpus: "1"}, 2)
	e.deploy(workload{name: "protected", node: nodeName(1), gpus: "1"}, 1)
	e.protect("protected", "protected")
	e.label(nodeName(3), "nvidia.com/gpu-driver-upgrade.skip", "true")
	e.atRest()

	plan := e.plan(func(s *v1.ClusterPolicySpec) { s.Driver.Version = after })
	e.Expect(plan).To(HaveLen(nodes))
	byName := map[string]plannedNode{}
	for _, node := range plan {
		byName[node.Name] = node
	}
	e.Expect(byName[nodeName(0)].Evicted).To(ConsistOf(e.named("training")))
	e.Expect(byName[nodeName(1)].Blocked).To(HaveLen(1))
	e.Expect(byName[nodeName(1)].Blocked[0].Message).To(ContainSubstring("PDB default/protected allows 0 disruptions"))
	e.Expect(byName[nodeName(3)].Round).To(Equal(0))
	e.Expect(byName[nodeName(3)].Reason).To(Equal("UpgradeSkipped"))

	mark, since := e.mark(), e.watch.now()
	e.install(after)
	e.awaitProgress(nodeName(1), "UpgradeBlocked", byName[nodeName(1)].Blocked[0].Message)
	e.remove(budgetOf("protected"))
	e.awaitUpgraded(after, nodeNames(nodes-1)...)
	var evicted, cordoned, planned []string
	for _, node := range plan {
		evicted = append(evicted, node.Evicted...)
		for _, pod := range node.Blocked {
			evicted = append(evicted, pod.Pod)
		}
		if node.Round > 0 {
			planned = append(planned, node.Name)
		}
	}
	for _, c := range e.watch.changes(since) {
		if c.cordoned {
			cordoned = append(cordoned, c.name)
		}
	}
	slices.Sort(evicted)
	e.Expect(distinct(e.evictions(mark))).To(Equal(slices.Compact(evicted)), "the evicted pods")
	e.Expect(cordoned).To(Equal(planned), "the order of the nodes")
	e.Expect(e.watch.driver(nodeName(3)).runs(before)).To(BeTrue(), "the node is excluded")
}

// named returns the running pods of a workload as namespace/name.
func (e *env) named(workload string) []string {
	e.t.Helper()
	var names []string
	for _, name := range e.podNames(workload) {
		names = append(names, tenant+"/"+name)
	}
	return names
}

// plan runs kubectl gpu plan with an edited policy against the objects of the cluster, and returns the nodes in the
// order of the output.
func (e *env) plan(change func(*v1.ClusterPolicySpec)) []plannedNode {
	e.t.Helper()
	policy := e.policy()
	policy.APIVersion, policy.Kind = v1.ClusterPolicyKind.ToAPIVersionAndKind()
	change(&policy.Spec)
	edit, err := json.Marshal(policy)
	e.Expect(err).NotTo(HaveOccurred())
	dir := e.t.TempDir()
	e.Expect(os.WriteFile(filepath.Join(dir, "policy.json"), edit, 0o600)).To(Succeed())
	cluster, err := json.Marshal(e.objects())
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(os.WriteFile(filepath.Join(dir, "cluster.json"), cluster, 0o600)).To(Succeed())

	var output, problems bytes.Buffer
	command := exec.CommandContext(e.t.Context(), "go", "run", "./cmd/kubectl-gpu", "plan", "-o", "json",
		"-f", filepath.Join(dir, "policy.json"), "--against", filepath.Join(dir, "cluster.json"))
	command.Dir, command.Stdout, command.Stderr = repo, &output, &problems
	e.Expect(command.Run()).To(Succeed(), problems.String())
	var plan struct {
		Upgrades struct {
			Nodes []plannedNode `json:"nodes"`
		} `json:"upgrades"`
	}
	e.Expect(json.Unmarshal(output.Bytes(), &plan)).To(Succeed(), output.String())
	return plan.Upgrades.Nodes
}

// objects returns what kubectl gpu plan reads, as kubectl get prints it.
func (e *env) objects() *unstructured.UnstructuredList {
	e.t.Helper()
	all := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Node"}, {Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ConfigMap"}, {Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass"}, v1.ClusterPolicyKind,
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		e.Expect(e.quiet.List(e.t.Context(), list)).To(Succeed())
		all.Items = append(all.Items, list.Items...)
	}
	return all
}

func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
