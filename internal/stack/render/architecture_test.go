package render_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/assets"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// forEachDaemonSet runs the check for every DaemonSet of every scenario.
func forEachDaemonSet(t *testing.T, check func(*testing.T, operand.Name, *appsv1.DaemonSet)) {
	t.Helper()
	for scenario, s := range scenarios {
		for name, sets := range s.daemonSets(t) {
			for _, ds := range sets {
				t.Run(scenario+"/"+ds.Name, func(t *testing.T) { check(t, name, ds) })
			}
		}
	}
}

func TestEveryProofHasItsContainer(t *testing.T) {
	for scenario, s := range scenarios {
		t.Run(scenario, func(t *testing.T) {
			p := s.plan(t)
			sets := s.daemonSets(t)
			for _, step := range p.Steps {
				if step.Action != plan.Apply {
					continue
				}
				for _, proof := range step.Operand.Proofs {
					exists := slices.ContainsFunc(
						sets[step.Operand.Name][0].Spec.Template.Spec.InitContainers,
						func(c corev1.Container) bool {
							return c.Name == proof.Container
						},
					)
					if exists != step.WritesMarkers[proof.Marker] {
						t.Errorf("%s writes marker %s: %v; its pods have container %s: %v",
							step.Operand.Name, proof.Marker, step.WritesMarkers[proof.Marker], proof.Container, exists)
					}
				}
			}
		})
	}
}

// Any container before the wait would run too early. Only the copy of gpu-node may come first: it needs neither the
// stack nor another container of the pod.
func TestTheWaitComesFirst(t *testing.T) {
	for scenario, s := range scenarios {
		p := s.plan(t)
		for name, sets := range s.daemonSets(t) {
			at := slices.IndexFunc(p.Steps, func(step plan.Step) bool { return step.Operand.Name == name })
			for _, ds := range sets {
				init := ds.Spec.Template.Spec.InitContainers
				first := len(init) > 0 && init[0].Name == "gpu-node-wait"
				if first != (len(p.Steps[at].AwaitedMarkers) > 0) {
					t.Errorf("%s: %s waits for %v, but begins with a wait: %v", scenario, ds.Name, p.Steps[at].AwaitedMarkers, first)
				}
			}
		}
	}
}

// assetFiles are all templates, by path.
func assetFiles(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	if err := fs.WalkDir(assets.FS, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := assets.FS.ReadFile(file)
		texts[file] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return texts
}

// maxActionShare is the share of the lines of a template that may have actions. A template shows the shape of an
// object; what depends on the spec is decided in Go, see operand.Instance.Additions.
const maxActionShare = 0.20

func TestTemplatesAreMostlyYAML(t *testing.T) {
	for file, text := range assetFiles(t) {
		all, actions := 0, 0
		for line := range strings.Lines(text) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			all++
			if strings.Contains(line, "{{") {
				actions++
			}
		}
		if share := float64(actions) / float64(all); share > maxActionShare {
			t.Errorf(
				"%s: %d of %d lines have actions, %.0f %%, more than %.0f %%",
				file,
				actions,
				all,
				100*share,
				100*maxActionShare,
			)
		}
	}
}

// A comment directly above the securityContext explains why a container is privileged.
func TestEveryPrivilegedContainerIsJustified(t *testing.T) {
	found := 0
	for file, text := range assetFiles(t) {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if strings.TrimSpace(line) != "privileged: true" {
				continue
			}
			found++
			for i > 0 && !strings.HasPrefix(strings.TrimSpace(lines[i]), "securityContext:") {
				i--
			}
			if i == 0 || !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "# ") {
				t.Errorf("%s:%d: no comment above the securityContext explains why it is privileged", file, i+1)
			}
		}
	}
	if found == 0 {
		t.Error("found no privileged container: the check is broken")
	}
}

