package helm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const bundle = repo + "/bundle"

// bundlesKinds are the kinds that OLM takes beside the ClusterServiceVersion, and whether they are in its
// namespace: those of operator-framework/operator-registry, pkg/lib/bundle/supported_resources.go, that this
// bundle could need.
var bundlesKinds = map[string]bool{
	"CustomResourceDefinition": false, "ClusterRole": false, "ClusterRoleBinding": false, "PriorityClass": false,
	"ConfigMap": true, "NetworkPolicy": true, "PodDisruptionBudget": true, "PrometheusRule": true, "Role": true,
	"RoleBinding": true, "Service": true, "ServiceAccount": true, "ServiceMonitor": true,
}

// serviceVersion is what the player reads of a ClusterServiceVersion.
type serviceVersion struct {
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
				Permissions        []accountRules `json:"permissions"`
				ClusterPermissions []accountRules `json:"clusterPermissions"`
				Deployments        []struct {
					Name  string                `json:"name"`
					Label map[string]string     `json:"label"`
					Spec  appsv1.DeploymentSpec `json:"spec"`
				} `json:"deployments"`
			} `json:"spec"`
		} `json:"install"`
		Definitions struct {
			Owned []struct {
				Name    string `json:"name"`
				Kind    string `json:"kind"`
				Version string `json:"version"`
			} `json:"owned"`
		} `json:"customresourcedefinitions"`
		RelatedImages []struct {
			Name  string `json:"name"`
			Image string `json:"image"`
		} `json:"relatedImages"`
	} `json:"spec"`
}

type accountRules struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

// player does with the bundle what OLM does: it has no other source than the bundle's files.
type player struct {
	*WithT
	t *testing.T
	// in is the namespace of the Subscription and of its OperatorGroup.
	in  string
	csv serviceVersion
	// beside are the other manifests.
	beside []*unstructured.Unstructured
}

func openBundle(t *testing.T, in string) *player {
	t.Helper()
	p := &player{WithT: NewWithT(t), t: t, in: in}
	for _, path := range files(p.WithT, filepath.Join(bundle, "manifests")) {
		text, err := os.ReadFile(path)
		p.Expect(err).NotTo(HaveOccurred())
		objects, err := decode(string(text))
		p.Expect(err).NotTo(HaveOccurred())
		p.Expect(objects).To(HaveLen(1), "%s: OLM takes one object for each file", path)
		if objects[0].GetKind() != "ClusterServiceVersion" {
			p.beside = append(p.beside, objects[0])
			continue
		}
		p.Expect(p.csv.Metadata.Name).To(BeEmpty(), "one ClusterServiceVersion")
		p.Expect(yaml.Unmarshal(text, &p.csv)).To(Succeed())
	}
	return p
}

func files(g *WithT, dir string) []string {
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(paths).NotTo(BeEmpty())
	return paths
}

// objects are those that OLM makes, in its order: the definition, the accounts and their rights, the objects
// beside, and the Deployment.
func (p *player) objects() []*unstructured.Unstructured {
	p.t.Helper()
	spec := p.csv.Spec.Install.Spec
	p.Expect(p.csv.Spec.Install.Strategy).To(Equal("deployment"))
	var made []*unstructured.Unstructured
	for _, object := range p.beside {
		namespaced, known := bundlesKinds[object.GetKind()]
		p.Expect(known).To(BeTrue(), "OLM refuses a bundle with %s %s", object.GetKind(), object.GetName())
		p.Expect(object.GetNamespace()).To(BeEmpty(), "the Subscription chooses the namespace of %s", object.GetName())
		object = object.DeepCopy()
		if namespaced {
			object.SetNamespace(p.in)
		}
		made = append(made, object)
	}
	accounts := map[string]bool{}
	for _, permission := range slices.Concat(spec.Permissions, spec.ClusterPermissions) {
		accounts[permission.ServiceAccountName] = true
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		account := &corev1.ServiceAccount{}
		account.Name, account.Namespace = name, p.in
		made = append(made, p.untyped("v1", "ServiceAccount", account))
	}
	for i, permission := range spec.Permissions {
		made = append(made, p.role("Role", "RoleBinding", i, permission)...)
	}
	for i, permission := range spec.ClusterPermissions {
		made = append(made, p.role("ClusterRole", "ClusterRoleBinding", i, permission)...)
	}
	for _, given := range spec.Deployments {
		deployment := &appsv1.Deployment{Spec: given.Spec}
		deployment.Name, deployment.Namespace, deployment.Labels = given.Name, p.in, given.Label
		made = append(made, p.untyped("apps/v1", "Deployment", deployment))
	}
	return made
}

// role makes a role with a generated name, and its binding.
func (p *player) role(kind, binding string, number int, of accountRules) []*unstructured.Unstructured {
	name := fmt.Sprintf("%s-%s-%d", p.csv.Metadata.Name, of.ServiceAccountName, number)
	role := &rbacv1.Role{Rules: of.Rules}
	bound := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: of.ServiceAccountName, Namespace: p.in}},
	}
	role.Name, bound.Name = name, name
	if kind == "Role" {
		role.Namespace, bound.Namespace = p.in, p.in
	}
	version := rbacv1.SchemeGroupVersion.String()
	return []*unstructured.Unstructured{p.untyped(version, kind, role), p.untyped(version, binding, bound)}
}

func (p *player) untyped(version, kind string, typed any) *unstructured.Unstructured {
	p.t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	p.Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(version)
	object.SetKind(kind)
	return object
}
