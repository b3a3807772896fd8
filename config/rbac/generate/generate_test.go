package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAFolderGetsItsRights(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	for name, content := range map[string]string{
		"assets/toy/install.yaml":              "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: nvidia-toy\n",
		"config/rbac/operands/gone.yaml":       "kind: ServiceAccount\n",
		"config/openshift/kustomization.yaml":  "",
		"assets/without/0100_configmap.yaml":   "kind: ConfigMap\n",
		"config/rbac/operands/kustomized.yaml": "",
	} {
		path := filepath.Join(root, name)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o644)).To(Succeed())
	}
	g.Expect(run(root)).To(Succeed())

	entries, err := filepath.Glob(filepath.Join(root, operandsDir, "*"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(HaveLen(2), "files of operands that are gone are removed")
	g.Expect(os.ReadFile(filepath.Join(root, operandsDir, "toy.yaml"))).To(ContainSubstring("name: nvidia-toy"))
	g.Expect(os.ReadFile(filepath.Join(root, operandsDir, "kustomization.yaml"))).To(ContainSubstring("\n  - toy.yaml\n"))
	g.Expect(os.ReadFile(filepath.Join(root, viewerRole))).To(And(ContainSubstring("name: gpu-operator-viewer"),
		ContainSubstring("- services\n  verbs:\n  - list\n"), ContainSubstring("  resourceNames:\n  - driver-toolkit\n")))
	g.Expect(os.ReadFile(filepath.Join(root, openShiftBinding))).
		To(ContainSubstring("{kind: ServiceAccount, name: nvidia-toy, namespace: gpu-operator}"))
}

func TestADocumentThatIsNoYAMLIsRefused(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	path := filepath.Join(root, "assets/toy/install.yaml")
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte("kind: [\n"), 0o644)).To(Succeed())
	g.Expect(run(root)).To(MatchError(ContainSubstring("assets/toy/install.yaml")))
}

func TestWithoutAssetsNothingIsWritten(t *testing.T) {
	NewWithT(t).Expect(run(t.TempDir())).To(MatchError("no file assets/*/install.yaml"))
}
