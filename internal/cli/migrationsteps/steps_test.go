package migrationsteps

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
)

// object returns an object of NVIDIA's release, or one that its operator owns.
func object(kind, name, flags string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": versions[kind], "kind": kind}}
	o.SetName(name)
	if !strings.HasPrefix(kind, "Cluster") {
		o.SetNamespace("nvidia")
	}
	if strings.Contains(flags, "helm") {
		o.SetAnnotations(map[string]string{releaseName: "theirs", releaseNamespace: "nvidia"})
	}
	if strings.Contains(flags, "kept") {
		o.SetAnnotations(map[string]string{releaseName: "theirs", releaseNamespace: "nvidia", ResourcePolicy: Keep})
	}
	if strings.Contains(flags, "nfd") {
		o.SetLabels(map[string]string{"app.kubernetes.io/name": "node-feature-discovery"})
	}
	owner := map[string]any{
		"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy", "uid": "one",
	}
	if strings.Contains(flags, "driver") {
		owner = map[string]any{"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "name": "a", "uid": "two"}
	}
	if strings.Contains(flags, "owned") {
		if err := unstructured.SetNestedSlice(o.Object, []any{owner}, "metadata", "ownerReferences"); err != nil {
			panic(err)
		}
	}
	return o
}

var versions = map[string]string{
	"Deployment": "apps/v1", "DaemonSet": "apps/v1", "ServiceAccount": "v1", "Secret": "v1",
	"Role": "rbac.authorization.k8s.io/v1", "ClusterRole": "rbac.authorization.k8s.io/v1",
	"ClusterPolicy": "nvidia.com/v1", "Pod": "v1", "Node": "v1", "ControllerRevision": "apps/v1",
}

// deployment returns one of an operator.
func deployment(variable string) *unstructured.Unstructured {
	d := object("Deployment", "gpu-operator", "helm")
	text := `{"selector":{"matchLabels":{"app":"gpu-operator","app.kubernetes.io/component":"gpu-operator"}},
		"template":{"spec":{"containers":[{"name":"gpu-operator","image":"nvcr.io/nvidia/gpu-operator:v26.7.0",
		"env":[{"name":"` + variable + `","value":"x"}]}]}}}`
	spec := map[string]any{}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		panic(err)
	}
	d.Object["spec"] = spec
	if variable == preview.OwnVariable {
		d.SetAnnotations(map[string]string{releaseName: "ours", releaseNamespace: "nvidia"})
	}
	return d
}

func record(name string) *unstructured.Unstructured {
	secret := object("Secret", "sh.helm.release.v1."+name+".v1", "")
	secret.SetLabels(map[string]string{"owner": "helm", "name": name})
	return secret
}

func texts(steps []Step) []string {
	var found []string
	for _, step := range steps {
		found = append(found, string(step.Action)+" "+step.Object.String())
	}
	return found
}

func TestFinish(t *testing.T) {
	g := NewWithT(t)
	ours := object("ServiceAccount", "nvidia-mig-manager", "kept")
	ours.SetAnnotations(map[string]string{
		releaseName: "ours", releaseNamespace: "nvidia", ResourcePolicy: Keep,
	})
	c := Cluster{Objects: []*unstructured.Unstructured{
		object("ClusterPolicy", "cluster-policy", "kept"), object("DaemonSet", "nfd-worker", "kept nfd"),
		object("ServiceAccount", "nvidia-driver", ""), object("Role", "nvidia-driver", "owned"),
		object("ClusterRole", "nvidia-driver", "owned"), object("ClusterRole", "of-others", ""),
		object("ServiceAccount", "nvidia-device-plugin-mps-control-daemon", "owned"), record("theirs"), record("ours"),
		object("ServiceAccount", "gpu-operator", "kept"), object("ServiceAccount", "upgrade-crd", "kept"),
		object("ClusterRole", "gpu-operator", "kept"), ours,
	}}
	g.Expect(c.FinishRefusal()).To(ContainSubstring("is not installed"))
	c.Objects = append(c.Objects, deployment(preview.OwnVariable), object("DaemonSet", "nvidia-dcgm", "owned"))
	g.Expect(c.FinishRefusal()).To(ContainSubstring("has not taken over nvidia-dcgm yet"))
	c.Objects = c.Objects[:len(c.Objects)-1]
	g.Expect(c.FinishRefusal()).To(BeEmpty())
	g.Expect(texts(c.Finish())).To(Equal([]string{
		"release ClusterPolicy cluster-policy", "release ClusterRole gpu-operator", "delete ClusterRole nvidia-driver",
		"delete Role nvidia/nvidia-driver",
		"delete Secret nvidia/sh.helm.release.v1.theirs.v1",
		"release ServiceAccount nvidia/gpu-operator",
		"delete ServiceAccount nvidia/nvidia-device-plugin-mps-control-daemon",
		"release ServiceAccount nvidia/nvidia-mig-manager", "delete ServiceAccount nvidia/upgrade-crd",
	}))
	g.Expect(c.Finish()[7].Annotations).To(ConsistOf(ResourcePolicy), "the release is this operator's")
	g.Expect(c.Finish()[0].Annotations).To(ConsistOf(ResourcePolicy, releaseName, releaseNamespace))
	g.Expect(texts(c.Stop())).To(BeEmpty())
}

