package validate

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestToolkit(t *testing.T) {
	tests := map[string]struct {
		smi string // No file if empty.
		err string
	}{
		"succeeds with one GPU": {
			smi: "#!/bin/sh\n[ \"$1\" = -L ] && echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)'\necho '  MIG 1g.5gb Device 0: (UUID: MIG-1)'\n"},
		"fails where nothing was injected": {
			err: "put no nvidia-smi into this container; see the log of the container toolkit"},
		"fails where no GPU was injected": {
			smi: "#!/bin/sh\necho 'No devices found.'\n", err: "lists no GPU; check NVIDIA_VISIBLE_DEVICES"},
		"fails where nvidia-smi fails": {
			smi: "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n",
			err: "differ in version; reboot the node"},
		"fails where the image has no loader": {
			smi: "#!/no/such/loader\n", err: "use an image of the operator that has a C library"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			if tc.smi != "" {
				program(t, filepath.Join(dir, "nvidia-smi"), tc.smi)
			}
			t.Setenv("PATH", dir)
			_, err := Toolkit(t.Context())
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
		})
	}
}
