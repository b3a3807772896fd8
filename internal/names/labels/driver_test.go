package labels_test

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

func TestDriverOf(t *testing.T) {
	for name, test := range map[string]struct{ full, major, minor, revision, want string }{
		"none":             {want: ""},
		"the whole":        {full: "580.178.04", major: "570", want: "580.178.04"},
		"parts":            {major: "580", minor: "178", revision: "04", want: "580.178.04"},
		"without revision": {major: "580", minor: "178", want: "580.178"},
		"without minor":    {major: "580", revision: "04", want: "580"},
		"without major":    {minor: "178", revision: "04", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := labels.DriverOf(map[string]string{
				labels.DriverVersion: test.full, labels.DriverMajor: test.major, labels.DriverMinor: test.minor,
				labels.DriverRevision: test.revision,
			}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