func TestEveryServiceAccountIsInstalled(t *testing.T) {
	installed := map[string]bool{}
	files, err := filepath.Glob("../../../config/rbac/operands/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		for _, name := range serviceAccounts(t, file) {
			installed[name] = true
		}
	}
	used := map[string]bool{}
	forEachDaemonSet(t, func(t *testing.T, _ operand.Name, ds *appsv1.DaemonSet) {
		t.Helper()
		name := ds.Spec.Template.Spec.ServiceAccountName
		used[name] = true
		if !installed[name] {
			t.Errorf("ServiceAccount %q is not in config/rbac/operands", name)
		}
	})
	for name := range installed {
		if !used[name] {
			t.Errorf("ServiceAccount %s is installed, and no operand uses it", name)
		}
	}
}

func serviceAccounts(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var names []string
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		account := corev1.ServiceAccount{}
		if err := yaml.Unmarshal(document, &account); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if account.Kind == "ServiceAccount" {
			names = append(names, account.Name)
		}
	}
}

var imageReference = regexp.MustCompile(
	`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})$`,
)

func TestEveryImageResolves(t *testing.T) {
	forEachDaemonSet(t, func(t *testing.T, _ operand.Name, ds *appsv1.DaemonSet) {
		t.Helper()
		for _, c := range containers(&ds.Spec.Template.Spec) {
			if !imageReference.MatchString(c.Image) {
				t.Errorf("container %s has image %q", c.Name, c.Image)
			}
			if !slices.Contains(
				[]corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever},
				c.ImagePullPolicy,
			) {
				t.Errorf("container %s has pull policy %q", c.Name, c.ImagePullPolicy)
			}
		}
	})
}

// NVSentinel, k8s-driver-manager and dashboards find pods by these labels. With other labels they silently find none.
func TestPodsCarryNVIDIAsNames(t *testing.T) {
	apps := map[operand.Name]string{
		"node-discovery":     "nvidia-node-discovery",
		"driver":             "nvidia-driver-daemonset",
		"container-toolkit":  "nvidia-container-toolkit-daemonset",
		"device-plugin":      "nvidia-device-plugin-daemonset",
		"operator-validator": "nvidia-operator-validator",

		"dcgm":                 "nvidia-dcgm",
		"dcgm-exporter":        "nvidia-dcgm-exporter",
		"node-status-exporter": "nvidia-node-status-exporter",

		"gpu-feature-discovery": "gpu-feature-discovery",
		"mps-control-daemon":    "nvidia-device-plugin-mps-control-daemon",
		"mig-manager":           "nvidia-mig-manager",
	}
	forEachDaemonSet(t, func(t *testing.T, name operand.Name, ds *appsv1.DaemonSet) {
		t.Helper()
		template := ds.Spec.Template
		app, known := apps[name]
		if !known {
			app = template.Labels["app"] // NVIDIA's operator does not have it.
		}
		checkAppLabel(t, ds, app, selectsByAnchor(name))
		if app == "" || !strings.HasPrefix(ds.Name, app) {
			t.Errorf("the name does not start with %q", app)
		}
		for _, labels := range []map[string]string{template.Labels, ds.Labels} {
			if labels["app.kubernetes.io/managed-by"] != "gpu-operator" ||
				labels["nvidia.com/gpu-operator.operand"] != string(name) {
				t.Errorf("labels are %v", labels)
			}
		}
		for key, value := range ds.Spec.Selector.MatchLabels {
			if template.Labels[key] != value {
				t.Errorf("the selector requires %s=%s, the pods have %q", key, value, template.Labels[key])
			}
		}
		if name != "node-discovery" && !selectsByAnchor(name) &&
			template.Spec.NodeSelector["nvidia.com/gpu.deploy."+string(name)] != "true" {
			t.Errorf("the node selector is %v", template.Spec.NodeSelector)
		}
	})
}

// excludesNodePools reports whether the affinity requires only that the node does not get the operand from a node pool.
func excludesNodePools(name operand.Name, affinity *corev1.NodeAffinity) bool {
	return cmp.Equal(affinity, &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "nvidia.com/gpu-operator.node-pool." + string(name), Operator: corev1.NodeSelectorOpDoesNotExist},
		}}},
	}})
}

