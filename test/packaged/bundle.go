package packaged

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// besideKinds are the kinds that OLM supports in addition to the ClusterServiceVersion, and whether they are
// namespaced: those of operator-framework/operator-registry, pkg/lib/bundle/supported_resources.go, that an operator
// could need.
var besideKinds = map[string]bool{
	"CustomResourceDefinition": false, "ClusterRole": false, "ClusterRoleBinding": false, "PriorityClass": false,
	"ConfigMap": true, "NetworkPolicy": true, "PodDisruptionBudget": true, "PrometheusRule": true, "Role": true,
	"RoleBinding": true, "Service": true, "ServiceAccount": true, "ServiceMonitor": true,
}

// ServiceVersion has the fields of a ClusterServiceVersion (operators.coreos.com/v1alpha1) that OLM needs to install.
type ServiceVersion struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Version        string `json:"version"`
		MinKubeVersion string `json:"minKubeVersion"`
		InstallModes   []struct {
			Type      string `json:"type"`
			Supported bool   `json:"supported"`
		} `json:"installModes"`
		Install struct {
			Strategy string `json:"strategy"`
			Spec     struct {
				Permissions        []AccountRules `json:"permissions"`
				ClusterPermissions []AccountRules `json:"clusterPermissions"`
				Deployments        []struct {
					Name  string                `json:"name"`
					Label map[string]string     `json:"label"`
					Spec  appsv1.DeploymentSpec `json:"spec"`
				} `json:"deployments"`
			} `json:"spec"`
		} `json:"install"`
		Definitions struct {
			Owned []OwnedDefinition `json:"owned"`
		} `json:"customresourcedefinitions"`
		RelatedImages []struct {
			Name  string `json:"name"`
			Image string `json:"image"`
		} `json:"relatedImages"`
	} `json:"spec"`
}

// OwnedDefinition is a kind of the operator.
type OwnedDefinition struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Version string `json:"version"`
	// SpecDescriptors and StatusDescriptors describe fields to consoles.
	SpecDescriptors   []Descriptor `json:"specDescriptors"`
	StatusDescriptors []Descriptor `json:"statusDescriptors"`
}

// Descriptor describes a field of a kind to consoles.
type Descriptor struct {
	Path        string `json:"path"`
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
}

// AccountRules are the permissions of a ServiceAccount.
type AccountRules struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

// Bundle is a bundle in the format registry+v1.
type Bundle struct {
	CSV ServiceVersion
	// Beside are the other manifests.
	Beside []*unstructured.Unstructured
}

// OpenBundle reads the manifests of a bundle, and refuses what OLM refuses.
func OpenBundle(dir string) (*Bundle, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "manifests", "*"))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(fmt.Errorf("%s has no manifests", dir), err)
	}
	b := &Bundle{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the bundle: %w", err)
		}
		objects, err := Decode(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(objects) != 1 {
			return nil, fmt.Errorf("%s has %d objects: OLM supports one per file", path, len(objects))
		}
		if err := b.add(objects[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if b.CSV.Metadata.Name == "" || b.CSV.Spec.Install.Strategy != "deployment" {
		return nil, fmt.Errorf("%s has no ClusterServiceVersion that installs by a Deployment", dir)
	}
	return b, nil
}

func (b *Bundle) add(object *unstructured.Unstructured) error {
	if object.GetKind() != "ClusterServiceVersion" {
		if _, known := besideKinds[object.GetKind()]; !known {
			return fmt.Errorf("OLM does not support the kind %s", object.GetKind())
		}
		if object.GetNamespace() != "" {
			return errors.New("metadata.namespace must not be set: OLM uses that of the Subscription")
		}
		b.Beside = append(b.Beside, object)
		return nil
	}
	if b.CSV.Metadata.Name != "" {
		return errors.New("the bundle has more than one ClusterServiceVersion")
	}
	content, err := object.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encoding it again: %w", err)
	}
	return json.Unmarshal(content, &b.CSV)
}

// Objects returns what OLM creates for a Subscription in a namespace whose OperatorGroup only selects that namespace:
// the other objects, the ServiceAccounts, a role with a generated name and a binding for each permission, and the
// Deployment.
func (b *Bundle) Objects(namespace string) ([]*unstructured.Unstructured, error) {
	spec := b.CSV.Spec.Install.Spec
	m := maker{csv: b.CSV.Metadata.Name, namespace: namespace}
	for _, object := range b.Beside {
		object = object.DeepCopy()
		if besideKinds[object.GetKind()] {
			object.SetNamespace(namespace)
		}
		m.made = append(m.made, object)
	}
	accounts := map[string]bool{}
	for _, permission := range slices.Concat(spec.Permissions, spec.ClusterPermissions) {
		accounts[permission.ServiceAccountName] = true
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		account := &corev1.ServiceAccount{}
		account.Name, account.Namespace = name, namespace
		m.add("v1", "ServiceAccount", account)
	}
	for i, permission := range spec.Permissions {
		m.addRole("Role", i, permission)
	}
	for i, permission := range spec.ClusterPermissions {
		m.addRole("ClusterRole", i, permission)
	}
	for _, given := range spec.Deployments {
		deployment := &appsv1.Deployment{Spec: given.Spec}
		deployment.Name, deployment.Namespace, deployment.Labels = given.Name, namespace, given.Label
		m.add("apps/v1", "Deployment", deployment)
	}
	return m.made, m.err
}

// maker collects the objects of an installation.
type maker struct {
	csv, namespace string
	made           []*unstructured.Unstructured
	err            error
}

func (m *maker) add(version, kind string, typed any) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		m.err = errors.Join(m.err, fmt.Errorf("encoding a %s: %w", kind, err))
		return
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(version)
	object.SetKind(kind)
	m.made = append(m.made, object)
}

func (m *maker) addRole(kind string, number int, of AccountRules) {
	name := fmt.Sprintf("%s-%s-%d", m.csv, of.ServiceAccountName, number)
	role := &rbacv1.Role{Rules: of.Rules}
	binding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: of.ServiceAccountName, Namespace: m.namespace}},
	}
	role.Name, binding.Name = name, name
	if kind == "Role" {
		role.Namespace, binding.Namespace = m.namespace, m.namespace
	}
	m.add(rbacv1.SchemeGroupVersion.String(), kind, role)
	m.add(rbacv1.SchemeGroupVersion.String(), kind+"Binding", binding)
}
