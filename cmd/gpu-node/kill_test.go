package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/test/chance"
)

// victim is a validation that is killed, and the part of the stack that it validates.
type victim struct {
	component labels.Marker
	args      []string
	// heal and harm switch that part atomically; both may be repeated.
	heal, harm func()
	// with are the markers that are true whenever the component's is.
	with []labels.Marker
	// keys is the number of assignments of a complete marker.
	keys int
}

// Killed at any moment, a validation leaves its old marker, which is stale, or none, or a true one; and the next one
// validates the current state. Each run is for another instance of the driver container, so that a marker which can be
// trusted is of that run.
func TestAKilledValidationLeavesNoFalseMarker(t *testing.T) {
	t.Parallel() // With tests that only wait, and so do not slow it down.
	for name, made := range map[string]func(*testing.T) victim{"driver": driverVictim, "gdrcopy": moduleVictim} {
		t.Run(name, func(t *testing.T) {
			victim := made(t)
			h := newKillHarness(t, victim)
			c := campaign{within: h.whole(), random: chance.Of(t, t.Name())}
			until := time.Now().Add(killTime())
			for ; c.runs < 60 || time.Now().Before(until) || c.runs < 300 && !c.spread(); c.runs++ {
				c.kill(h)
			}
			t.Logf("%d runs killed, %d of them with a true marker, %d healthy ones before it, %d never healthy; "+
				"the last within %s", c.runs, c.trusted, c.early, c.broken, c.within)
			NewWithT(t).Expect(c.spread()).To(BeTrue(), "the kills are spread over the run")
			h.whole() // Files that were left behind do not matter.
		})
	}
}

// killTime is how long a campaign lasts at least.
func killTime() time.Duration {
	if testing.Short() {
		return time.Second
	}
	return 4 * time.Second
}

// campaign kills runs of one validation and counts the results.
type campaign struct {
	random *rand.Rand
	// within is the time after the start of a run within which it is killed.
	within time.Duration
	// trusted runs left a true marker; early ones, healthy all the time, were killed before it; broken ones were
	// never healthy.
	runs, trusted, early, broken int
}

// spread reports whether the kills were before and after the marker. On a busy machine, where few runs fit into the
// time, this takes more of them.
func (c *campaign) spread() bool { return c.trusted > 5 && c.early > 5 && c.broken > 5 }

func (c *campaign) kill(h killHarness) {
	h.Helper()
	healthy, flips := c.random.IntN(2) == 0, c.random.IntN(3) == 0
	validated := h.run(c.runs, healthy, flips, c.random, c.within)
	if validated {
		c.trusted++
	}
	// How long a run takes changes with the load of the machine, so the next kill is aimed by this result: about half
	// of the healthy runs are to end before their marker.
	switch {
	case flips:
	case !healthy:
		c.broken++
		NewWithT(h.T).Expect(validated).To(BeFalse(), "run %d was never healthy", c.runs)
	case validated:
		c.within -= c.within / 16
	default:
		c.early++
		c.within += c.within / 8
	}
}

// driverVictim is validate driver on a node with a driver container that also loads nvidia_fs. It breaks in three ways,
// in turn.
func driverVictim(t *testing.T) victim {
	t.Helper()
	g := NewWithT(t)
	host := newGPUHost(t)
	g.Expect(os.MkdirAll(host.path("driver/dev"), 0o700)).To(Succeed())
	g.Expect(os.Rename(host.path("usr"), host.path("driver/usr"))).To(Succeed())
	for _, name := range []string{"nvidia0", "nvidiactl", "nvidia-uvm"} {
		g.Expect(os.Rename(host.path("dev", name), host.path("driver/dev", name))).To(Succeed())
	}
	host.write(t, "sys/module/nvidia_fs/initstate", "live\n")
	faults := []struct{ path, broken, healthy string }{
		{"sys/module/nvidia_fs/initstate", "coming\n", "live\n"},
		{"sys/module/nvidia/version", "570.00\n", "580.95.05\n"},
		{"driver/exit-code", "9", "0"},
	}
	turn := 0
	// A rename is atomic.
	put := func(path, content string) {
		host.write(t, "new", content)
		g.Expect(os.Rename(host.path("new"), host.path(path))).To(Succeed())
	}
	return victim{
		component: labels.MarkerDriver, with: []labels.Marker{labels.MarkerNvidiaFS}, keys: 5,
		args: []string{
			"validate", "driver", "--driver-container", "--host-root=" + host.root, "--driver-root=" + host.path("driver"),
			"--sys-root=" + host.path("sys"), "--proc-root=" + host.path("proc"), "--dev-char=" + host.path("dev/char"),
		},
		heal: func() {
			for _, fault := range faults {
				put(fault.path, fault.healthy)
			}
		},
		harm: func() {
			turn++
			put(faults[turn%len(faults)].path, faults[turn%len(faults)].broken)
		},
	}
}

