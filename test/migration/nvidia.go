package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// What NVIDIA's operator writes on everything.
const (
	hashAnnotation = "nvidia.com/last-applied-hash"
	fieldManager   = "gpu-operator"
	chartVersion   = "gpu-operator-v1.0.0-devel"
	operatorImage  = "nvcr.io/nvidia/gpu-operator:v26.7.0"
	deployPrefix   = "nvidia.com/gpu.deploy."
	// DriverName is the name of the driver's DaemonSet, and the app of its pods.
	DriverName = "nvidia-driver-daemonset"
)

// Player plays NVIDIA's operator: it writes the same objects, labels and annotations under the same names, as the same
// field manager and with the same calls. It neither reads nor writes anything that this operator adds.
type Player struct {
	client    client.Client
	namespace string
	// DriverImage is the image of the driver container.
	DriverImage string
	// Drivers are the driver DaemonSets; none for the usual one, which serves all nodes.
	Drivers []Driver
}

// NewPlayer returns a Player for a namespace, which writes with the client.
func NewPlayer(c client.Client, namespace, driverImage string) *Player {
	return &Player{client: client.WithFieldOwner(c, fieldManager), namespace: namespace, DriverImage: driverImage}
}

// Reconcile labels the GPU nodes and creates or updates all objects for the policy.
func (p *Player) Reconcile(ctx context.Context, policy *v1.ClusterPolicy) error {
	if err := p.labelNodes(ctx); err != nil {
		return err
	}
	for _, object := range p.objects() {
		if len(object.GetOwnerReferences()) == 0 {
			object.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: policy.Name, UID: policy.UID,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}})
		}
		if err := p.createOrUpdate(ctx, object); err != nil {
			return fmt.Errorf("%T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// createOrUpdate writes the whole object. A DaemonSet with another selector is deleted and created again.
func (p *Player) createOrUpdate(ctx context.Context, object client.Object) error {
	live, _ := object.DeepCopyObject().(client.Object)
	err := p.client.Get(ctx, client.ObjectKeyFromObject(object), live)
	if apierrors.IsNotFound(err) {
		return p.client.Create(ctx, object)
	}
	if err != nil {
		return err
	}
	wanted, isDaemonSet := object.(*appsv1.DaemonSet)
	if found, _ := live.(*appsv1.DaemonSet); isDaemonSet &&
		!equality.Semantic.DeepEqual(found.Spec.Selector, wanted.Spec.Selector) {
		if err := p.client.Delete(ctx, live); err != nil {
			return err
		}
		return p.client.Create(ctx, object)
	}
	if _, isAccount := object.(*corev1.ServiceAccount); isAccount {
		return nil
	}
	object.SetResourceVersion(live.GetResourceVersion())
	if service, isService := object.(*corev1.Service); isService {
		found, _ := live.(*corev1.Service)
		service.Spec.ClusterIP, service.Spec.ClusterIPs = found.Spec.ClusterIP, found.Spec.ClusterIPs
	}
	return p.client.Update(ctx, object)
}

// nodeLabels are the labels of each GPU node.
func nodeLabels() map[string]string {
	labels := map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/mig.config": "all-disabled"}
	for _, operand := range []string{
		"client", "container-toolkit", "dcgm", "dcgm-exporter", "device-plugin", "driver", "gpu-feature-discovery",
		"mig-manager", "node-status-exporter", "operator-validator",
	} {
		labels[deployPrefix+operand] = "true"
	}
	return labels
}

func (p *Player) labelNodes(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := p.client.List(ctx, nodes, client.MatchingLabels{
		"feature.node.kubernetes.io/pci-10de.present": "true",
	}); err != nil {
		return err
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		before := node.DeepCopy()
		maps.Copy(node.Labels, nodeLabels())
		if owner := p.ownerOf(node); owner != "" {
			node.Labels[driverOwner] = owner
		}
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations["nvidia.com/gpu-driver-upgrade-enabled"] = "true"
		if err := p.client.Patch(ctx, node, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return nil
}

// ownerOf returns the NVIDIADriver object whose driver the node gets; empty for none.
func (p *Player) ownerOf(node *corev1.Node) string {
	for i := range p.Drivers {
		if d := &p.Drivers[i]; d.Object != nil && d.Serves(node) {
			return d.Object.Name
		}
	}
	return ""
}

// objects returns all objects, in the order in which they are written.
func (p *Player) objects() []client.Object {
	var all []client.Object
	for _, name := range []string{"nvidia", "nvidia-cdi", "nvidia-legacy"} {
		all = append(all, &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/component": "gpu-operator"}},
			Handler:    name,
		})
	}
	all = append(all, p.access()...)
	all = append(all, p.configMaps()...)
	for _, driver := range p.drivers() {
		all = append(all, p.driverObjects(driver)...)
	}
	for _, ds := range daemonSets() {
		all = append(all, p.daemonSet(ds))
	}
	return append(all, p.service("gpu-operator", "gpu-operator", 8080), p.service(exporterName, exporterName, 9400))
}

// Accounts of operands, and those with a ClusterRole.
var (
	accounts = []string{
		"nvidia-container-toolkit", "nvidia-dcgm-exporter", "nvidia-device-plugin",
		"nvidia-device-plugin-mps-control-daemon", "nvidia-driver", "nvidia-gpu-feature-discovery", "nvidia-mig-manager",
		"nvidia-operator-validator",
	}
	clusterAccounts = []string{
		"nvidia-device-plugin", "nvidia-device-plugin-mps-control-daemon", "nvidia-driver", "nvidia-gpu-feature-discovery",
		"nvidia-mig-manager", "nvidia-operator-validator",
	}
)

// access returns the accounts of operands and their rights.
func (p *Player) access() []client.Object {
	var all []client.Object
	for _, name := range accounts {
		all = append(all, p.accessOf(name, slices.Contains(clusterAccounts, name))...)
	}
	return all
}

// accessOf returns an account and its rights, in the whole cluster too or only in the namespace.
func (p *Player) accessOf(name string, inCluster bool) []client.Object {
	read := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}}
	nodes := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}}}
	meta := metav1.ObjectMeta{Namespace: p.namespace, Name: name}
	if name == exporterName {
		meta.Labels = map[string]string{"app": name}
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: p.namespace, Name: name}}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
	all := []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta}, &rbacv1.Role{ObjectMeta: meta, Rules: read},
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: role},
	}
	if inCluster {
		meta.Namespace, role.Kind = "", "ClusterRole"
		all = append(all, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: nodes},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: role})
	}
	return all
}

// configMaps returns the files that the pods of NVIDIA's operator mount.
func (p *Player) configMaps() []client.Object {
	var all []client.Object
	for name, app := range map[string]string{
		"default-gpu-clients": "", "default-mig-parted-config": "",
		"nvidia-container-toolkit-entrypoint": "nvidia-container-toolkit-daemonset",
		"nvidia-device-plugin-entrypoint":     "nvidia-device-plugin-daemonset",
		probeScript:                           DriverName,
		"nvidia-mig-manager-entrypoint":       "nvidia-mig-manager",
	} {
		if name == probeScript && p.drivers()[0].Object != nil {
			continue
		}
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name},
			Data:       map[string]string{"theirs": "of " + name},
		}
		if app != "" {
			object.Labels = map[string]string{"app": app}
		}
		all = append(all, object)
	}
	return all
}

func (p *Player) service(name, app string, port int32) client.Object {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.namespace, Name: name, Labels: map[string]string{"app": app},
			Annotations: map[string]string{"prometheus.io/scrape": "true"},
		},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": app},
			Ports:    []corev1.ServicePort{{Name: "gpu-metrics", Port: port, TargetPort: intstr.FromInt32(port)}},
		},
	}
}
