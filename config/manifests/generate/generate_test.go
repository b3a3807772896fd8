package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

// A stale bundle would not install what the repository has.
func TestTheBundleIsUpToDate(t *testing.T) {
	g := NewWithT(t)
	want, err := generate(root, release{version: workingTree})
	g.Expect(err).NotTo(HaveOccurred())
	bundle := filepath.Join(root, "bundle")
	err = filepath.WalkDir(bundle, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(bundle, path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(want).To(HaveKey(name), "not a generated file: run make bundle")
		got, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cmp.Diff(string(want[name]), string(got))).To(BeEmpty(), "%s: run make bundle", name)
		delete(want, name)
		return nil
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(want).To(BeEmpty(), "run make bundle")
}

// A release only differs from the working tree in what its flags set.
func TestAReleaseNamesItsImageEverywhere(t *testing.T) {
	const image = "registry.local:5000/gpu-operator@sha256:abc"
	g := NewWithT(t)
	files, err := generate(root,
		release{version: "1.2.3", image: image, created: "2026-01-02T03:04:05Z", replaces: "1.1.4"})
	g.Expect(err).NotTo(HaveOccurred())
	before, err := generate(root, release{version: workingTree})
	g.Expect(err).NotTo(HaveOccurred())
	const csv = "manifests/gpu-operator.clusterserviceversion.yaml"
	text := string(files[csv])
	g.Expect(strings.Count(text, image)).To(Equal(4), "annotation, container, variable, relatedImages")
	g.Expect(text).NotTo(ContainSubstring("IMAGE-NOT-SET"))
	g.Expect(string(before[csv])).To(ContainSubstring("IMAGE-NOT-SET"))
	for _, line := range []string{
		"name: gpu-operator.v1.2.3\n", "version: 1.2.3\n", "olm.skipRange: <1.2.3\n", "createdAt: \"2026-01-02T03:04:05Z\"\n",
		"replaces: gpu-operator.v1.1.4\n", "maturity: stable\n",
		"kubectl apply -f https://raw.githubusercontent.com/clusterpolicy/gpu-operator/v1.2.3/bundle/admission.yaml\n",
	} {
		g.Expect(text).To(ContainSubstring(line))
	}
	g.Expect(text).NotTo(ContainSubstring(admissionPlaceholder))
	for name := range files {
		if slices.Contains([]string{csv, "metadata/annotations.yaml", "bundle.Dockerfile"}, name) {
			continue
		}
		g.Expect(string(files[name])).To(Equal(string(before[name])), name)
		delete(before, name)
	}
	g.Expect(before).To(HaveLen(3))
}

// The channels of NVIDIA's catalogue have these names. One of a release before the first of a version would update
// clusters to it.
func TestChannels(t *testing.T) {
	tests := map[string]struct{ channels, fallback, maturity string }{
		"1.2.3":      {"stable,v1.2", "v1.2", "stable"},
		"0.10.0":     {"stable,v0.10", "v0.10", "stable"},
		"1.2.3-rc.1": {"alpha", "alpha", "alpha"},
		workingTree:  {"alpha", "alpha", "alpha"},
	}
	for version, test := range tests {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			r := release{version: version}
			for _, text := range []string{string(annotations(r)), strings.ReplaceAll(string(dockerfile(r)), "=", ": ")} {
				g.Expect(text).To(ContainSubstring("bundle.channels.v1: " + test.channels + "\n"))
				g.Expect(text).To(ContainSubstring("bundle.channel.default.v1: " + test.fallback + "\n"))
			}
			g.Expect(r.maturity()).To(Equal(test.maturity))
		})
	}
}

func TestReplacedReleasesAreOlder(t *testing.T) {
	g := NewWithT(t)
	for replaces, err := range map[string]string{
		"1.2.3": "-replaces 1.2.3 must be older than -version 1.2.3", "1.10.0": "must be older", "v1.2.2": "is not a semantic version",
	} {
		g.Expect(run(root, t.TempDir(), release{version: "1.2.3", replaces: replaces})).To(MatchError(ContainSubstring(err)))
	}
}

func TestDisplayNames(t *testing.T) {
	g := NewWithT(t)
	for name, want := range map[string]string{
		"DCGMExporter": "DCGM exporter", "UseOCPDriverToolkit": "Use OCP driver toolkit", "RootFS": "Root FS", "GDRCopy": "GDRCopy",
		"DaemonSets": "DaemonSets", "ConfigMapName": "ConfigMap name", "HTTPSProxy": "HTTPS proxy", "Enabled": "Enabled",
		"VGPUDeviceManager": "vGPU device manager", "UseNvidiaDriverCRD": "Use NVIDIA driver CRD", "MIG": "MIG",
	} {
		g.Expect(displayName(name)).To(Equal(want))
	}
}

