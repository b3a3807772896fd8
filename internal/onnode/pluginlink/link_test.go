package pluginlink_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pluginlink"
)

const (
	label    = "nvidia.com/device-plugin.config"
	name     = "the-device-plugin"
	patience = "10s"
	// reader makes the test binary a program that prints each SIGHUP and SIGUSR1.
	reader = "PLUGINLINK_TEST_READER"
)

func TestMain(m *testing.M) {
	if os.Getenv(reader) != "" {
		signals := make(chan os.Signal, 10)
		signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1)
		fmt.Println("started")
		for received := range signals {
			fmt.Println(received)
		}
	}
	os.Exit(m.Run())
}

// pod is a pod on the node, and its API server.
type pod struct {
	*pluginlink.Link
	server *nodeapitest.Server
}

// newPod returns a pod on a node with the label, empty for none, and configurations of these names.
func newPod(t *testing.T, labelled string, configurations ...string) pod {
	t.Helper()
	g, dir := NewWithT(t), t.TempDir()
	server := nodeapitest.Start(t, "node-a")
	for _, variable := range server.Env {
		key, value, _ := strings.Cut(variable, "=")
		t.Setenv(key, value)
	}
	client, err := nodeapi.InCluster(server.ServiceAccountDir)
	g.Expect(err).NotTo(HaveOccurred())
	p := pod{server: server, Link: &pluginlink.Link{
		Node: "node-a", Label: label, API: client, Dir: filepath.Join(dir, "configs"),
		File: filepath.Join(dir, "chosen", "config.yaml"), Signal: syscall.SIGHUP, ProcRoot: t.TempDir(),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	// Of the processes of this machine a fault finds only those of the test.
	g.Expect(os.Symlink("/proc/self", filepath.Join(p.ProcRoot, "self"))).To(Succeed())
	// As the kubelet mounts a ConfigMap.
	g.Expect(os.MkdirAll(filepath.Join(p.Dir, "..data"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(p.Dir, "..stray"), nil, 0o600)).To(Succeed())
	g.Expect(os.MkdirAll(filepath.Dir(p.File), 0o700)).To(Succeed())
	for _, configuration := range configurations {
		g.Expect(os.WriteFile(filepath.Join(p.Dir, "..data", configuration), nil, 0o600)).To(Succeed())
		g.Expect(os.Symlink(filepath.Join("..data", configuration), filepath.Join(p.Dir, configuration))).To(Succeed())
	}
	p.label(labelled)
	return p
}

// label labels the node; empty removes the label.
func (p pod) label(value string) {
	p.server.Write(func(labels, _ map[string]string) {
		labels[label] = value
		if value == "" {
			delete(labels, label)
		}
	})
}

// link links a configuration, as before a restart.
func (p pod) link(t *testing.T, configuration string) {
	t.Helper()
	if configuration != "" {
		NewWithT(t).Expect(os.Symlink(filepath.Join(p.Dir, configuration), p.File)).To(Succeed())
	}
}

// linked returns the name of the configuration that is linked, empty for none.
func (p pod) linked() string {
	to, err := os.Readlink(p.File)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return strings.TrimPrefix(to, p.Dir+"/")
}

// beside are the other files in the directory of the link.
func (p pod) beside(g Gomega) []string {
	entries, err := os.ReadDir(filepath.Dir(p.File))
	g.Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, entry := range entries {
		if entry.Name() != filepath.Base(p.File) {
			names = append(names, entry.Name())
		}
	}
	return names
}

func TestOnce(t *testing.T) {
	ab := []string{"a", "b"}
	tests := map[string]struct {
		keys                     []string
		label, fallback, earlier string
		unreachable              bool
		want, err                string
	}{
		"the label":            {keys: ab, label: "b", fallback: "a", want: "b"},
		"the default":          {keys: ab, fallback: "a", want: "a"},
		"neither":              {keys: ab, want: "/dev/null"},
		"no such label":        {keys: ab, label: "c", fallback: "a", err: "specified config c does not exist"},
		"no such default":      {keys: ab, fallback: "c", err: "specified config c does not exist"},
		"a file of the volume": {keys: ab, label: "..stray", err: "specified config ..stray does not exist"},
		"a directory":          {keys: ab, label: "..data", err: "specified config ..data does not exist"},
		"no configurations":    {err: "no configuration files available"},
		"linked before":        {keys: ab, label: "b", earlier: "b", want: "b"},
		"another one before":   {keys: ab, label: "b", earlier: "a", want: "b"},
		"one that is gone":     {keys: ab, label: "b", earlier: "c", want: "b"},
		"no such one, another before": {
			keys: ab, label: "c", earlier: "a", want: "a", err: "specified config c does not exist",
		},
		"unreachable, linked before": {keys: ab, label: "b", fallback: "a", earlier: "b", unreachable: true, want: "b"},
		"unreachable, another one before": {
			keys: ab, label: "b", fallback: "b", earlier: "a", unreachable: true, want: "a",
		},
		"unreachable, one that is gone": {
			keys: ab, label: "b", fallback: "a", earlier: "c", unreachable: true, want: "c",
			err: "the configuration of the node is not known: the API server answers",
		},
		"unreachable, none before": {
			keys: ab, label: "b", fallback: "a", unreachable: true,
			err: "the configuration of the node is not known: the API server answers",
		},
	}
	for testName, test := range tests {
		t.Run(testName, func(t *testing.T) {
			g := NewWithT(t)
			p := newPod(t, test.label, test.keys...)
			p.Default = test.fallback
			p.link(t, test.earlier)
			if test.unreachable {
				p.server.Refuse(http.StatusServiceUnavailable, "starting")
			}
			err := p.Once(t.Context())
			if test.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
			}
			g.Expect(p.linked()).To(Equal(test.want))
			g.Expect(p.beside(g)).To(BeEmpty())
		})
	}
}

// A new pod may start while the API server does not answer.
func TestOnceAwaitsTheNode(t *testing.T) {
	g := NewWithT(t)
	p := newPod(t, "b", "a", "b")
	p.Default, p.Patience = "a", time.Minute
	p.server.Refuse(http.StatusServiceUnavailable, "starting")
	p.server.Before(func(string) {
		if p.server.Gets() == 1 {
			p.server.Refuse(0, "")
		}
		g.Expect(p.linked()).To(BeEmpty())
	})
	g.Expect(p.Once(t.Context())).To(Succeed())
	g.Expect(p.linked()).To(Equal("b"))

	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("terminated signal received"))
	g.Expect(p.Once(ended)).To(MatchError("the configuration of the node is not known: terminated signal received"))
}

// program is a process that reads the configuration.
type program struct {
	*exec.Cmd
	signals, asked atomic.Int64
}

// allSignals returns how often the program was signalled, once it has got all that were sent: the kernel and Go deliver
// SIGHUP before SIGUSR1.
func (p *program) allSignals(g Gomega) int64 {
	asked := p.asked.Load()
	g.Expect(p.Process.Signal(syscall.SIGUSR1)).To(Succeed())
	g.Eventually(p.asked.Load, patience, "10ms").Should(BeNumerically(">", asked))
	return p.signals.Load()
}

// start starts a program by that name, which the pod sees.
func (p pod) start(t *testing.T, argv0 string) *program {
	t.Helper()
	g := NewWithT(t)
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	started := &program{Cmd: exec.Command(self)}
	started.Args, started.Env = []string{argv0}, append(os.Environ(), reader+"=1")
	output, err := started.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(started.Start()).To(Succeed())
	process := fmt.Sprint(started.Process.Pid)
	g.Expect(os.Symlink(filepath.Join("/proc", process), filepath.Join(p.ProcRoot, process))).To(Succeed())
	lines := bufio.NewScanner(output)
	g.Expect(lines.Scan()).To(BeTrue())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			if lines.Text() == syscall.SIGHUP.String() {
				started.signals.Add(1)
			} else {
				started.asked.Add(1)
			}
		}
	}()
	t.Cleanup(func() {
		_ = started.Process.Kill()
		<-read
		_ = started.Wait()
	})
	return started
}

