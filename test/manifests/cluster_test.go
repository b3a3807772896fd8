package manifests

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// cluster has the objects of a source by kind, for checks across objects.
type cluster struct {
	objects   []named[*unstructured.Unstructured]
	workloads []named[workload]
	roles     []named[[]rbacv1.PolicyRule]
	bindings  []named[binding]
	services  []named[corev1.ServiceSpec]
	budgets   []named[policyv1.PodDisruptionBudgetSpec]
	jobs      []named[batchv1.JobSpec]
	// known has the names of all objects.
	known map[string]bool
}

// named is the spec of an object with the name KIND/NAME.
type named[T any] struct {
	object string
	spec   T
}

// workload is a pod, or an object that creates pods.
type workload struct {
	// selector selects the pods; nil if the kind has none.
	selector *metav1.LabelSelector
	template corev1.PodTemplateSpec
}

// binding is a ClusterRoleBinding or a RoleBinding.
type binding struct {
	role     rbacv1.RoleRef
	subjects []rbacv1.Subject
}

// newCluster groups the objects by kind.
func newCluster(objects []*unstructured.Unstructured) (*cluster, error) {
	c := &cluster{known: map[string]bool{}}
	for _, object := range objects {
		if err := c.add(object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", nameOf(object), err)
		}
	}
	return c, nil
}

func nameOf(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

// as decodes an object into its type; an unknown field is an error.
func as[T any](object *unstructured.Unstructured) (T, error) {
	var typed T
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true)
	return typed, err
}

// add adds an object by its kind.
func (c *cluster) add(object *unstructured.Unstructured) error {
	name := nameOf(object)
	c.known[name] = true
	c.objects = append(c.objects, named[*unstructured.Unstructured]{name, object})
	switch object.GetKind() {
	case "Deployment":
		o, err := as[appsv1.Deployment](object)
		c.workloads = append(c.workloads, named[workload]{name, workload{o.Spec.Selector, o.Spec.Template}})
		return err
	case "DaemonSet":
		o, err := as[appsv1.DaemonSet](object)
		c.workloads = append(c.workloads, named[workload]{name, workload{o.Spec.Selector, o.Spec.Template}})
		return err
	case "Job":
		o, err := as[batchv1.Job](object)
		c.jobs = append(c.jobs, named[batchv1.JobSpec]{name, o.Spec})
		c.workloads = append(c.workloads, named[workload]{name, workload{nil, o.Spec.Template}})
		return err
	case "Pod":
		o, err := as[corev1.Pod](object)
		c.workloads = append(c.workloads,
			named[workload]{name, workload{nil, corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}}})
		return err
	}
	return c.addOther(object)
}

// addOther adds an object that creates no pods.
func (c *cluster) addOther(object *unstructured.Unstructured) error {
	name := nameOf(object)
	switch object.GetKind() {
	case "Service":
		o, err := as[corev1.Service](object)
		c.services = append(c.services, named[corev1.ServiceSpec]{name, o.Spec})
		return err
	case "PodDisruptionBudget":
		o, err := as[policyv1.PodDisruptionBudget](object)
		c.budgets = append(c.budgets, named[policyv1.PodDisruptionBudgetSpec]{name, o.Spec})
		return err
	case "Role", "ClusterRole":
		o, err := as[rbacv1.ClusterRole](object)
		c.roles = append(c.roles, named[[]rbacv1.PolicyRule]{name, o.Rules})
		return err
	case "RoleBinding", "ClusterRoleBinding":
		o, err := as[rbacv1.ClusterRoleBinding](object)
		c.bindings = append(c.bindings, named[binding]{name, binding{o.RoleRef, o.Subjects}})
		return err
	case "StatefulSet", "ReplicaSet", "CronJob":
		return errors.New("no check of this package would see its pods: add its kind to cluster")
	}
	return nil
}

// podsOf returns the workloads whose pods have the labels.
func (c *cluster) podsOf(selector map[string]string) []workload {
	var found []workload
	for _, w := range c.workloads {
		if labels.SelectorFromSet(selector).Matches(labels.Set(w.spec.template.Labels)) {
			found = append(found, w.spec)
		}
	}
	return found
}
