package migration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// TestNVIDIAsOwnOperator: users of NVIDIA's operator, its own program and chart, migrate to this one by the steps of
// docs/migration.md, and back, while everything runs.
func TestNVIDIAsOwnOperator(t *testing.T) {
	t.Parallel()
	i := newIncumbent(t)
	i.isPlayed()
	i.deployTenants()
	i.watch = NewWatcher(t, i.cluster.SimulatorConfig)
	begin := time.Now()
	i.there()
	t.Logf("taken over after %s", time.Since(begin).Round(time.Second))
	i.undisturbed(operatorApp)
	i.applied()
	i.Expect(i.drivers()).To(Equal([]string{DriverName}))
	i.writesNothing()

	i.watch = NewWatcher(t, i.cluster.SimulatorConfig)
	begin = time.Now()
	i.backToTheirs()
	t.Logf("taken back after %s", time.Since(begin).Round(time.Second))
	i.undisturbed(operatorApp, discoveryApp)
	i.Eventually(i.leftOfOurs).Should(BeEmpty())
	i.Eventually(i.updatedDrivers).Should(Equal(int32(nodes)), "drivers that NVIDIA's operator reports as up to date")
	i.awaitTheirs()
}

// backToTheirs does the steps of "The way back" in docs/migration.md. The hooks of both charts apply
// their CRDs, which kubectl does here.
func (i *incumbent) backToTheirs() {
	i.t.Helper()
	out, err := i.kubectlGPU("--check")
	i.t.Log(out)
	i.Expect(err).To(HaveOccurred(), "NVIDIA's chart has set autoUpgrade")
	i.Expect(out).To(ContainSubstring("autoUpgrade"))
	i.setAutoUpgrade(false)
	i.t.Log(i.migratesBack("--check"))
	i.stopsWithItsPod(func() { i.t.Log(i.migratesBack("--yes")) })
	i.kubectl("apply", "-f", i.built.Chart()+"/crds/")
	i.helms("upgrade", release, i.built.Chart(), "--take-ownership", "--no-hooks",
		"--set", "nfd.enabled=false,driver.upgradePolicy.autoUpgrade=false")
	i.startTheirs()
	i.awaitPods(false)
	i.t.Log(i.migratesBack("--finish", "--yes"))
}

// stopsWithItsPod runs a command that deletes this operator's Deployment, and ends its program, which has no pod of its
// own, as soon as that is gone or is being deleted.
func (i *incumbent) stopsWithItsPod(command func()) {
	i.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); command() }()
	i.Eventually(func() bool {
		d := &appsv1.Deployment{}
		err := i.client.Get(i.t.Context(), client.ObjectKey{Namespace: namespace, Name: "gpu-operator"}, d)
		return apierrors.IsNotFound(err) || err == nil && (d.Spec.Replicas == nil || *d.Spec.Replicas == 0)
	}).Should(BeTrue(), "this operator's Deployment is scaled to 0 or deleted")
	i.stop()
	<-done
}

// there does the steps of section 1 of docs/migration.md with Helm.
func (i *incumbent) there() {
	i.t.Helper()
	out, err := i.migrate("--check")
	i.t.Log(out)
	i.Expect(err).NotTo(HaveOccurred())
	out, err = i.migrate("--yes")
	i.t.Log(out)
	i.Expect(err).NotTo(HaveOccurred())
	i.endTheirs()
	const chart = repo + "/config/helm/gpu-operator"
	i.kubectl("apply", "--server-side", "--force-conflicts", "-f", chart+"/crds/")
	i.helms("upgrade", release, chart, "--take-ownership", "--no-hooks", "--set",
		"clusterPolicy.deployCR=false,operator.repository=registry.example.com,operator.version=dev")
	i.start()
	i.awaitPods(true)
	i.awaitReady(v1.StateReady)
	out, err = i.migrate("--finish", "--yes")
	i.t.Log(out)
	i.Expect(err).NotTo(HaveOccurred())
}
