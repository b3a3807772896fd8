//go:build linux

package node_test

import (
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

const (
	// described is where the toolkit describes the driver's files for the runtime.
	described = "/run/cdi/management.nvidia.com-gpu.json"
	// idle is how long nothing may be injected while the toolkit hangs.
	idle = 3 * time.Second
)

// keepDescription makes the description of the driver outlive a restart, as in a directory on the disk.
func (b *env) keepDescription() (put func()) {
	content, err := os.ReadFile(b.machine.Running(described))
	b.Expect(err).NotTo(HaveOccurred())
	return func() {
		path := b.machine.Running(described)
		b.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		b.Expect(os.WriteFile(path, content, 0o644)).To(Succeed())
	}
}

// letToolkitFollow releases a toolkit that hangs, once the driver is validated and nothing was injected for a while
// though an earlier toolkit's handler and its description of the driver may exist.
func (b *env) letToolkitFollow(begin time.Time) {
	b.t.Helper()
	b.awaitMarker("driver-ready", begin)
	b.Consistently(func(g Gomega) {
		injected, err := b.machine.Injections(begin)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(injected).To(BeEmpty())
	}, idle, "100ms").Should(Succeed())
	b.Expect(b.machine.Order(toolkit.program, nil)).To(Succeed())
}

// awaitMarker waits until a marker has been written since then.
func (b *env) awaitMarker(name string, begin time.Time) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		info, err := os.Stat(b.machine.Running("/run/nvidia/validations/" + name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.ModTime()).To(BeTemporally(">", begin))
	}, "2m", "50ms").Should(Succeed(), b.describe)
}

// checkInjections checks that each container which got files of a driver since then got those of the driver that was
// loaded, after the runtime had restarted with it, and returns what they got.
func (b *env) checkInjections(begin time.Time) []node.Injection {
	b.t.Helper()
	info, err := os.Stat(b.machine.Running("/run/nvidia/validations/runtime-ready"))
	b.Expect(err).NotTo(HaveOccurred())
	injected, err := b.machine.Injections(begin)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(injected).NotTo(BeEmpty())
	for _, injection := range injected {
		b.Expect(injection.Driver).To(Equal(injection.Loaded), "%+v", injection)
		b.Expect(injection.At).To(BeTemporally(">=", info.ModTime()), "%+v", injection)
	}
	b.t.Logf("%d containers got files of the driver, the first one %s after the runtime had restarted", len(injected),
		injected[0].At.Sub(info.ModTime()).Round(time.Millisecond))
	return injected
}

// checkReplacedDriver replaces the driver by another version. The description of the old one still exists, and all
// deploy labels are restored as soon as the old driver is gone.
func (b *env) checkReplacedDriver() {
	const version = "600.10.01"
	ctx := b.t.Context()
	image, err := node.DriverImage(os.Getenv(standInVariable), driverLibrary(b.t),
		version)
	b.Expect(err).NotTo(HaveOccurred())
	b.load(image)
	patch := []byte(`{"spec":{"driver":{"version":"` + version + `"}}}`)
	request := b.client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(policyPath, policyName)
	b.Expect(request.Body(patch).Do(ctx).Error()).
		To(Succeed())
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.NodeSummary.Upgrading).To(BeEquivalentTo(1), "%+v", policy.Status)
	}, "30s", "100ms").Should(Succeed(), b.describe)
	b.Expect(b.machine.Order(toolkit.program, &node.Order{Fault: "hang"})).To(Succeed())
	begin := time.Now()
	b.Expect(b.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "app=" + driver.app})).To(Succeed())
	b.letToolkitFollow(begin)
	b.Eventually(func(g Gomega) {
		b.expectStartedSince(g, begin, "node-discovery", "gpu-operator")
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%+v", policy.Status)
	}, "2m", "200ms").Should(Succeed(), b.describe)
	b.t.Logf("all was ready again after %s", since(begin))
	b.Expect(b.checkInjections(begin)).To(HaveEach(HaveField("Driver", version)))
}
