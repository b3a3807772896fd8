package dropin

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

// readRows returns the rows of a table. A field that a row does not have fails the test.
func readRows[Row any](t *testing.T, path string) []Row {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rows []Row
	if err := yaml.UnmarshalStrict(text, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}
