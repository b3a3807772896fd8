//go:build linux

package nvidia

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// configured is what a program finds that chooses the configuration.
type configured struct {
	// files are the keys of the ConfigMap; label is the node's, common the default, and earlier what the link names.
	files                  []string
	label, common, earlier string
	// once: it runs as the init container. reader: there is a process to signal, if it is not the init container.
	once, reader bool
}

// managed is what a program leaves: how it ended, if it did, and why, as the operator shows it; what its link names;
// and whether it has signalled the reader.
type managed struct {
	Code      int
	Why, Link string
	Signalled bool
}

// gpu-node configure does what config-manager does, apart from its faults: that one begins as on a node without the
// label, cannot replace a link to a file that is gone, and fails where nobody reads the configuration yet. Its init
// container never reads the label, and where that selects another configuration than the default one, a start of the
// sidecar changes the link back and forth.
func TestConfigManager(t *testing.T) {
	t.Parallel()
	ab := []string{"a", "b"}
	dangling := managed{Code: 1, Why: "error creating symlink: symlink a LINK: file exists", Link: "c"}
	tests := map[string]struct {
		configured
		nvidias managed
		// ours is what gpu-node configure leaves, if it differs.
		ours *managed
	}{
		"init, the label": {
			configured{files: ab, label: "b", common: "a", once: true}, managed{Link: "a"}, &managed{Link: "b"},
		},
		"init, the default": {configured{files: ab, common: "b", once: true}, managed{Link: "b"}, nil},
		"init, neither":     {configured{files: ab, once: true}, managed{Link: "/dev/null"}, nil},
		"init, no such label": {
			configured{files: ab, label: "c", once: true}, managed{Link: "/dev/null"}, &managed{Code: 1, Why: notThere("c")},
		},
		"init, linked before":  {configured{files: ab, common: "a", earlier: "a", once: true}, managed{Link: "a"}, nil},
		"init, another before": {configured{files: ab, common: "a", earlier: "b", once: true}, managed{Link: "a"}, nil},
		"init, dangling": {
			configured{files: ab, common: "a", earlier: "c", once: true}, dangling, &managed{Link: "a"},
		},
		"init, no keys": {configured{once: true}, managed{Code: 1, Why: "no configuration files available"}, nil},
		"init, no such default": {
			configured{files: ab, common: "c", once: true}, managed{Code: 1, Why: notThere("")},
			&managed{Code: 1, Why: notThere("c")},
		},
		"the label": {
			configured{files: ab, label: "b", common: "a", earlier: "a", reader: true}, managed{Link: "b", Signalled: true}, nil,
		},
		"the label, linked before": {
			configured{files: ab, label: "b", common: "a", earlier: "b", reader: true}, managed{Link: "b", Signalled: true},
			&managed{Link: "b"},
		},
		"no such label": {
			configured{files: ab, label: "c", common: "a", earlier: "a", reader: true},
			managed{Code: 1, Why: notThere("c"), Link: "a"}, nil,
		},
		"dangling": {
			configured{files: ab, label: "b", common: "a", earlier: "c", reader: true}, dangling,
			&managed{Link: "b", Signalled: true},
		},
		"nothing to signal": {
			configured{files: ab, label: "b", common: "a", earlier: "a"},
			managed{Code: 1, Why: "error finding pid: no process found", Link: "b"}, &managed{Link: "b"},
		},
	}
	for name, test := range tests {
		t.Run(name+", NVIDIA's", func(t *testing.T) {
			t.Parallel()
			newMachine(t, t4).manage(program{name: "config-manager"}, test.configured, test.nvidias)
		})
		t.Run(name+", gpu-node configure", func(t *testing.T) {
			t.Parallel()
			newMachine(t, t4).manage(program{name: "gpu-node", standIn: gpuNode}, test.configured,
				*cmp.Or(test.ours, &test.nvidias), "configure")
		})
	}
}

func notThere(config string) string { return fmt.Sprintf("specified config %s does not exist", config) }

// manage runs a program until it has ended, or has read its node and has left what is wanted.
func (m *machine) manage(of program, in configured, want managed, args ...string) {
	m.t.Helper()
	g := NewWithT(m.t)
	configs, place := mkdir(g, m.dir, "configs"), filepath.Join(m.dir, "config.yaml")
	for _, file := range in.files {
		m.write(filepath.Join("configs", file), "version: v1\n")
	}
	if in.earlier != "" {
		g.Expect(os.Symlink(filepath.Join(configs, in.earlier), place)).To(Succeed())
	}
	const name = "nvidia-device-plugin"
	reader := exec.CommandContext(m.t.Context(), "sleep", "600")
	g.Expect(reader.Start()).To(Succeed())
	defer func() { _, _ = reader.Process.Kill(), reader.Wait() }()
	if in.reader {
		mounts := fmt.Sprintf("proc/%d/mountinfo", reader.Process.Pid)
		m.write(mounts, readFile(m.t, "/"+mounts))
		m.write(fmt.Sprintf("proc/%d/cmdline", reader.Process.Pid), name+"\x00")
	}
	// As the kubelet does, take the message of the container, or else the end of its log.
	m.write("termination-log", "")
	message := filepath.Join(m.dir, "termination-log")
	if len(args) > 0 {
		args = append(args, "--termination-log="+message)
	}
	node := withConfig(in.label)
	// Not the signal of the manifests: the reader would ignore it where the tests run by nohup.
	p := m.command(m.t.Context(), append(m.api(node), "NODE_LABEL="+labels.DevicePluginConfig,
		fmt.Sprintf("ONESHOT=%t", in.once), fmt.Sprintf("SEND_SIGNAL=%t", !in.once), "SIGNAL=15", "PROCESS_TO_SIGNAL="+name,
		"CONFIG_FILE_SRCDIR="+configs, "CONFIG_FILE_DST="+place, "DEFAULT_CONFIG="+in.common, "FALLBACK_STRATEGIES=empty",
	), of, args...)
	g.Expect(p.Start()).To(Succeed())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Wait() }()
	defer func() { _ = p.Process.Kill(); <-ended }()
	if in.once || want.Code != 0 {
		g.Eventually(ended).WithTimeout(patience).Should(BeClosed(), p.log.String)
	} else {
		g.Eventually(node.watched).WithTimeout(patience).Should(Receive(), p.log.String)
	}
	g.Eventually(func(g Gomega) {
		var found managed
		if link, err := os.Readlink(place); !errors.Is(err, fs.ErrNotExist) {
			g.Expect(err).NotTo(HaveOccurred())
			found.Link = strings.TrimPrefix(link, configs+"/")
		}
		// A process that the signal has ended is not waited for yet, so that it can be signalled again.
		found.Signalled = strings.Contains(readFile(m.t, fmt.Sprintf("/proc/%d/stat", reader.Process.Pid)), ") Z ")
		select {
		case <-ended:
			got := result{Code: p.ProcessState.ExitCode(), Output: cmp.Or(readFile(m.t, message), p.log.String())}
			found.Code = got.Code
			if got.Code != 0 {
				found.Why = strings.NewReplacer(configs+"/", "", place, "LINK").Replace(got.why())
			}
		default:
		}
		g.Expect(found).To(Equal(want), p.log.String)
	}, patience, "20ms").Should(Succeed())
}
