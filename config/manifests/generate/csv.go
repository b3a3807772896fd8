package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

const (
	// packageName is the name of the operator in a catalogue.
	packageName = "gpu-operator"
	// installation is the install strategy of OLM: a Deployment.
	installation = "deployment"
	// admissionPlaceholder in the description is the address of the manifest with the admission policies.
	admissionPlaceholder = "ADMISSION_MANIFEST"
)

// permission is what OLM creates a ServiceAccount, its role and its binding from.
type permission struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

// deploymentSpec is a Deployment as OLM has it.
type deploymentSpec struct {
	Name  string                `json:"name"`
	Label map[string]string     `json:"label,omitempty"`
	Spec  appsv1.DeploymentSpec `json:"spec"`
}

// clusterServiceVersion completes the texts in bases/ with the contents of config/ and the code.
func clusterServiceVersion(root string, p *parts, r release) (map[string]any, error) {
	base, err := readYAML(filepath.Join(root, "config/manifests/bases/gpu-operator.clusterserviceversion.yaml"))
	if err != nil {
		return nil, err
	}
	metadata, _ := base["metadata"].(map[string]any)
	spec, _ := base["spec"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if spec == nil || annotations == nil {
		return nil, errors.New("bases/gpu-operator.clusterserviceversion.yaml has no spec or no metadata.annotations")
	}
	image := setImage(&p.deployment, r.image)
	if err := pinDefaults(&p.deployment, r.digests); err != nil {
		return nil, err
	}
	metadata["name"] = nameOf(r.version)
	if err := annotate(root, annotations, p, image, r); err != nil {
		return nil, err
	}
	if err := describe(spec, p, r); err != nil {
		return nil, err
	}
	spec["minKubeVersion"] = version.OldestKubernetes + ".0"
	if spec["relatedImages"], err = relatedImages(image, r.digests); err != nil {
		return nil, err
	}
	spec["install"] = map[string]any{"strategy": installation, "spec": map[string]any{
		"permissions":        permissions(p.inNamespace),
		"clusterPermissions": permissions(p.inCluster),
		"deployments": []deploymentSpec{
			{Name: p.deployment.Name, Label: p.deployment.Labels, Spec: p.deployment.Spec},
		},
	}}
	return base, nil
}

// nameOf returns the name of the ClusterServiceVersion of a release.
func nameOf(release string) string { return packageName + ".v" + release }

// describe adds what catalogues and consoles show of the release and of its kinds.
func describe(spec map[string]any, p *parts, r release) error {
	owned, err := own(spec, p)
	if err != nil {
		return err
	}
	spec["customresourcedefinitions"] = map[string]any{"owned": owned}
	spec["version"] = r.version
	spec["maturity"] = r.maturity()
	if r.replaces != "" {
		spec["replaces"] = nameOf(r.replaces)
	}
	spec["icon"] = []any{map[string]any{"base64data": config.Icon(), "mediatype": config.IconType}}
	text, _ := spec["description"].(string)
	if !strings.Contains(text, admissionPlaceholder) {
		return fmt.Errorf("spec.description in bases/ must contain %s", admissionPlaceholder)
	}
	spec["description"] = strings.ReplaceAll(text, admissionPlaceholder, version.AdmissionManifest(r.version))
	return nil
}

// annotate adds the annotations that catalogues and consoles read.
func annotate(root string, annotations map[string]any, p *parts, image string, r release) error {
	var samples []any
	for _, name := range []string{"clusterpolicy.yaml", "nvidiadriver.yaml"} {
		sample, err := readYAML(filepath.Join(root, "config/samples", name))
		if err != nil {
			return err
		}
		samples = append(samples, sample)
	}
	examples, err := indented(samples)
	if err != nil {
		return err
	}
	annotations["alm-examples"] = examples
	annotations["containerImage"] = image
	if r.created != "" {
		annotations["createdAt"] = r.created
	}
	if r.version != workingTree {
		// Also if replaces names none. The operator stores no state, so that an upgrade may skip any release.
		annotations["olm.skipRange"] = "<" + r.version
	}
	suggested := corev1.Namespace{TypeMeta: p.namespace.TypeMeta}
	suggested.Name, _ = annotations["operatorframework.io/suggested-namespace"].(string)
	suggested.Labels = p.namespace.Labels
	template, err := json.Marshal(map[string]any{
		"apiVersion": suggested.APIVersion, "kind": suggested.Kind,
		"metadata": map[string]any{"name": suggested.Name, "labels": suggested.Labels},
	})
	if err != nil {
		return fmt.Errorf("encoding the namespace: %w", err)
	}
	annotations["operatorframework.io/suggested-namespace-template"] = string(template)
	return nil
}

// own describes the kinds, with the texts of bases/.
func own(spec map[string]any, p *parts) ([]any, error) {
	words, _ := spec["customresourcedefinitions"].(map[string]any)
	list, _ := words["owned"].([]any)
	if len(list) != len(p.definitions) {
		return nil, fmt.Errorf("bases/ must have the texts for %d kinds, got %d", len(p.definitions), len(list))
	}
	for _, one := range list {
		owned, _ := one.(map[string]any)
		if err := ownKind(owned, p); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// ownKind completes the texts of a kind.
func ownKind(owned map[string]any, p *parts) (err error) {
	kind, _ := owned["kind"].(string)
	definition := p.definitions[kind]
	if len(definition.Spec.Versions) != 1 {
		return fmt.Errorf("the definition of kind %q, which bases/ has texts for, must have exactly one version", kind)
	}
	served := definition.Spec.Versions[0]
	owned["name"] = definition.Name
	owned["version"] = served.Name
	schema := *served.Schema.OpenAPIV3Schema
	owned["description"] = schema.Description
	if owned["specDescriptors"], err = specDescriptors(kind, schema); err != nil {
		return err
	}
	owned["statusDescriptors"], err = statusDescriptors(kind, schema)
	return err
}

// permissions returns the permissions, sorted by ServiceAccount.
func permissions(rules map[string][]rbacv1.PolicyRule) []permission {
	var all []permission
	for _, account := range slices.Sorted(maps.Keys(rules)) {
		all = append(all, permission{ServiceAccountName: account, Rules: rules[account]})
	}
	return all
}

// setImage replaces the operator's image wherever the Deployment names it, and returns the one that it names
// afterwards.
func setImage(deployment *appsv1.Deployment, wanted string) string {
	containers := deployment.Spec.Template.Spec.Containers
	named := containers[0].Image
	if wanted == "" {
		return named
	}
	for i := range containers {
		containers[i].Image = strings.ReplaceAll(containers[i].Image, named, wanted)
		for j := range containers[i].Env {
			containers[i].Env[j].Value = strings.ReplaceAll(containers[i].Env[j].Value, named, wanted)
		}
	}
	return wanted
}

func readYAML(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the texts of the bundle: %w", err)
	}
	content := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &content); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", path, err)
	}
	return content, nil
}

// indented returns a value as indented JSON.
func indented(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return "", fmt.Errorf("encoding the example: %w", err)
	}
	return text.String(), nil
}
