package clusterpolicy

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// readOpenShift is what the operator reads of the objects that the specs of this container create.
var readOpenShift = operand.OpenShiftCluster{
	Version: "4.18",
	Proxy:   v1.ProxySpec{HTTPSProxy: "http://a", NoProxy: ".cluster.local,.svc,10.128.0.0/14"},
}

// The specs of this container share a cluster that gets the configuration of OpenShift.
var _ = Describe("The configuration of OpenShift", Ordered, ContinueOnFailure, func() {
	var env *testEnv
	var before *appsv1.DaemonSet

	BeforeAll(func(ctx SpecContext) {
		env = newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		before = daemonSet(ctx, driverName)
		DeferCleanup(func(ctx SpecContext) {
			for _, kind := range cluster.OpenShiftKinds() {
				Expect(client.IgnoreNotFound(admin.Delete(ctx, kind))).To(Succeed())
			}
		})
	})

	It("costs no call where the cluster has none", func(ctx SpecContext) {
		env.takeCalls()
		env.pass(ctx, statusInterval)
		for _, made := range env.takeCalls() {
			Expect(made.op).NotTo(Or(HaveSuffix("Proxy"), HaveSuffix("ClusterVersion")))
		}
	})

	It("reaches new drivers and makes none outdated", func(ctx SpecContext) {
		for _, kind := range cluster.OpenShiftKinds() {
			Expect(admin.Create(ctx, kind)).To(Succeed())
		}
		for _, object := range []client.Object{
			cluster.OpenShiftProxy("http://a", false), cluster.OpenShiftVersion("4.18.12"),
		} {
			Eventually(func() error { return admin.Create(ctx, object) }).Should(Succeed())
		}
		env.readsOpenShift(ctx, readOpenShift)
		env.settle(ctx)
		driver := daemonSet(ctx, driverName)
		Expect(driverVariables(driver)).To(And(HaveKeyWithValue("OPENSHIFT_VERSION", "4.18"),
			HaveKeyWithValue("https_proxy", "http://a"), HaveKeyWithValue("NO_PROXY", HavePrefix(".cluster.local,.svc,")),
			Not(HaveKey("HTTP_PROXY"))))
		Expect(driver.Generation).To(BeNumerically(">", before.Generation))
		Expect(driver.Spec.Template.Annotations).To(HaveKeyWithValue(labels.TemplateDigest,
			before.Spec.Template.Annotations[labels.TemplateDigest]))
		cached := cluster.OpenShiftVersion("")
		Expect(versions.Get(ctx, client.ObjectKeyFromObject(cached), cached)).To(Succeed())
		Expect(cached.Object["status"]).To(HaveLen(1), "the rest of the object is not kept in memory")
	})

	It("changes with an event", func(ctx SpecContext) {
		digest := daemonSet(ctx, driverName).Annotations[labels.TemplateDigest]
		env.updateObject(ctx, cluster.OpenShiftProxy("http://b", false))
		moved := readOpenShift
		moved.Proxy.HTTPSProxy = "http://b"
		env.readsOpenShift(ctx, moved)
		Expect(daemonSet(ctx, driverName)).To(And(
			WithTransform(driverVariables, HaveKeyWithValue("HTTPS_PROXY", "http://b")),
			HaveField("Annotations", HaveKeyWithValue(labels.TemplateDigest, digest)),
		))
		env.updateObject(ctx, cluster.OpenShiftProxy("http://a", false))
		env.readsOpenShift(ctx, readOpenShift)
		env.settle(ctx)
	})

	It("trusts the certificates for the proxy once OpenShift has filled the ConfigMap", func(ctx SpecContext) {
		digest := daemonSet(ctx, driverName).Annotations[labels.TemplateDigest]
		env.updateObject(ctx, cluster.OpenShiftProxy("http://a", true))
		trusting := readOpenShift
		trusting.ProxyHasCA = true
		env.readsOpenShift(ctx, trusting)
		Expect(trustedVolumes(daemonSet(ctx, driverName))).To(BeEmpty())
		Expect(condition(env.policy(ctx), v1.ConditionReady)).NotTo(Equal("False OperandInvalid"))
		configMap := &corev1.ConfigMap{Data: map[string]string{"ca-bundle.crt": "certificates"}}
		configMap.Namespace, configMap.Name = namespace, "gpu-operator-trusted-ca"
		failed := env.failOnce("reference get ConfigMap", 1)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(MatchError(errInjected))
		Expect(failed().name).To(Equal(configMap.Name))
		env.onCall(nil)
		Expect(admin.Create(ctx, configMap)).To(Succeed())
		Eventually(func() []corev1.Volume {
			env.pass(ctx, time.Second)
			return trustedVolumes(daemonSet(ctx, driverName))
		}).Should(HaveLen(1))
		Expect(daemonSet(ctx, driverName).Annotations[labels.TemplateDigest]).To(Equal(digest))
		Expect(admin.Delete(ctx, configMap)).To(Succeed())
		env.updateObject(ctx, cluster.OpenShiftProxy("http://a", false))
		env.readsOpenShift(ctx, readOpenShift)
		env.settle(ctx)
	})

	DescribeTable("stays as it was read when a call fails once", func(ctx SpecContext, op string) {
		env.settle(ctx)
		env.reconciler.OpenShift = env.newOpenShift()
		failed := env.failOnce(op, 1)
		env.pass(ctx, statusInterval)
		Expect(failed().op).To(Equal(op))
		Expect(env.fleet.Basis().Decisions.Input.OpenShiftCluster).To(Equal(readOpenShift))
		Expect(env.takeWrites()).NotTo(ContainElement(HavePrefix("apply DaemonSet")))
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"))
		env.clock.Step(10 * time.Second)
		env.readsOpenShift(ctx, readOpenShift)
	},
		Entry(nil, "map Proxy"),
		Entry(nil, "watch Proxy"),
		Entry(nil, "handle Proxy"),
		Entry(nil, "proxy get Proxy"),
		Entry(nil, "map ClusterVersion"),
		Entry(nil, "watch ClusterVersion"),
		Entry(nil, "handle ClusterVersion"),
		Entry(nil, "version get ClusterVersion"),
	)

	It("is not taken for absent by a process that has not read it yet", func(ctx SpecContext) {
		env.settle(ctx)
		env.forgetNodes()
		env.reconciler.OpenShift = env.newOpenShift()
		failed := env.failOnce("map Proxy", 1)
		env.pass(ctx, statusInterval)
		Expect(failed().op).To(Equal("map Proxy"))
		Expect(env.takeWrites()).NotTo(ContainElement(HavePrefix("apply DaemonSet")))
		Expect(env.fleet.Basis().Decisions.Input.OpenShiftUnread).To(ContainSubstring("reading Proxy cluster of OpenShift"))
		env.clock.Step(10 * time.Second)
		env.readsOpenShift(ctx, readOpenShift)
		env.settle(ctx)
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"))
	})

	It("is no longer watched without its kinds", func(ctx SpecContext) {
		for _, kind := range cluster.OpenShiftKinds() {
			Expect(admin.Delete(ctx, kind)).To(Succeed())
			Eventually(func() error { return admin.Get(ctx, client.ObjectKeyFromObject(kind), kind) }).
				Should(Satisfy(apierrors.IsNotFound))
		}
		env.onCall(func(_ context.Context, c call) error {
			if strings.HasPrefix(c.op, "unwatch ") {
				return errInjected
			}
			return nil
		})
		env.pass(ctx, statusInterval)
		Expect(env.fleet.Basis().Decisions.Input.OpenShiftCluster).To(Equal(readOpenShift))
		env.onCall(nil)
		env.settle(ctx)
		for _, watch := range env.reconciler.OpenShift.Watches() {
			Expect(watch.Watching()).To(BeFalse())
		}
		Expect(driverVariables(daemonSet(ctx, driverName))).NotTo(HaveKey(Or(Equal("OPENSHIFT_VERSION"),
			HaveSuffix("_PROXY"))))
	})
})