func moduleVictim(t *testing.T) victim {
	t.Helper()
	sys := gpuHost{root: t.TempDir()}
	sys.write(t, "module/gdrdrv/initstate", "live\n")
	put := func(content string) {
		sys.write(t, "new", content)
		NewWithT(t).Expect(os.Rename(sys.path("new"), sys.path("module/gdrdrv/initstate"))).To(Succeed())
	}
	return victim{
		component: labels.MarkerGDRCopy, args: []string{"validate", "gdrcopy", "--sys-root=" + sys.root},
		heal: func() { put("live\n") }, harm: func() { put("coming\n") },
	}
}

// killHarness starts validations of one node and kills them.
type killHarness struct {
	*testing.T
	victim  victim
	pod     pod
	markers marker.Dir
}

func newKillHarness(t *testing.T, victim victim) killHarness {
	t.Helper()
	boot, err := marker.BootID(labels.BootIDFile)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	pod := newPod(t)
	return killHarness{T: t, victim: victim, pod: pod, markers: marker.Dir{Path: pod.markers, BootID: boot}}
}

// instance starts another driver container.
func (h killHarness) instance(name string) {
	h.Helper()
	g := NewWithT(h.T)
	tmp := filepath.Join(h.pod.markers, ".tmp")
	g.Expect(os.WriteFile(tmp, []byte("GDS_ENABLED: true\nDRIVER_INSTANCE: "+name+"\n"), 0o600)).To(Succeed())
	g.Expect(os.Rename(tmp, filepath.Join(h.pod.markers, labels.DriverContainerReady))).To(Succeed())
}

// whole lets a validation end, and returns how long that takes.
func (h killHarness) whole() time.Duration {
	h.Helper()
	h.instance("whole")
	h.victim.heal()
	began := time.Now()
	NewWithT(h.T).Expect(h.pod.command(h.T, append(h.victim.args, "--timeout=1m")...).Run()).To(Succeed())
	took := time.Since(began)
	NewWithT(h.T).Expect(h.markers.Read(h.victim.component)).NotTo(BeEmpty())
	return took
}

// path returns the path of the marker.
func (h killHarness) path() string { return filepath.Join(h.pod.markers, h.victim.component.File()) }

// appears returns once there is a marker, complete or not.
func (h killHarness) appears() {
	h.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); runtime.Gosched() {
		if _, err := os.Stat(h.path()); err == nil {
			return
		}
	}
	h.Fatal("a healthy validation writes no marker")
}

// run starts a validation, changes the stack during it if it flips, and kills it at a random moment within this time or
// as soon as there is a marker. It returns whether there is a valid marker of this run then, and checks that it is
// complete.
func (h killHarness) run(number int, healthy, flips bool, random *rand.Rand, within time.Duration) bool {
	h.Helper()
	g := NewWithT(h.T)
	h.instance(fmt.Sprintf("run-%d", number))
	first, second := h.victim.heal, h.victim.harm
	if !healthy {
		first, second = second, first
	}
	h.victim.heal()
	first()
	moment := func() <-chan time.Time { return time.After(time.Duration(random.Int64N(int64(within)))) }
	written := healthy && !flips && random.IntN(3) == 0
	if written {
		g.Expect(os.Remove(h.path())).To(Or(Succeed(), MatchError(os.ErrNotExist)))
	}
	command := h.pod.command(h.T, append(h.victim.args, "--interval=1ms")...)
	g.Expect(command.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	if flips {
		<-moment()
		second()
	}
	if written {
		// A moment that random kills rarely hit.
		h.appears()
	} else {
		<-moment()
	}
	g.Expect(command.Process.Kill()).To(Or(Succeed(), MatchError(os.ErrProcessDone)))
	g.Eventually(ended, "1m").Should(Receive())

	found, err := h.markers.Read(h.victim.component)
	if err != nil {
		file := h.victim.component.File()
		g.Expect(err).To(MatchError(Or(HavePrefix(file+" is missing"), HavePrefix(file+" is stale"))),
			"never a part of a marker")
		return false
	}
	g.Expect(len(found)).To(BeNumerically(">=", h.victim.keys+3), "%v", found)
	for _, with := range h.victim.with {
		g.Expect(h.markers.Read(with)).NotTo(BeEmpty())
	}
	return true
}
