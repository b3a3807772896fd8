package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/names/viewer"
)

const (
	operandsDir      = "config/rbac/operands"
	openShiftBinding = "config/openshift/operands.yaml"
	viewerRole       = "config/rbac/viewer.yaml"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run writes the generated files of the repository at root, and removes those of operands that are gone.
func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(root, operandsDir)); err != nil {
		return fmt.Errorf("removing the files of an earlier run: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(root, operandsDir), 0o755); err != nil {
		return fmt.Errorf("making the folder %s: %w", operandsDir, err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// generate returns the generated files by their paths from root.
func generate(root string) (map[string][]byte, error) {
	sources, err := filepath.Glob(filepath.Join(root, "assets/*/install.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing the assets: %w", err)
	}
	if len(sources) == 0 {
		return nil, errors.New("no file assets/*/install.yaml")
	}
	slices.Sort(sources)
	files := map[string][]byte{}
	list := bytes.NewBufferString(`# Written by make manifests: the ServiceAccounts and rights of the operands.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
`)
	var accounts []string
	for _, source := range sources {
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		operand := filepath.Base(filepath.Dir(source))
		name := operand + ".yaml"
		header := fmt.Sprintf("# Written by make manifests from assets/%s/install.yaml: change that instead.\n", operand)
		files[filepath.Join(operandsDir, name)] = append([]byte(header), content...)
		fmt.Fprintf(list, "  - %s\n", name)
		found, err := accountsIn(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		accounts = append(accounts, found...)
	}
	binding := bytes.NewBufferString(bindingHead)
	for _, account := range slices.Sorted(slices.Values(accounts)) {
		fmt.Fprintf(binding, "  - {kind: ServiceAccount, name: %s, namespace: gpu-operator}\n", account)
	}
	files[filepath.Join(operandsDir, "kustomization.yaml")] = list.Bytes()
	files[openShiftBinding] = binding.Bytes()
	files[viewerRole], err = viewerManifest()
	return files, err
}

// viewerHead is the comment of the role's manifest.
const viewerHead = `# Written by make manifests from internal/names/viewer: what kubectl gpu reads. Nothing binds
# the role. The label keeps it out of the role view: with "true" all who have that role would get these rights.
`

// viewerManifest returns the role with the rights of all commands that only read.
func viewerManifest() ([]byte, error) {
	role := rbacv1.ClusterRole{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{
			Name: viewer.ClusterRole, Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "false"},
		},
	}
	for _, right := range viewer.All() {
		rule := rbacv1.PolicyRule{APIGroups: []string{right.Group}, Resources: []string{right.Resource}, Verbs: right.Verbs}
		if right.Name != "" {
			rule.ResourceNames = []string{right.Name}
		}
		alike := slices.IndexFunc(role.Rules, func(other rbacv1.PolicyRule) bool {
			return slices.Equal(other.APIGroups, rule.APIGroups) && slices.Equal(other.Verbs, rule.Verbs) &&
				slices.Equal(other.ResourceNames, rule.ResourceNames)
		})
		if alike < 0 {
			role.Rules = append(role.Rules, rule)
			continue
		}
		role.Rules[alike].Resources = append(role.Rules[alike].Resources, right.Resource)
	}
	text, err := yaml.Marshal(role)
	if err != nil {
		return nil, fmt.Errorf("encoding ClusterRole %s: %w", role.Name, err)
	}
	return append([]byte(viewerHead), text...), nil
}

const bindingHead = `# Written by make manifests from assets/*/install.yaml.
# A pod with this right can take over its node, so only the accounts of the operands have it.
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: gpu-operator-privileged
  namespace: gpu-operator
  labels:
    app.kubernetes.io/name: gpu-operator
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: gpu-operator-privileged
subjects:
`

// accountsIn returns the names of the ServiceAccounts in a file of YAML documents.
func accountsIn(content []byte) ([]string, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var names []string
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		account := corev1.ServiceAccount{}
		if err := yaml.Unmarshal(document, &account); err != nil {
			return nil, err
		}
		if account.Kind == rbacv1.ServiceAccountKind {
			names = append(names, account.Name)
		}
	}
}