// follow follows the label until stop, which returns the error.
func (p pod) follow(t *testing.T) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Follow(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// Only a change of what is linked is signalled, once, and only to the program.
func TestFollow(t *testing.T) {
	g := NewWithT(t)
	p := newPod(t, "a", "a", "b")
	p.Default, p.Process = "b", name
	g.Expect(p.Once(t.Context())).To(Succeed())
	plugin, other := p.start(t, name), p.start(t, name+"-of-another")
	expect := func(configuration string, signals int) {
		t.Helper()
		g.Eventually(p.linked, patience, "10ms").Should(Equal(configuration))
		g.Eventually(plugin.signals.Load, patience, "10ms").Should(BeEquivalentTo(signals))
		g.Eventually(func(g Gomega) { g.Expect(p.beside(g)).To(BeEmpty()) }, patience, "10ms").Should(Succeed())
	}
	// watched waits until the pod has read the node and sees its changes.
	watched := func(times int) {
		t.Helper()
		g.Eventually(p.server.Watches, patience, "10ms").Should(BeNumerically(">=", times))
	}

	stop := p.follow(t)
	watched(1)
	expect("a", 0)
	p.label("b")
	expect("b", 1)
	watched(2)
	p.label("") // The default is the same configuration.
	watched(3)
	p.server.Write(func(labels, _ map[string]string) { labels["another"] = "1" })
	p.label("a")
	expect("a", 2)
	watched(4)
	g.Expect(stop()).To(Succeed())

	// A restart, also without the API server, leaves all as it is; the label of the time is then followed.
	p.server.Refuse(http.StatusServiceUnavailable, "starting")
	gets := p.server.Gets()
	stop = p.follow(t)
	g.Eventually(p.server.Gets, patience, "10ms").Should(BeNumerically(">", gets+1))
	expect("a", 2)
	p.label("b")
	p.server.Refuse(0, "")
	expect("b", 3)
	g.Expect(stop()).To(Succeed())
	g.Expect([]int64{plugin.allSignals(g), other.allSignals(g)}).To(Equal([]int64{3, 0}))
}

// A change that was linked but not signalled when the pod's container ended is signalled by the next one; one that was
// not linked, or was taken back, is not.
func TestFollowAfterAnEnd(t *testing.T) {
	for testName, test := range map[string]struct {
		earlier, unsignalled string
		want                 int
	}{
		"linked":     {"b", "b", 1},
		"not linked": {"a", "b", 1},
		"taken back": {"b", "a", 0},
		"none":       {"b", "", 0},
	} {
		t.Run(testName, func(t *testing.T) {
			g := NewWithT(t)
			p := newPod(t, "b", "a", "b")
			p.Process = name
			p.link(t, test.earlier)
			if test.unsignalled != "" {
				file, content := p.File+".unsignalled", filepath.Join(p.Dir, test.unsignalled)
				g.Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
				g.Expect(os.Symlink("left", p.File+".next")).To(Succeed())
			}
			plugin := p.start(t, p.Process)
			stop := p.follow(t)
			g.Eventually(p.server.Watches, patience, "10ms").Should(BeNumerically(">=", 1))
			g.Expect(stop()).To(Succeed())
			g.Expect(p.linked()).To(Equal("b"))
			g.Expect(p.beside(g)).NotTo(ContainElement(HaveSuffix(".unsignalled")))
			g.Expect(plugin.allSignals(g)).To(BeEquivalentTo(test.want))
		})
	}
}

func TestFollowEnds(t *testing.T) {
	for testName, test := range map[string]struct {
		label   string
		prepare func(p pod) error
		err     string
	}{
		"no such configuration": {label: "c", err: "specified config c does not exist"},
		"no configurations": {
			prepare: func(p pod) error { return os.RemoveAll(p.Dir) },
			err:     "error reading directory",
		},
		"no directory for the link": {
			prepare: func(p pod) error { p.Process = ""; return os.RemoveAll(filepath.Dir(p.File)) },
			err:     "link the configuration: symlink",
		},
		"a file in place of the link": {
			prepare: func(p pod) error { return errors.Join(os.Remove(p.File), os.WriteFile(p.File, nil, 0o600)) },
			err:     "read the link to the configuration",
		},
		"a directory in place of the next link": {
			prepare: func(p pod) error { return os.MkdirAll(p.File+".next/a", 0o700) },
			err:     "link the configuration: remove",
		},
		"a directory in place of the note": {
			prepare: func(p pod) error { return os.Mkdir(p.File+".unsignalled", 0o700) },
			err:     "link the configuration: open",
		},
		"no processes": {
			prepare: func(p pod) error { p.ProcRoot = p.Dir + "/none"; return nil },
			err:     "list the processes",
		},
		"not itself among the processes": {
			prepare: func(p pod) error { p.ProcRoot = p.Dir; return nil },
			err:     "find the volume of",
		},
		"no mount of it": {
			prepare: func(p pod) error {
				p.ProcRoot = p.Dir
				return errors.Join(os.Mkdir(p.Dir+"/self", 0o700), os.WriteFile(p.Dir+"/self/mountinfo", nil, 0o600))
			},
			err: "no mount of process self has",
		},
		"a signal that cannot be sent": {
			prepare: func(p pod) error {
				p.Process, p.Signal = os.Args[0], 1000
				return os.Symlink("/proc/self", filepath.Join(p.ProcRoot, fmt.Sprint(os.Getpid())))
			},
			err: "send signal 1000 to process",
		},
	} {
		t.Run(testName, func(t *testing.T) {
			g := NewWithT(t)
			p := newPod(t, cmp.Or(test.label, "b"), "a", "b")
			p.Process = name
			p.link(t, "a")
			if test.prepare != nil {
				g.Expect(test.prepare(p)).To(Succeed())
			}
			g.Expect(p.Follow(t.Context())).To(MatchError(ContainSubstring(test.err)))
		})
	}
}

// outages is an API server that refuses to show the node for some time, and whose watches end as listed.
type outages struct {
	unreadable time.Time
	watches    []error
	end        func()
	// answered is when it last answered, and pauses are how long the client waited after each answer.
	answered time.Time
	pauses   []time.Duration
}

func (o *outages) Node(context.Context, string) (nodeapi.Node, error) {
	if !o.answered.IsZero() {
		o.pauses = append(o.pauses, time.Since(o.answered))
	}
	o.answered = time.Now()
	if time.Now().Before(o.unreadable) {
		return nodeapi.Node{}, errors.New("refused")
	}
	return nodeapi.Node{}, nil
}

var errSilent = errors.New("no answer until the client gives up")

func (o *outages) AwaitNode(ctx context.Context, _, _ string, enough func(nodeapi.Node) bool) error {
	var node nodeapi.Node
	same := enough(node)
	if node.Metadata.Labels = map[string]string{label: "b"}; same || !enough(node) {
		return errors.New("awaits something else than another label")
	}
	if len(o.watches) == 0 {
		o.end()
		return ctx.Err()
	}
	ended := o.watches[0]
	if o.watches = o.watches[1:]; errors.Is(ended, errSilent) {
		<-ctx.Done()
	}
	o.answered = time.Now()
	return ended
}

// The pauses grow while the API server fails, and start anew after a watch that was long or saw another label.
func TestPauses(t *testing.T) {
	refused := errors.New("refused")
	for testName, test := range map[string]struct {
		once       bool
		unreadable time.Duration
		patience   time.Duration
		watches    []error
		// want are the longest pauses, in seconds.
		want     []int
		warnings int
	}{
		"no patience": {once: true, unreadable: time.Hour},
		"some patience": {
			once: true, unreadable: time.Hour, patience: 31 * time.Second, want: []int{1, 2, 4, 8, 16, 32}, warnings: 1,
		},
		"watches": {
			watches: append(slices.Repeat([]error{refused}, 7), errSilent, refused, refused, nil, refused, nil),
			want:    []int{2, 4, 8, 16, 32, 60, 60, 1, 2, 4, 0, 2, 0}, warnings: 3,
		},
	} {
		t.Run(testName, func(t *testing.T) {
			p := newPod(t, "", "a", "b")
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				ctx, end := context.WithCancel(t.Context())
				defer end()
				server := &outages{unreadable: time.Now().Add(test.unreadable), watches: test.watches, end: end}
				p.API, p.Patience, p.Log = server, test.patience, slog.New(slog.NewTextHandler(&log, nil))
				g := NewWithT(t)
				if test.once {
					g.Expect(p.Once(ctx)).To(MatchError("the configuration of the node is not known: refused"))
				} else {
					g.Expect(p.Follow(ctx)).To(Succeed())
				}
				g.Expect(server.pauses).To(HaveLen(len(test.want)))
				for i, pause := range server.pauses {
					longest := time.Duration(test.want[i]) * time.Second
					g.Expect(pause).To(And(BeNumerically(">=", longest/2), BeNumerically("<=", longest)), "pause %d", i)
				}
				g.Expect(strings.Count(log.String(), "trying again")).To(Equal(test.warnings))
			})
		})
	}
}