// The selector of a DaemonSet never changes and has no discovery label: otherwise the DaemonSet controller would delete
// the pods of a node that loses the label.
func TestNodesAreSelectedByOwnLabelsAlone(t *testing.T) {
	forEachDaemonSet(t, func(t *testing.T, name operand.Name, ds *appsv1.DaemonSet) {
		t.Helper()
		if name == "node-discovery" {
			checkEveryLinuxNode(t, ds.Spec.Template.Spec)
			return
		}
		if selectsByAnchor(name) {
			checkAnchorTerms(t, name, ds.Spec.Template.Spec)
			return
		}
		for key := range ds.Spec.Template.Spec.NodeSelector {
			if !strings.HasPrefix(key, "nvidia.com/gpu.deploy.") && key != "nvidia.com/gpu-operator.node-pool."+string(name) {
				t.Errorf("selects nodes by %s", key)
			}
		}
		if affinity := ds.Spec.Template.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil &&
			!excludesNodePools(name, affinity.NodeAffinity) {
			t.Error("selects nodes by affinity")
		}
	})
}

// checkAppLabel expects the label app on the DaemonSet and its pods. An operand with variants has the name of the
// DaemonSet there, so that no selector matches the pods of another DaemonSet.
func checkAppLabel(t *testing.T, ds *appsv1.DaemonSet, app string, hasVariants bool) {
	t.Helper()
	if hasVariants {
		app = ds.Name
	}
	pods := ds.Spec.Template.Labels["app"]
	isLong := len(app) > 63 // See TestALongNameIsALabel.
	if pods != app && !isLong || ds.Labels["app"] != pods {
		t.Errorf("app is %q on the pods and %q on the DaemonSet, want %q", pods, ds.Labels["app"], app)
	}
}

// selectsByAnchor reports whether the nodes of an operand have an anchor.
func selectsByAnchor(name operand.Name) bool { return name == "driver" || name == "container-toolkit" }

// A node is selected only by labels that the operator owns, and each term requires one that identifies the variant. So
// no term selects a node without labels of the operator.
func checkAnchorTerms(t *testing.T, name operand.Name, pod corev1.PodSpec) {
	t.Helper()
	own := map[string]bool{
		"nvidia.com/gpu.deploy." + string(name): true, "nvidia.com/gpu-operator.pool": true,
		"nvidia.com/gpu-operator.runtime":                   true,
		"nvidia.com/gpu-operator.node-pool." + string(name): true, "clusterpolicy.github.io/" + string(name): true,
	}
	if len(pod.NodeSelector) > 0 {
		t.Errorf("has a node selector besides the terms: %v", pod.NodeSelector)
	}
	for _, term := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		required := 0
		for _, e := range term.MatchExpressions {
			if !own[e.Key] {
				t.Errorf("selects nodes by %s", e.Key)
			}
			if e.Operator == corev1.NodeSelectorOpIn {
				required++
			}
		}
		if required == 0 {
			t.Errorf("a node without labels matches %+v", term)
		}
	}
}

// Any tainted node may have GPUs. Only a user's label keeps discovery off a node.
func checkEveryLinuxNode(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	if diff := cmp.Diff(map[string]string{"kubernetes.io/os": "linux"}, pod.NodeSelector); diff != "" {
		t.Errorf("node selector, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations); diff != "" {
		t.Errorf("tolerations, -want +got:\n%s", diff)
	}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	want := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: "nvidia.com/gpu.deploy.node-discovery", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"false"},
	}}}}
	if diff := cmp.Diff(want, terms); diff != "" {
		t.Errorf("node affinity, -want +got:\n%s", diff)
	}
}

// Node discovery also runs on nodes without GPUs, where no user expects a GPU stack: it gets no privileges.
func TestNodeDiscoveryIsUnprivileged(t *testing.T) {
	for _, ds := range (situation{}).daemonSets(t)["node-discovery"] {
		pod := ds.Spec.Template.Spec
		if pod.HostNetwork || pod.HostPID || pod.HostIPC {
			t.Error("shares a namespace with the host")
		}
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			want := &corev1.SecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)),
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}
			if diff := cmp.Diff(want, container.SecurityContext); diff != "" {
				t.Errorf("%s, -want +got:\n%s", container.Name, diff)
			}
			for _, mount := range container.VolumeMounts {
				if !mount.ReadOnly {
					t.Errorf("%s may write to %s", container.Name, mount.MountPath)
				}
			}
		}
	}
}

