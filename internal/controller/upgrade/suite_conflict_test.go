package upgrade_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

var _ = Describe("A ConfigMap of a user with the name of that for the slots", func() {
	It("is left alone, and named by each node that waits for it", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		users := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots},
			Data:       map[string]string{"notes": "of a user"},
		}
		Expect(f.client.Create(ctx, users)).To(Succeed())
		f.takeWrites()
		f.target = "new"
		f.until(ctx, "a upgrade-required: Conflict "+
			"ConfigMap gpu-operator-driver-upgrades exists and is not the operator's: rename or delete it (held)")
		wait, err := f.pass(ctx, f.manager, time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(wait).To(And(BeNumerically(">", 0), BeNumerically("<=", 30*time.Second)), "its end causes no event")
		Expect(f.takeWrites()).To(HaveEach(patchNode), "the state of the node alone")
		found := &corev1.ConfigMap{}
		Expect(f.client.Get(ctx, client.ObjectKeyFromObject(users), found)).To(Succeed())
		Expect(found.Data).To(Equal(users.Data))
		Expect(found.ResourceVersion).To(Equal(users.ResourceVersion))

		Expect(f.client.Delete(ctx, found)).To(Succeed())
		f.takeWrites()
		f.upgraded(ctx)
	})

	It("does not stop a node that is being upgraded", func(ctx SpecContext) {
		f := halfway(ctx)
		key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots}
		slots := &corev1.ConfigMap{}
		Expect(f.client.Get(ctx, key, slots)).To(Succeed())
		slots.Labels, slots.Data = nil, map[string]string{"notes": "of a user"}
		Expect(f.client.Update(ctx, slots)).To(Succeed())
		f.takeWrites()
		f.allow(ctx, "train", 1)
		f.until(ctx, "")
		Expect(f.node(ctx, "a").Labels).To(HaveKeyWithValue(labels.UpgradeState, "upgrade-done"))
		Expect(f.takeWrites()).NotTo(ContainElements(patchSlots, deleteSlots))
		Expect(f.client.Get(ctx, key, slots)).To(Succeed())
		Expect(slots.Data).To(HaveKey("notes"))
	})

	It("is named too if another client has made that of the operator immutable", func(ctx SpecContext) {
		f := newFixture(ctx, automatic(), "a")
		key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots}
		Expect(f.client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{labels.ManagedBy: labels.ManagedByValue},
			},
			Immutable: new(true),
		})).To(Succeed())
		f.target = "new"
		f.until(ctx, "a upgrade-required: Conflict ConfigMap gpu-operator-driver-upgrades is immutable: delete it (held)")
		Expect(f.client.Delete(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		})).To(Succeed())
		f.upgraded(ctx)
	})
})
