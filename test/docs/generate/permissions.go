package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// permissionTable has a row for each operand with a ServiceAccount, from assets/OPERAND/install.yaml.
func permissionTable(repo string) (string, error) {
	files, err := filepath.Glob(filepath.Join(repo, "assets", "*", "install.yaml"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("no operand has an install.yaml: the search has lost its way")
	}
	var rows [][]string
	for _, file := range files {
		row, err := permissionRow(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		rows = append(rows, row)
	}
	return table([]string{"operand", "account", "in the cluster", "in its namespace"}, rows), nil
}

// permissionRow returns the operand, its ServiceAccount, and the rules of its ClusterRoles and Roles.
func permissionRow(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	account := ""
	rules := map[string][]rbacv1.PolicyRule{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data))
	for {
		// The fields of the kinds that matter; those of the others are ignored.
		var object struct {
			Kind     string                `json:"kind"`
			Metadata struct{ Name string } `json:"metadata"`
			Rules    []rbacv1.PolicyRule   `json:"rules"`
		}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if object.Kind == "ServiceAccount" {
			account = object.Metadata.Name
		}
		rules[object.Kind] = append(rules[object.Kind], object.Rules...)
	}
	if account == "" {
		return nil, fmt.Errorf("no ServiceAccount")
	}
	return []string{
		code(filepath.Base(filepath.Dir(file))), code(account), permissions(rules["ClusterRole"]), permissions(rules["Role"]),
	}, nil
}

// permissions are the rules in one line: the resources with their groups, and the verbs.
func permissions(rules []rbacv1.PolicyRule) string {
	var all []string
	for _, rule := range rules {
		var resources []string
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if group != corev1.GroupName {
					resource += "." + group
				}
				resources = append(resources, code(resource))
			}
		}
		all = append(all, strings.Join(resources, ", ")+": "+strings.Join(rule.Verbs, ", "))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, "; ")
}
