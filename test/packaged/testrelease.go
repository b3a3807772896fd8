package packaged

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// The release whose chart RunWithRelease generates.
const (
	ReleaseVersion = "1.2.3"
	ReleaseImage   = "registry.example.com/gpu/gpu-operator@" +
		"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// RunWithRelease runs tests with the chart of a release, as users get it, and returns their exit code. It sets chart to
// its folder, which exists until the tests end.
func RunWithRelease(repo string, chart *string, tests interface{ Run() int }) int {
	dir, err := os.MkdirTemp("", "gpu-operator-chart-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	*chart = filepath.Join(dir, "gpu-operator")
	if err := ReleaseChart(context.Background(), repo, *chart, ReleaseVersion, ReleaseImage); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests.Run()
}
