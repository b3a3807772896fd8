package migration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// laterReleases are the facts that Player has, as of v26.7, and the release of September 2025 has not. Its driver has
// the start-up probe in the DaemonSet, its chart turns CDI off, and only its driver pods name their main container.
var laterReleases = []string{
	"ConfigMap nvidia-driver-startup-probe: exists", "ConfigMap nvidia-driver-startup-probe: labels",
	"DaemonSet gpu-feature-discovery: pod annotations",
	"DaemonSet nvidia-container-toolkit-daemonset: pod annotations",
	"DaemonSet nvidia-dcgm-exporter: pod annotations",
	"DaemonSet nvidia-device-plugin-daemonset: pod annotations",
	"DaemonSet nvidia-device-plugin-mps-control-daemon: pod annotations",
	"DaemonSet nvidia-driver-daemonset: config maps",
	"DaemonSet nvidia-mig-manager: pod annotations",
	"DaemonSet nvidia-operator-validator: pod annotations",
	"RuntimeClass nvidia-cdi: exists", "RuntimeClass nvidia-cdi: labels",
	"RuntimeClass nvidia-legacy: exists", "RuntimeClass nvidia-legacy: labels",
}

// isPlayed compares what Player writes with what NVIDIA's operator has written. They differ in laterReleases only.
func (i *incumbent) isPlayed() {
	i.t.Helper()
	player := NewPlayer(i.client, namespace, "")
	played := map[string]string{}
	for _, object := range player.objects() {
		for fact, value := range factsOf(object) {
			played[i.kindOf(object)+" "+object.GetName()+": "+fact] = value
		}
	}
	found := i.written()
	i.Expect(len(found)).To(BeNumerically(">", 100))
	later := map[string]string{}
	for _, key := range laterReleases {
		later[key] = found[key]
		i.Expect(later[key]).To(BeEmpty(), key)
		i.Expect(played[key]).NotTo(BeEmpty(), key)
	}
	maps.Copy(played, later)
	maps.DeleteFunc(played, func(_, value string) bool { return value == "" })
	i.Expect(found).To(Equal(played))
}

func (i *incumbent) kindOf(object client.Object) string {
	kinds, _, err := i.client.Scheme().ObjectKinds(object)
	i.Expect(err).NotTo(HaveOccurred())
	return kinds[0].Kind
}

// written returns the facts of all objects that the policy owns.
func (i *incumbent) written() map[string]string {
	i.t.Helper()
	objects, err := cluster.Objects(i.t.Context(), i.cluster.SimulatorConfig)
	i.Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for _, object := range objects {
		owner := metav1.GetControllerOf(object)
		if owner == nil || owner.Kind != "ClusterPolicy" {
			continue
		}
		var typed client.Object = object
		if object.GetKind() == "DaemonSet" {
			typed = &appsv1.DaemonSet{}
			i.Expect(i.client.Get(i.t.Context(), client.ObjectKeyFromObject(object), typed)).To(Succeed())
		}
		facts := factsOf(typed)
		for _, entry := range object.GetManagedFields() {
			if entry.Subresource == "" {
				i.Expect([]string{entry.Manager, string(entry.Operation)}).To(Equal([]string{fieldManager, "Update"}),
					object.GetName())
			}
		}
		for fact, value := range facts {
			found[object.GetKind()+" "+object.GetName()+": "+fact] = value
		}
	}
	return found
}

// factsOf returns what a migration reads of an object.
func factsOf(object client.Object) map[string]string {
	facts := map[string]string{"exists": "true", "labels": fmt.Sprint(object.GetLabels())}
	ds, isDaemonSet := object.(*appsv1.DaemonSet)
	if !isDaemonSet {
		return facts
	}
	facts["annotations"] = keys(ds.Annotations)
	facts["selector"] = fmt.Sprint(ds.Spec.Selector.MatchLabels)
	facts["strategy"] = string(ds.Spec.UpdateStrategy.Type)
	template := &ds.Spec.Template
	facts["pod labels"] = fmt.Sprint(template.Labels)
	facts["pod annotations"] = keys(template.Annotations)
	facts["node selector"] = fmt.Sprint(template.Spec.NodeSelector)
	facts["account"] = template.Spec.ServiceAccountName
	facts["init containers"] = names(template.Spec.InitContainers)
	facts["containers"] = names(template.Spec.Containers)
	if class := template.Spec.RuntimeClassName; class != nil {
		facts["runtime class"] = *class
	}
	var files []string
	for _, volume := range template.Spec.Volumes {
		if volume.ConfigMap != nil {
			files = append(files, volume.ConfigMap.Name)
		}
	}
	slices.Sort(files)
	facts["config maps"] = strings.Join(files, " ")
	maps.DeleteFunc(facts, func(_, value string) bool { return value == "" })
	return facts
}

// keys returns the sorted keys of annotations, but for that of the API server.
func keys(of map[string]string) string {
	return strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(of)), func(key string) bool {
		return key == "deprecated.daemonset.template.generation"
	}), " ")
}

func names(of []corev1.Container) string {
	var all []string
	for _, container := range of {
		all = append(all, container.Name)
	}
	return strings.Join(all, " ")
}
