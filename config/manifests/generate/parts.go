package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config"
)

// namespace is the one in config/. OLM installs into the one of its Subscription.
const namespace = "gpu-operator"

// parts are the objects of an installation, grouped as in a bundle.
type parts struct {
	deployment appsv1.Deployment
	// definitions by kind.
	definitions map[string]apiextensionsv1.CustomResourceDefinition
	// permissions by ServiceAccount: within the namespace, and in the whole cluster.
	inNamespace, inCluster map[string][]rbacv1.PolicyRule
	// beside are the objects in the bundle other than the ClusterServiceVersion.
	beside []*unstructured.Unstructured
	// notCarried are the objects that OLM does not support in a bundle: the admission policies.
	notCarried []*unstructured.Unstructured
	// namespace is not in the bundle, but suggested by an annotation.
	namespace corev1.Namespace
}

// roles are the roles of the installation by kind and name, and which of them are bound.
type roles struct {
	rules map[string][]rbacv1.PolicyRule
	bound map[string]bool
}

// carried are the kinds in config/ that OLM supports in a bundle (operator-framework/operator-registry,
// pkg/lib/bundle/supported_resources.go). NetworkPolicy was added last, in 2025.
var carried = []string{
	"CustomResourceDefinition", "ClusterRole", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "PriorityClass",
	"Role", "RoleBinding",
}

// notCarried are the kinds that the bundle omits. A cluster administrator applies them: see admissionPolicies.
var notCarried = []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// read builds the kustomization and groups its objects.
func read(dir string) (*parts, error) {
	objects, err := config.Build(dir)
	if err != nil {
		return nil, err
	}
	p := &parts{
		definitions: map[string]apiextensionsv1.CustomResourceDefinition{},
		inNamespace: map[string][]rbacv1.PolicyRule{}, inCluster: map[string][]rbacv1.PolicyRule{},
	}
	r := roles{rules: map[string][]rbacv1.PolicyRule{}, bound: map[string]bool{}}
	for _, object := range objects {
		if err := r.collect(object); err != nil {
			return nil, err
		}
	}
	accounts := map[string]bool{}
	for _, object := range objects {
		if object.GetKind() == "ServiceAccount" {
			accounts[object.GetName()] = true
			continue
		}
		if err := p.permit(object, r); err != nil {
			return nil, err
		}
	}
	for _, object := range objects {
		if err := p.take(object, r); err != nil {
			return nil, err
		}
	}
	return p, p.check(accounts)
}

func (r roles) collect(object *unstructured.Unstructured) error {
	if object.GetKind() != "Role" && object.GetKind() != "ClusterRole" {
		return nil
	}
	role := rbacv1.ClusterRole{} // A Role has the same rules.
	if err := into(object, &role); err != nil {
		return err
	}
	r.rules[object.GetKind()+"/"+object.GetName()] = role.Rules
	return nil
}

// permit adds the permissions of a binding to each of its ServiceAccounts. A RoleBinding for accounts of another
// namespace is in the bundle as it is, and so is its role.
func (p *parts) permit(object *unstructured.Unstructured, r roles) error {
	to := p.inCluster
	switch object.GetKind() {
	case "RoleBinding":
		to = p.inNamespace
	case "ClusterRoleBinding":
	default:
		return nil
	}
	binding := rbacv1.RoleBinding{} // A ClusterRoleBinding has the same role and subjects.
	if err := into(object, &binding); err != nil {
		return err
	}
	role := binding.RoleRef.Kind + "/" + binding.RoleRef.Name
	rules, there := r.rules[role]
	if !there {
		return fmt.Errorf("%s %s binds %s, which is not in the kustomization", object.GetKind(), object.GetName(), role)
	}
	if object.GetKind() == "RoleBinding" && ofAnotherNamespace(binding.Subjects) {
		return p.carry(object)
	}
	r.bound[role] = true
	for _, subject := range binding.Subjects {
		if subject.Kind != rbacv1.ServiceAccountKind || subject.Namespace != namespace {
			return fmt.Errorf("%s %s: subject %s %s is not a ServiceAccount in namespace %s: give it a RoleBinding of its own",
				object.GetKind(), object.GetName(), subject.Kind, subject.Name, namespace)
		}
		to[subject.Name] = append(to[subject.Name], rules...)
	}
	return nil
}