// Each kind of field gets the widget that edits it.
func TestWidgets(t *testing.T) {
	g := NewWithT(t)
	p, err := read(filepath.Join(root, "config/manifests"))
	g.Expect(err).NotTo(HaveOccurred())
	schema := *p.definitions["ClusterPolicy"].Spec.Versions[0].Schema.OpenAPIV3Schema
	spec, err := specDescriptors("ClusterPolicy", schema)
	g.Expect(err).NotTo(HaveOccurred())
	status, err := statusDescriptors("ClusterPolicy", schema)
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string][]string{}
	for _, d := range spec {
		found["spec."+d.Path] = d.XDescriptors
	}
	for _, d := range status {
		found["status."+d.Path] = d.XDescriptors
	}
	const ui = "urn:alm:descriptor:com.tectonic.ui:"
	for path, want := range map[string][]string{
		"spec.driver":                                  nil,
		"spec.driver.enabled":                          {ui + "booleanSwitch", ui + "fieldGroup:driver"},
		"spec.driver.version":                          {ui + "text", ui + "fieldGroup:driver"},
		"spec.driver.imagePullPolicy":                  {ui + "imagePullPolicy", ui + "fieldGroup:driver"},
		"spec.driver.resources":                        {ui + "resourceRequirements", ui + "fieldGroup:driver"},
		"spec.driver.rdma":                             {ui + "fieldGroup:driver"},
		"spec.driver.rdma.enabled":                     {ui + "booleanSwitch", ui + "fieldGroup:driver"},
		"spec.daemonsets.rollingUpdate.maxUnavailable": {ui + "text", ui + "fieldGroup:daemonsets"},
		"spec.mig.strategy": {
			ui + "select:none", ui + "select:single", ui + "select:mixed", ui + "fieldGroup:mig",
		},
		"spec.paused":              {ui + "booleanSwitch"},
		"spec.psp":                 {ui + "hidden"},
		"spec.cdi.default":         {ui + "hidden"},
		"status.state":             {"urn:alm:descriptor:io.kubernetes.phase"},
		"status.conditions":        {"urn:alm:descriptor:io.kubernetes.conditions"},
		"status.nodeSummary.ready": {"urn:alm:descriptor:text"},
	} {
		g.Expect(found).To(HaveKey(path))
		g.Expect(found[path]).To(ConsistOf(want), path)
	}
	for _, path := range []string{
		"spec.driver.tolerations", "spec.psp.enabled", "spec.daemonsets.podSecurityContext.fsGroup", "status.nodes",
	} {
		g.Expect(found).NotTo(HaveKey(path))
	}
	delete(schema.Properties["spec"].Properties["driver"].Properties, "enabled")
	_, err = specDescriptors("ClusterPolicy", schema)
	g.Expect(err).To(MatchError(ContainSubstring("does not have the field enabled of v1.DriverSpec")))
}

func TestInvalidVersionsAreRefused(t *testing.T) {
	for _, version := range []string{"", "1.2", "v1.2.3", "c28775f", "latest"} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			out := t.TempDir()
			g.Expect(run(root, out, release{version: version})).
				To(MatchError(ContainSubstring("is not a semantic version")))
			g.Expect(os.ReadDir(out)).To(BeEmpty())
		})
	}
}

