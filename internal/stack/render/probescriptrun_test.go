package render_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// TestProbeScriptRuns runs the script in pods of an older release, and in pods of NVIDIA's operator, which have no
// POD_UID.
func TestProbeScriptRuns(t *testing.T) {
	s := situation{
		nodes: []nodeinfo.Facts{node("ubuntu", "24.04")},
		live:  map[string]rollout.Live{"nvidia-driver-daemonset": {NeedsProbeScript: true}},
	}
	var script string
	for _, object := range s.objects(t)["driver"] {
		if configMap, is := object.(*corev1.ConfigMap); is {
			script = configMap.Data["startup-probe.sh"]
		}
	}
	dir := t.TempDir()
	loaded := filepath.Join(dir, "refcnt")
	for file, text := range map[string]string{loaded: "1", filepath.Join(dir, "nvidia-smi"): "#!/bin/sh\n"} {
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	here := strings.NewReplacer(
		"/sys/module/nvidia/refcnt", loaded, "/run/nvidia/validations", filepath.Join(dir, "validations"),
	).Replace(script)
	command := exec.CommandContext(t.Context(), "sh", "-c", here)
	command.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	text, err := os.ReadFile(filepath.Join(dir, "validations", ".driver-ctr-ready"))
	if err != nil || !strings.HasSuffix(string(text), "DRIVER_INSTANCE: \n") {
		t.Errorf("%q, %v", text, err)
	}
}