func TestTheDriverIsNeverRolledByItsDaemonSet(t *testing.T) {
	for _, strategy := range []string{"", "RollingUpdate", "OnDelete"} {
		s := situation{spec: v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{UpdateStrategy: strategy}}}
		for name, sets := range s.daemonSets(t) {
			want := appsv1.RollingUpdateDaemonSetStrategyType
			if name == "driver" || strategy == "OnDelete" {
				want = appsv1.OnDeleteDaemonSetStrategyType
			}
			if got := sets[0].Spec.UpdateStrategy.Type; got != want {
				t.Errorf("with %q, %s is updated by %s, want %s", strategy, name, got, want)
			}
		}
	}
}

// checkInjected compares what the catalogue says of these operands, and adds the others.
func checkInjected(t *testing.T, injected map[operand.Name]bool) {
	t.Helper()
	for _, o := range catalogue(t) {
		if want, known := injected[o.Name]; known && o.NeedsInjection != want {
			t.Errorf("%s is injected: %v, want %v", o.Name, o.NeedsInjection, want)
		}
		injected[o.Name] = o.NeedsInjection
	}
}

// A pod with a RuntimeClass cannot start before the toolkit has configured it.
func TestTheRuntimeClassIsOneThatIsRendered(t *testing.T) {
	injected := map[operand.Name]bool{
		"device-plugin": true, "gpu-feature-discovery": true, "mps-control-daemon": true, "operator-validator": true,
		"dcgm": true, "dcgm-exporter": true, "mig-manager": true,
		"driver": false, "container-toolkit": false, "node-discovery": false, "node-status-exporter": false,
		"health-agent": false,
	}
	checkInjected(t, injected)
	for scenario, s := range scenarios {
		classes := map[string]bool{}
		for _, object := range s.objects(t)["runtime-classes"] {
			classes[object.GetName()] = true
		}
		for name, sets := range s.daemonSets(t) {
			for _, ds := range sets {
				class := ds.Spec.Template.Spec.RuntimeClassName
				// TestEveryInjectedPodIsInjectedInOneWay covers those that need none.
				wanted := injected[name] && scenario != "nri" && scenario != "hook"
				valid := class == nil
				if wanted {
					valid = class != nil && classes[*class]
				}
				if !valid {
					t.Errorf("%s: %s has RuntimeClass %v of %v", scenario, ds.Name, class, classes)
				}
			}
		}
	}
}

func TestNamesAreValidAndVolumesMatchMounts(t *testing.T) {
	forEachDaemonSet(t, func(t *testing.T, _ operand.Name, ds *appsv1.DaemonSet) {
		t.Helper()
		if problems := validation.IsDNS1123Subdomain(ds.Name); len(problems) > 0 {
			t.Errorf("the name: %v", problems)
		}
		volumes, mounted := map[string]bool{}, map[string]bool{}
		for _, volume := range ds.Spec.Template.Spec.Volumes {
			if volumes[volume.Name] {
				t.Errorf("volume %s is a duplicate", volume.Name)
			}
			volumes[volume.Name] = true
		}
		for _, c := range containers(&ds.Spec.Template.Spec) {
			paths, env := map[string]bool{}, map[string]bool{}
			for _, mount := range c.VolumeMounts {
				mounted[mount.Name] = true
				if !volumes[mount.Name] || paths[mount.MountPath] {
					t.Errorf("container %s: mount of %s at %s has no volume or is a duplicate", c.Name, mount.Name, mount.MountPath)
				}
				paths[mount.MountPath] = true
			}
			for _, variable := range c.Env {
				if env[variable.Name] {
					t.Errorf("container %s: %s is set twice", c.Name, variable.Name)
				}
				env[variable.Name] = true
			}
		}
		for name := range volumes {
			if !mounted[name] {
				t.Errorf("volume %s is mounted nowhere", name)
			}
		}
	})
}