// The catalogue leads from the package to the bundle's image, and offers the release to any older one.
func TestTheCatalogueHasTheRelease(t *testing.T) {
	const image, bundle = "registry.local/gpu-operator@sha256:abc", "registry.local/gpu-operator-bundle@sha256:def"
	g := NewWithT(t)
	r := release{version: "1.2.3", image: image, bundleImage: bundle}
	files, err := generate(root, r)
	g.Expect(err).NotTo(HaveOccurred())
	blobs, channels := map[any]map[string]any{}, []any{}
	for document := range strings.SplitSeq(string(files[catalogFile]), "---\n") {
		blob := map[string]any{}
		g.Expect(yaml.Unmarshal([]byte(document), &blob)).To(Succeed())
		blobs[blob["schema"]] = blob
		if blob["schema"] == "olm.channel" {
			channels = append(channels, blob["name"])
		}
	}
	g.Expect(blobs["olm.package"]).To(And(HaveKeyWithValue("name", "gpu-operator"),
		HaveKeyWithValue("defaultChannel", "v1.2")))
	g.Expect(channels).To(ConsistOf("stable", "v1.2"))
	g.Expect(blobs["olm.channel"]).To(And(HaveKeyWithValue("package", "gpu-operator"),
		HaveKeyWithValue("entries", ConsistOf(map[string]any{"name": "gpu-operator.v1.2.3", "skipRange": "<1.2.3"}))))
	found := blobs["olm.bundle"]
	g.Expect(found).To(And(HaveKeyWithValue("package", "gpu-operator"), HaveKeyWithValue("name", "gpu-operator.v1.2.3"),
		HaveKeyWithValue("image", bundle),
		HaveKeyWithValue("relatedImages", ContainElements(
			map[string]any{"name": "gpu-operator", "image": image}, map[string]any{"name": "", "image": bundle}))))
	g.Expect(found["properties"]).To(ConsistOf(
		map[string]any{"type": "olm.package", "value": map[string]any{"packageName": "gpu-operator", "version": "1.2.3"}},
		map[string]any{"type": "olm.gvk", "value": map[string]any{
			"group": "nvidia.com", "kind": "ClusterPolicy", "version": "v1",
		}},
		map[string]any{"type": "olm.gvk", "value": map[string]any{
			"group": "nvidia.com", "kind": "NVIDIADriver", "version": "v1alpha1",
		}},
		And(HaveKeyWithValue("type", "olm.csv.metadata"), HaveKeyWithValue("value", And(
			HaveKeyWithValue("displayName", "GPU operator"), HaveKeyWithValue("minKubeVersion", "1.32.0"),
			HaveKey("crdDescriptions"), HaveKeyWithValue("annotations", HaveKeyWithValue("containerImage", image))))),
	))

	files, err = generate(root, release{version: workingTree})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(HaveKey(catalogFile), "the bundle of a working tree is in no registry")
}

func TestAReleaseNeedsAnImage(t *testing.T) {
	g := NewWithT(t)
	out := t.TempDir()
	g.Expect(run(root, out, release{version: "1.2.3"})).To(MatchError(ContainSubstring("-image is not set")))
	g.Expect(os.ReadDir(out)).To(BeEmpty())
}

// An object that the bundle cannot carry is an error, never silently omitted.
func TestUnsupportedObjectsAreRefused(t *testing.T) {
	const complete = `
{apiVersion: v1, kind: Namespace, metadata: {name: gpu-operator}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: gpu-operator, namespace: gpu-operator}, spec: {selector: {}, template: {metadata: {}, spec: {containers: []}}}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.com}, spec: {group: example.com, scope: Cluster, names: {kind: Thing, plural: things}, versions: []}}
`
	tests := map[string]struct{ objects, err string }{
		"all objects are supported": {objects: ""},
		"an unknown kind": {
			objects: `{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota, namespace: gpu-operator}}`,
			err:     "ResourceQuota quota: OLM does not support this kind",
		},
		"an account without rights": {
			objects: `{apiVersion: v1, kind: ServiceAccount, metadata: {name: idle, namespace: gpu-operator}}`,
			err:     "ServiceAccount idle has no permission",
		},
		"a role of others": {
			objects: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: binding}, ` +
				`roleRef: {kind: ClusterRole, name: view, apiGroup: rbac.authorization.k8s.io}}`,
			err: "ClusterRoleBinding binding binds ClusterRole/view, which is not in the kustomization",
		},
		"a group": {
			objects: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: role}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: binding}, roleRef: {kind: ClusterRole, name: role, apiGroup: rbac.authorization.k8s.io}, subjects: [{kind: Group, name: admins, apiGroup: rbac.authorization.k8s.io}]}`,
			err: "subject Group admins is not a ServiceAccount in namespace gpu-operator",
		},
		"an account of another namespace for the whole cluster": {
			objects: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: role}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: binding}, roleRef: {kind: ClusterRole, name: role, apiGroup: rbac.authorization.k8s.io}, subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]}`,
			err: "subject ServiceAccount prometheus is not a ServiceAccount in namespace gpu-operator",
		},
		"accounts of two namespaces": {
			objects: `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: role, namespace: gpu-operator}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: binding, namespace: gpu-operator}, roleRef: {kind: Role, name: role, apiGroup: rbac.authorization.k8s.io}, subjects: [{kind: ServiceAccount, name: own, namespace: gpu-operator}, {kind: ServiceAccount, name: prometheus, namespace: monitoring}]}`,
			err: "subject ServiceAccount prometheus is not a ServiceAccount in namespace gpu-operator",
		},
		"an unknown field": {
			objects: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: role}, rule: []}`,
			err:     `decoding ClusterRole role: strict decoding error: unknown field "rule"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			g.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: [objects.yaml]"),
				0o600)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(complete+"---\n"+test.objects),
				0o600)).To(Succeed())
			_, err := read(dir)
			if test.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.err)))
		})
	}
}
