package guides

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Lines that NCCL and its tests print.
const (
	direct  = "worker-0:1:1 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
	staged  = "worker-0:1:1 [0] NCCL INFO Channel 01/0 : 7[7] -> 8[0] [send] via NET/IB/1\n"
	sockets = "worker-0:1:1 [0] NCCL INFO Channel 02/0 : 7[7] -> 8[0] [send] via NET/Socket/0\n"
	results = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 371.5 \n"
)

// TestNCCLVerdict runs the script of the sample with a program in place of mpirun that prints a log.
func TestNCCLVerdict(t *testing.T) {
	t.Parallel()
	e := &env{WithT: NewWithT(t), t: t}
	script, _, err := unstructured.NestedString(e.sample("nccl-rdma.yaml")[0].Object, "data", "run.sh")
	e.Expect(err).NotTo(HaveOccurred())
	for name, test := range map[string]struct{ log, status, least, want string }{
		"fast enough":    {direct + results, "0", "300", "VERDICT PASS: 371.5 GB/s"},
		"just enough":    {direct + results, "0", "371.5", "VERDICT PASS: 371.5 GB/s"},
		"too slow":       {direct + results, "0", "400", "VERDICT FAIL: 371.5 GB/s, expected at least 400"},
		"failed":         {direct + results, "3", "300", "VERDICT FAIL: mpirun ended with 3"},
		"by TCP":         {direct + sockets + results, "0", "300", "VERDICT FAIL: NCCL used TCP"},
		"by no network":  {results, "0", "300", "VERDICT FAIL: NCCL used no network"},
		"through memory": {direct + staged + results, "0", "300", "VERDICT FAIL: a channel lacks GPUDirect RDMA"},
		"wrong results": {
			direct + "# Out of bounds values : 2 FAILED\n# Avg bus bandwidth : 371.5\n", "0", "300",
			"VERDICT FAIL: wrong results",
		},
		"no bandwidth": {direct + "# Out of bounds values : 0 OK\n", "0", "300", "VERDICT FAIL:  GB/s, expected"},
	} {
		t.Run(name, func(t *testing.T) {
			g, dir := NewWithT(t), t.TempDir()
			g.Expect(os.WriteFile(filepath.Join(dir, "mpirun"),
				[]byte("#!/bin/sh\nprintf %s \"$LOG\"\nexit $STATUS\n"), 0o700)).To(Succeed())
			cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+dir, "LOG="+test.log,
				"STATUS="+test.status, "LEAST_GBPS="+test.least)
			output, err := cmd.Output()
			g.Expect(string(output)).To(And(HavePrefix(test.log), ContainSubstring("\n"+test.want)))
			g.Expect(err == nil).To(Equal(test.want == "VERDICT PASS: 371.5 GB/s"), "%v", err)
		})
	}
}