// ofAnotherNamespace reports whether a binding is only for ServiceAccounts that others create.
func ofAnotherNamespace(subjects []rbacv1.Subject) bool {
	for _, subject := range subjects {
		if subject.Kind != rbacv1.ServiceAccountKind || subject.Namespace == namespace {
			return false
		}
	}
	return len(subjects) > 0
}

// carry adds an object to the bundle beside the ClusterServiceVersion. OLM creates it in the Subscription's namespace.
func (p *parts) carry(object *unstructured.Unstructured) error {
	if !slices.Contains(carried, object.GetKind()) {
		return fmt.Errorf("%s %s: OLM does not support this kind, or it is missing in carried", object.GetKind(),
			object.GetName())
	}
	object.SetNamespace("")
	p.beside = append(p.beside, object)
	return nil
}

// take adds an object to its group.
func (p *parts) take(object *unstructured.Unstructured, r roles) error {
	kind := object.GetKind()
	switch {
	case kind == "Deployment":
		return into(object, &p.deployment)
	case kind == "Namespace":
		return into(object, &p.namespace)
	case kind == "ServiceAccount", kind == "RoleBinding", kind == "ClusterRoleBinding", r.bound[kind+"/"+object.GetName()]:
		return nil // OLM creates them from the permissions; permit has carried the others.
	case slices.Contains(notCarried, kind):
		p.notCarried = append(p.notCarried, object)
		return nil
	case kind == "CustomResourceDefinition":
		definition := apiextensionsv1.CustomResourceDefinition{}
		if err := into(object, &definition); err != nil {
			return err
		}
		p.definitions[definition.Spec.Names.Kind] = definition
	}
	return p.carry(object)
}

// check refuses what would be silently omitted: OLM only creates ServiceAccounts that have a permission.
func (p *parts) check(accounts map[string]bool) error {
	if p.deployment.Name == "" || len(p.definitions) == 0 || p.namespace.Name == "" {
		return errors.New("the kustomization must have a Deployment, CustomResourceDefinitions and a Namespace")
	}
	for account := range accounts {
		if p.inNamespace[account] == nil && p.inCluster[account] == nil {
			return fmt.Errorf("ServiceAccount %s has no permission, so that OLM would not create it: add the object to "+
				"the bundle", account)
		}
	}
	return nil
}

// fileOf returns the name of an object's file, as operator-sdk names it.
func fileOf(object *unstructured.Unstructured) string {
	if object.GetKind() == "CustomResourceDefinition" {
		plural, group, _ := strings.Cut(object.GetName(), ".")
		return group + "_" + plural + ".yaml"
	}
	group, version, found := strings.Cut(object.GetAPIVersion(), "/")
	if !found {
		group, version = "core", group
	}
	return fmt.Sprintf("%s_%s_%s_%s.yaml", object.GetName(), group, version, strings.ToLower(object.GetKind()))
}

// into decodes an object strictly: an unknown field would be lost.
func into(object *unstructured.Unstructured, typed any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
		return fmt.Errorf("decoding %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// admissionPolicies returns the manifest with the objects that the bundle cannot contain. OLM does not read it.
func admissionPolicies(objects []*unstructured.Unstructured) ([]byte, error) {
	text := bytes.NewBufferString("# Written by make bundle. What a bundle cannot contain: a cluster administrator " +
		"applies it once per release.\n")
	for _, object := range objects {
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		text.WriteString("---\n")
		text.Write(content)
	}
	return text.Bytes(), nil
}

func marshal(value any) ([]byte, error) {
	text, err := yaml.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding a part of the bundle: %w", err)
	}
	return append([]byte("# Written by make bundle.\n"), text...), nil
}