// What belongs to an NVIDIADriver object is NVIDIA's too. Accounts and rights stay while a driver pod uses them.
func TestFinishWithNVIDIADrivers(t *testing.T) {
	g := NewWithT(t)
	const used, unused = "nvidia-gpu-driver-a-ubuntu24.04", "nvidia-gpu-driver-a-ubuntu22.04"
	pod := func(account string) *unstructured.Unstructured {
		pod := object("Pod", account, "")
		g.Expect(unstructured.SetNestedField(pod.Object, account, "spec", "serviceAccountName")).To(Succeed())
		return pod
	}
	c := Cluster{Objects: []*unstructured.Unstructured{
		object("ClusterPolicy", "cluster-policy", ""), deployment(preview.OwnVariable), pod(used), pod("nvidia-driver"),
		object("DaemonSet", "nvidia-gpu-driver-ubuntu24.04-1234", "driver owned"),
		object("ClusterRole", used, "driver owned"), object("ServiceAccount", used, "driver owned"),
		object("ClusterRole", unused, "driver owned"), object("ServiceAccount", unused, "driver owned"),
		object("ClusterRole", "nvidia-driver", "owned"),
	}}
	g.Expect(c.FinishRefusal()).To(ContainSubstring("has not taken over nvidia-gpu-driver-ubuntu24.04-1234 yet"))
	g.Expect(texts(c.Finish())).To(Equal([]string{
		"delete ClusterRole nvidia-driver", "delete ClusterRole " + unused, "delete ServiceAccount nvidia/" + unused,
	}))
}

// What prevents a migration, each alone.
func TestBlockers(t *testing.T) {
	policy := object("ClusterPolicy", "cluster-policy", "")
	deleted := policy.DeepCopy()
	deleted.SetDeletionTimestamp(new(metav1.Unix(0, 0)))
	theirs, byOLM, elsewhere := deployment("DRIVER_IMAGE"), deployment("DRIVER_IMAGE"), deployment(preview.OwnVariable)
	byOLM.SetLabels(map[string]string{olmOwner: "gpu-operator.v1.0.0"})
	second := theirs.DeepCopy()
	second.SetName("second")
	elsewhere.SetNamespace("elsewhere")
	type objects = []*unstructured.Unstructured
	for name, test := range map[string]struct {
		objects objects
		preview *preview.Preview
		want    string
	}{
		"nothing":      {objects: objects{theirs, policy}, preview: &preview.Preview{}},
		"two policies": {objects{policy, policy}, nil, "there are 2 ClusterPolicies, and only the oldest is active"},
		"a policy that is being deleted": {
			objects{deleted}, nil, "ClusterPolicy cluster-policy is being deleted",
		},
		"an invalid policy": {
			nil, &preview.Preview{Invalid: []string{"driver", "toolkit"}}, "the policy is invalid for driver, toolkit",
		},
		"two operators":             {objects{theirs, second}, nil, "2 Deployments run NVIDIA's operator"},
		"an operator of OLM":        {objects{byOLM}, nil, "keeps Deployment gpu-operator running"},
		"own, in its namespace":     {objects: objects{theirs, deployment(preview.OwnVariable)}},
		"own, in another namespace": {objects{theirs, elsewhere}, nil, "installed in namespace elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := Of(&Facts{Cluster: Cluster{Objects: test.objects}, Preview: test.preview})
			if test.want == "" {
				g.Expect(r.Blockers).To(BeEmpty())
				return
			}
			g.Expect(r.Blockers).To(ConsistOf(And(
				HaveField("Cause", ContainSubstring(test.want)), HaveField("Remedy", Not(BeEmpty())))))
		})
	}
}

// The manifests are the truth about what the installers have. NVIDIA's operator has none of the names that begin with
// gpu-operator-, no discovery and no health agent.
func TestShippedIsWhatTheInstallersHave(t *testing.T) {
	g := NewWithT(t)
	objects, err := config.Build("../../../config/default")
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string][]string{}
	for _, o := range objects {
		name := o.GetName()
		only := name == "nvidia-node-discovery" || name == "nvidia-gpu-health" || strings.HasPrefix(name, "gpu-operator-")
		if slices.Contains(leftoverKinds, o.GetKind()) && !only {
			found[o.GetKind()] = append(found[o.GetKind()], name)
		}
	}
	for _, kind := range leftoverKinds {
		names := shipped[kind]
		slices.Sort(found[kind])
		g.Expect(found[kind]).To(Equal(names), kind)
	}
}