// In a pod with the process IDs of the host there are threads of the kernel, processes that end, and the same program
// in other pods, with another volume at the same place.
func TestProcessesOfTheHost(t *testing.T) {
	g := NewWithT(t)
	p := newPod(t, "b", "a", "b")
	p.Process = name
	p.link(t, "a")
	plugin, otherPods, confined := p.start(t, name), p.start(t, name), p.start(t, name)
	p.ProcRoot = t.TempDir()
	write := func(process any, file, content string) {
		path := filepath.Join(p.ProcRoot, fmt.Sprint(process), file)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	root := "1 0 0:30 / / rw - overlay overlay rw\n"
	at := func(uid string) string {
		return fmt.Sprintf("2 1 8:1 /var/lib/kubelet/pods/%s/volumes/config %s rw - ext4 /dev/sda1 rw\n%s",
			uid, filepath.Dir(p.File), root)
	}
	write("self", "mountinfo", at("own")+"3 1 8:1 / /dev rw - ext4 /dev/sda1 rw\n1 2 3 4\n")
	write("version", "mountinfo", at("own"))
	write(2, "cmdline", "")         // A thread of the kernel.
	write(1<<22+1, "cmdline", name) // Has ended since.
	write(1<<22+1, "mountinfo", at("own"))
	write(plugin.Process.Pid, "cmdline", name+"\x00--flag\x00")
	write(plugin.Process.Pid, "mountinfo", at("own"))
	write(otherPods.Process.Pid, "cmdline", name+"\x00")
	write(otherPods.Process.Pid, "mountinfo", at("other"))
	write(confined.Process.Pid, "cmdline", name+"\x00")
	write(confined.Process.Pid, "mountinfo", root)
	stop := p.follow(t)
	g.Eventually(plugin.signals.Load, patience, "10ms").Should(BeEquivalentTo(1))
	g.Expect(stop()).To(Succeed())
	g.Expect([]int64{plugin.allSignals(g), otherPods.allSignals(g), confined.allSignals(g)}).To(Equal([]int64{1, 0, 0}))
}
