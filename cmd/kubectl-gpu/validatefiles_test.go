package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// policyFolder writes files into a folder, and returns its path.
func policyFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	g, root := NewWithT(t), t.TempDir()
	for name, text := range files {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(root, name), []byte(text), 0o600)).To(Succeed())
	}
	return root
}

const (
	validPolicy = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: good}\n" +
		"spec:\n  operator:\n    defaultRuntime: docker\n"
	wrongPolicy = "# The policy.\r\n---\r\napiVersion: v1\r\nkind: ConfigMap\r\nmetadata: {name: c}\r\n---\r\n" +
		"apiVersion: nvidia.com/v1\r\nkind: ClusterPolicy\r\nmetadata: {name: bad}\r\nspec:\r\n  mig:\r\n" +
		"    strategy: double\r\n  driver:\r\n    versions: a\r\n"
	configMapFile = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, labels: {nvidia.com/team: a}}\ndata: {a: 5}\n"
)

// mixedFolder has a valid policy with a note, a wrong one with two errors, a list, and files that are skipped.
func mixedFolder(t *testing.T) string {
	t.Helper()
	return policyFolder(t, map[string]string{
		"a/policy.yaml": validPolicy, "b.yml": wrongPolicy, "c/configmap.yaml": configMapFile,
		"c/chart.yaml": "{{ if .Values }}a{{ end }}: [", "notes.txt": "nvidia.com/v1: [",
		"z.json": `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "nvidia.com/v1alpha1",
			"kind": "NVIDIADriver", "metadata": {"name": "d"}, "spec": {"driverType": "other"}}]}`,
	})
}

func TestValidateFolder(t *testing.T) {
	g, root := NewWithT(t), mixedFolder(t)
	got := kubectlGPU("", "validate", "-f", root)
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).To(Equal("kubectl gpu: 2 of 3 objects would be refused\n"))
	lines := strings.Split(strings.ReplaceAll(got.out, root+"/", ""), "\n")
	g.Expect(lines).To(HaveExactElements(
		HavePrefix("a/policy.yaml:6: ClusterPolicy good: note: spec.operator.defaultRuntime: remove it"),
		HavePrefix("b.yml:12: ClusterPolicy bad: spec.mig.strategy: Unsupported value: \"double\""),
		"b.yml:14: ClusterPolicy bad: spec.driver.versions: unknown field: remove it, or correct its name",
		"b.yml:7: ClusterPolicy bad: note: rules about several fields were not checked: correct the errors, and check again",
		HavePrefix("z.json: NVIDIADriver d: spec.driverType: Unsupported value"),
		HavePrefix("z.json: NVIDIADriver d: note: rules about several fields"),
		"2 files without such an object skipped.", "",
	))
	g.Expect(os.Remove(filepath.Join(root, "z.json"))).To(Succeed())
	g.Expect(os.Remove(filepath.Join(root, "b.yml"))).To(Succeed())
	got = kubectlGPU("", "validate", "-f", root)
	g.Expect(got.code).To(BeZero(), got.errOut)
	g.Expect(got.out).To(HaveSuffix("\n1 of 1 objects are valid.\n2 files without such an object skipped.\n"))
	got = kubectlGPU("", "validate", "-f", filepath.Join(root, "c"))
	g.Expect(got).To(Equal(output{
		code: 1, out: "2 files without such an object skipped.\n",
		errOut: "kubectl gpu: found no ClusterPolicy and no NVIDIADriver: check the kinds in the file\n",
	}))
}

// A file that cannot be read does not stop the others.
func TestValidateUnreadableFiles(t *testing.T) {
	g := NewWithT(t)
	root := policyFolder(t, map[string]string{
		"a.yaml": "apiVersion: nvidia.com/v1\nkind: [\n", "b.yaml": wrongPolicy, "c.yaml": "apiVersion: nvidia.com/v1\n" +
			"kind: ClusterPolicyList\nitems: []\nitems: []\n",
	})
	g.Expect(os.Symlink("nowhere", filepath.Join(root, "d.yaml"))).To(Succeed())
	got := kubectlGPU("", "validate", "-f", root)
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.out).To(ContainSubstring("b.yaml:12: ClusterPolicy bad: "))
	g.Expect(strings.Split(strings.ReplaceAll(got.errOut, root+"/", ""), "\n")).To(HaveExactElements(
		HavePrefix("kubectl gpu: reading a.yaml: document 1: "), "reading c.yaml: yaml: unmarshal errors:",
		"  line 4: key \"items\" already set in map", HavePrefix("reading d.yaml: open d.yaml: no such file"),
		"1 of 1 objects would be refused", "",
	))
	got = kubectlGPU("", "validate", "-f", filepath.Join(root, "a.yaml"), "-o", "json")
	found := results{}
	g.Expect(json.Unmarshal([]byte(got.out), &found)).To(Succeed())
	g.Expect(found.Results).To(HaveExactElements(And(HaveField("Severity", severityError), HaveField("Kind", ""),
		HaveField("File", filepath.Join(root, "a.yaml")), HaveField("Message", HavePrefix("document 1: ")))))
	none := root + "/none"
	g.Expect(kubectlGPU("", "validate", "-f", none).errOut).To(HavePrefix("kubectl gpu: reading " + none + ": stat "))
	g.Expect(kubectlGPU("", "validate", "-f", root, "-o", "xml").errOut).To(HavePrefix(
		"kubectl gpu: --output xml: give one of [text json junit]\n"))
}

