package olm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"github.com/operator-framework/api/pkg/validation/errors"
	validator "github.com/operator-framework/api/pkg/validation/interfaces"
)

const root = "../.."

// suites are all validators of the library but one: OperatorHubValidator is deprecated, its checks are in three others.
func suites() map[string]validator.Validator {
	return map[string]validator.Validator{
		"package manifest":      validation.PackageManifestValidator,
		"ClusterServiceVersion": validation.ClusterServiceVersionValidator,
		"definitions":           validation.CustomResourceDefinitionValidator,
		"bundle":                validation.BundleValidator,
		"operatorhub v2":        validation.OperatorHubV2Validator,
		"capabilities":          validation.StandardCapabilitiesValidator,
		"categories":            validation.StandardCategoriesValidator,
		"objects":               validation.ObjectValidator,
		"operator group":        validation.OperatorGroupValidator,
		"community":             validation.CommunityOperatorValidator,
		"removed APIs":          validation.AlphaDeprecatedAPIsValidator,
		"good practices":        validation.GoodPracticesValidator,
		"architectures":         validation.MultipleArchitecturesValidator,
	}
}

// finding is what a suite says of a bundle.
type finding struct {
	suite, text string
	isError     bool
}

// String returns the finding as a failed test prints it.
func (f finding) String() string {
	return fmt.Sprintf("%s: %s (an error: %t)", f.suite, f.text, f.isError)
}

// playRegistry puts a program in place of docker, by which the suite of architectures asks registries. It answers that
// every image has the platforms that a release is built for. So the suite compares the bundle with those, and the test
// needs no network. Whether the registry of an operand has both platforms is not checked.
func playRegistry(t *testing.T) {
	t.Helper()
	const docker = `#!/bin/sh
[ "$1" = pull ] && exit 0
echo '{"manifests": [{"platform": {"architecture": "amd64", "os": "linux"}},
  {"platform": {"architecture": "arm64", "os": "linux"}}]}'
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(docker), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

// image copies what the image of a bundle contains: the files that its Dockerfile copies.
func image(t *testing.T, bundle string) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"manifests", "metadata", "tests"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(bundle, part))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// validate returns what suites find in a bundle for the newest Kubernetes that it is released for. dockerfile is the
// bundle's own.
func validate(t *testing.T, bundle, dockerfile string, suites map[string]validator.Validator) []finding {
	t.Helper()
	loaded, err := manifests.GetBundleFromDir(bundle)
	if loaded == nil || loaded.CSV == nil {
		return []finding{{"loader", fmt.Sprint(err), true}}
	}
	var all []finding
	if err != nil {
		all = append(all, finding{"loader", err.Error(), true})
	}
	objects := append(loaded.ObjectsToValidate(), map[string]string{
		"k8s-version": "1.37", "index-path": dockerfile,
	})
	for name, suite := range suites {
		for _, result := range suite.Validate(objects...) {
			all = append(all, findings(name, result)...)
		}
	}
	return all
}

func findings(suite string, result errors.ManifestResult) []finding {
	var all []finding
	for _, found := range result.Errors {
		all = append(all, finding{suite, found.Error(), true})
	}
	for _, found := range result.Warnings {
		all = append(all, finding{suite, found.Error(), false})
	}
	return all
}

// unexplained returns the findings that are errors or have no row in the table, and the rows that explain nothing.
func unexplained(all []finding, rows []explanation) (findings []finding, stale []explanation) {
	used := map[int]bool{}
	for _, found := range all {
		row := -1
		for i, explained := range rows {
			if !found.isError && found.suite == explained.suite && strings.Contains(found.text, explained.warning) {
				row = i
			}
		}
		if row < 0 {
			findings = append(findings, found)
		}
		used[row] = true
	}
	for i, explained := range rows {
		if !used[i] {
			stale = append(stale, explained)
		}
	}
	return findings, stale
}
