package contract

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// installer is what it creates for the operands: their ServiceAccounts and permissions.
type installer struct {
	accounts map[string]corev1.ServiceAccount
	roles    map[string][]rbacv1.PolicyRule
	bindings []rbacv1.RoleBinding
}

func shipped(t *testing.T) installer {
	t.Helper()
	files, err := filepath.Glob("../../config/rbac/operands/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the installer creates no roles: %v", err)
	}
	found := installer{accounts: map[string]corev1.ServiceAccount{}, roles: map[string][]rbacv1.PolicyRule{}}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if err := found.add(document); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
	return found
}

func (i *installer) add(document []byte) error {
	var object struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal(document, &object); err != nil {
		return err
	}
	switch object.Kind {
	case "ServiceAccount":
		var account corev1.ServiceAccount
		err := yaml.Unmarshal(document, &account)
		i.accounts[account.Name] = account
		return err
	case "Role", "ClusterRole":
		var role rbacv1.Role
		err := yaml.Unmarshal(document, &role)
		i.roles[object.Kind+"/"+role.Name] = role.Rules
		return err
	case "RoleBinding", "ClusterRoleBinding":
		var binding rbacv1.RoleBinding
		err := yaml.Unmarshal(document, &binding)
		binding.Kind = object.Kind
		i.bindings = append(i.bindings, binding)
		return err
	}
	return nil
}

// verbs returns the verbs that an account may use on cluster/RESOURCE, or on namespace/RESOURCE in its own namespace.
func (i *installer) verbs(account, where string) []string {
	scope, resource, _ := strings.Cut(where, "/")
	var granted []string
	for _, binding := range i.bindings {
		bound := slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == account })
		if !bound || scope == "cluster" && binding.Kind != "ClusterRoleBinding" {
			continue
		}
		for _, rule := range i.roles[binding.RoleRef.Kind+"/"+binding.RoleRef.Name] {
			if slices.Contains(rule.Resources, resource) && len(rule.ResourceNames) == 0 {
				granted = append(granted, rule.Verbs...)
			}
		}
	}
	return granted
}

// serviceAccount returns the account of the pod. Without an installed account the pod is never created.
func serviceAccount(p place) (any, error) {
	name := p.spec().ServiceAccountName
	if _, there := p.shipped.accounts[name]; !there {
		return name + ", which the installer does not create", nil
	}
	return name, nil
}

// automount reports whether the pod gets a token.
func automount(p place) (any, error) {
	if own := p.spec().AutomountServiceAccountToken; own != nil {
		return *own, nil
	}
	return withToken(p.shipped.accounts[p.spec().ServiceAccountName]), nil
}