func TestValidateAsJSON(t *testing.T) {
	g, found := NewWithT(t), results{}
	got := kubectlGPU(validPolicy+"---\n"+strings.ReplaceAll(wrongPolicy, "\r", ""), "validate", "-f", "-", "-o", "json")
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).To(Equal("kubectl gpu: 1 of 2 objects would be refused\n"))
	g.Expect(json.Unmarshal([]byte(got.out), &found)).To(Succeed())
	g.Expect(found.Results).To(HaveLen(5))
	g.Expect(found.Results[0]).To(And(HaveField("Severity", severityNote), HaveField("Line", 6),
		HaveField("Field", "spec.operator.defaultRuntime"), HaveField("Message", HavePrefix("remove it, "))))
	g.Expect(found.Results[1]).To(Equal(result{
		File: "-", Line: 1, Kind: "ClusterPolicy", Name: "good", Severity: severityValid, Message: "would be accepted",
	}))
	g.Expect(found.Results[3]).To(Equal(result{
		File: "-", Line: 21, Kind: "ClusterPolicy", Name: "bad", Field: "spec.driver.versions", Severity: severityError,
		Message: "unknown field: remove it, or correct its name",
	}))
	found.Results = nil
	g.Expect(found).To(Equal(results{Objects: 2, Refused: 1}))
	got = kubectlGPU(configMapFile, "validate", "-f", "-", "-o", "json")
	g.Expect(got.out).To(ContainSubstring(`"refused": 1`), "of one file, objects that a policy names count")
	g.Expect(kubectlGPU("a: 1", "validate", "-f", "-", "-o", "json").out).To(ContainSubstring(`"results": []`))
}

// The XML has a suite for each file, and a case for each result, of which errors have failed.
func TestValidateAsJUnit(t *testing.T) {
	g, root, found := NewWithT(t), mixedFolder(t), junitSuites{}
	got := kubectlGPU("", "validate", "-f", root, "-o", "junit")
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.out).To(HavePrefix(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
		`<testsuites name="kubectl gpu validate" tests="7" failures="3">`))
	g.Expect(xml.Unmarshal([]byte(got.out), &found)).To(Succeed())
	g.Expect(found.Suites).To(HaveLen(3))
	file := filepath.Join(root, "b.yml")
	g.Expect(found.Suites[1]).To(And(HaveField("Name", file), HaveField("Tests", 3), HaveField("Failures", 2),
		HaveField("Errors", 0), HaveField("Cases", HaveLen(3))))
	g.Expect(found.Suites[1].Cases[1]).To(Equal(junitCase{
		Name: "ClusterPolicy bad spec.driver.versions", Class: file, File: file, Line: 14, Failure: &junitFailure{
			Message: "unknown field: remove it, or correct its name", Type: "error",
			Text: file + ":14: ClusterPolicy bad: spec.driver.versions: unknown field: remove it, or correct its name",
		},
	}))
	g.Expect(found.Suites[1].Cases[2]).To(And(HaveField("Name", "ClusterPolicy bad"), HaveField("Failure", BeNil()),
		HaveField("Output", HavePrefix(file+":7: ClusterPolicy bad: note: rules"))))
	g.Expect(found.Suites[0].Cases[1]).To(Equal(junitCase{
		Name: "ClusterPolicy good", Class: filepath.Join(root, "a/policy.yaml"), File: filepath.Join(root, "a/policy.yaml"),
		Line: 1,
	}))
	g.Expect(found.Suites[2].Cases[0].Line).To(BeZero(), "in a list")
	broken := kubectlGPU("a: [", "validate", "-f", "-", "-o", "junit")
	g.Expect(broken.out).To(ContainSubstring(`<testcase name="-" classname="-" file="-">`))
	g.Expect(broken.out).To(ContainSubstring(`-: document 1: `))
}