// readsOpenShift runs passes until one has read this configuration.
func (env *testEnv) readsOpenShift(ctx context.Context, want operand.OpenShiftCluster) {
	GinkgoHelper()
	env.onCall(nil)
	Eventually(func() operand.OpenShiftCluster {
		env.pass(ctx, time.Second)
		return env.fleet.Basis().Decisions.Input.OpenShiftCluster
	}).Should(Equal(want))
}

// updateObject replaces an object, and expects an event for a pass.
func (env *testEnv) updateObject(ctx context.Context, object *unstructured.Unstructured) {
	GinkgoHelper()
	live := object.DeepCopy()
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(live), live)).To(Succeed())
	object.SetResourceVersion(live.GetResourceVersion())
	Expect(admin.Update(ctx, object)).To(Succeed())
	Eventually(env.reconciler.OpenShift.Events()).Should(Receive())
}

// driverVariables returns the variables of the driver container.
func driverVariables(ds *appsv1.DaemonSet) map[string]string {
	found := map[string]string{}
	for _, variable := range ds.Spec.Template.Spec.Containers[0].Env {
		found[variable.Name] = variable.Value
	}
	return found
}

// trustedVolumes returns the volumes with the certificates that the cluster trusts.
func trustedVolumes(ds *appsv1.DaemonSet) (found []corev1.Volume) {
	for _, volume := range ds.Spec.Template.Spec.Volumes {
		if volume.ConfigMap != nil && strings.HasSuffix(volume.ConfigMap.Name, "trusted-ca") {
			found = append(found, volume)
		}
	}
	return found
}
