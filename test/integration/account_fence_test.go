package integration

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const migManagerAccount = "nvidia-mig-manager"

// nodeChange is a merge patch of a node; status: it is for the subresource status. says is the refusal, empty if the
// change is allowed.
type nodeChange struct {
	patch  string
	status bool
	says   string
}

// nodeWritersAreLimited: the operator, mig-manager and the driver may only change their own fields of a node. RBAC
// would allow everything; the installed admission policies refuse the rest.
func (e *env) nodeWritersAreLimited() {
	own, other := e.twoNodes()
	e.prepareNode(own)
	// Not the account of the env's operator, whose requests must not be refused: the policy matches accounts by name.
	const elsewhere = "elsewhere"
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}})
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: account}})
	e.allRightsOnNodes(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: elsewhere, Name: account},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: migManagerAccount},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: driverAccount},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: healthAccount})
	unbound, err := e.cluster.ServiceAccountConfig(e.t.Context(), elsewhere, account)
	e.Expect(err).NotTo(HaveOccurred())
	operator := kubernetes.NewForConfigOrDie(unbound)
	migManager, _ := e.podBound(migManagerAccount, e.podFor(migManagerAccount, own))
	driver, _ := e.podBound(driverAccount, e.podFor(driverAccount, own))
	health, _ := e.podBound(healthAccount, e.podFor(healthAccount, own))
	for _, c := range []kubernetes.Interface{operator, migManager, driver, health} {
		e.Eventually(func() error { return dryRun(e.t, c, own, nodeChange{patch: `{"metadata":{"labels":{"team":"x"}}}`}) }).
			WithPolling(100 * time.Millisecond).
			Should(forbidden("may not change"))
	}
	e.t.Run("operator", func(t *testing.T) {
		e.in(t).judge(operator, own, operatorChanges(e.node(own)))
		e.in(t).neitherCreatesNorDeletes(operator, own, "the operator may only update nodes")
	})
	e.t.Run("mig-manager", func(t *testing.T) {
		e.in(t).judge(migManager, own, migManagerChanges())
		e.in(t).judge(migManager, other, map[string]nodeChange{"another node": {
			patch: labelled("nvidia.com/mig.config.state", "failed"), says: "which is " + own + ", not " + other}})
		e.in(t).neitherCreatesNorDeletes(migManager, own, "mig-manager may only update nodes")
	})
	e.t.Run("health agent", func(t *testing.T) {
		e.in(t).judge(health, own, healthChanges())
		e.in(t).neitherCreatesNorDeletes(health, own, "the health agent may only update nodes")
	})
	e.t.Run("driver", func(t *testing.T) { e.in(t).judge(driver, own, driverChanges()) })
	e.t.Run("other accounts are not limited", func(t *testing.T) {
		admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
		e.in(t).Expect(dryRun(t, admin, own, nodeChange{patch: labelled("team", "ml")})).To(Succeed())
	})
}

const (
	skipUpgrade   = "nvidia.com/gpu-driver-upgrade.skip"
	initialCordon = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
)

// operatorChanges are tried one at a time on the node after prepareNode.
func operatorChanges(node *corev1.Node) map[string]nodeChange {
	const ofLabels, ofAnnotations, ofTaints = "the operator may not change the labels ",
		"the operator may not change the annotations ", "the operator may not change the taints "
	changes := map[string]nodeChange{
		"label gpu.present":     {patch: labelled("nvidia.com/gpu.present", "true")},
		"remove gpu.present":    {patch: labelled("nvidia.com/gpu.present", nil)},
		"deploy label":          {patch: labelled("nvidia.com/gpu.deploy.driver", "true")},
		"remove a deploy label": {patch: labelled("nvidia.com/gpu.deploy.dcgm", nil)},
		"pool":                  {patch: labelled("nvidia.com/gpu-operator.pool", "ubuntu24.04-amd64")},
		"runtime":               {patch: labelled("nvidia.com/gpu-operator.runtime", "containerd")},
		"layout of MIG":         {patch: labelled("nvidia.com/mig.config", "all-disabled")},
		"forget MIG's outcome":  {patch: labelled("nvidia.com/mig.config.state", nil)},
		"own annotation": {
			patch: `{"metadata":{"annotations":{"nvidia.com/gpu-operator.discovery-lost-since":"2026-01-01T00:00:00Z"}}}`,
		},
		"upgrades are ours": {
			patch: `{"metadata":{"annotations":{"nvidia.com/gpu-driver-upgrade-enabled":"false"}}}`,
		},
		"upgrades are not ours": {
			patch: `{"metadata":{"annotations":{"nvidia.com/gpu-driver-upgrade-enabled":null}}}`,
		},
		"state of an upgrade":        {patch: labelled("nvidia.com/gpu-driver-upgrade-state", "upgrade-done")},
		"remove that state":          {patch: labelled("nvidia.com/gpu-driver-upgrade-state", nil)},
		"exclusion from upgrades":    {patch: labelled(skipUpgrade, "x"), says: ofLabels + skipUpgrade},
		"remove such an exclusion":   {patch: labelled(skipUpgrade, nil), says: ofLabels + skipUpgrade},
		"end the request of a user":  {patch: annotated("nvidia.com/gpu-driver-upgrade-requested", nil)},
		"forget an earlier cordon":   {patch: annotated(initialCordon, nil)},
		"remember an earlier cordon": {patch: annotated(initialCordon, "false")},
		"request an upgrade": {
			patch: annotated("nvidia.com/gpu-driver-upgrade-requested", "false"),
			says:  ofAnnotations + "nvidia.com/gpu-driver-upgrade-requested",
		},
		"remove what discovery notes": {
			patch: `{"metadata":{"annotations":{"nvidia.com/gpu-operator.discovered-labels":null}}}`,
		},
		"remove what discovery wrote":     {patch: labelled("feature.node.kubernetes.io/cpu-noted", nil)},
		"remove what discovery wrote too": {patch: labelled("nvidia.com/gpu.count", nil)},
		"cordon":                          {patch: `{"spec":{"unschedulable":true}}`},
		"own taint": {
			patch: `{"spec":{"taints":[{"key":"foreign","effect":"NoSchedule"},{"key":"nvidia.com/gpu-operator.not-ready","effect":"NoSchedule"}]}}`,
		},
		"own condition": {
			status: true, patch: conditions(node, corev1.NodeCondition{Type: gpuReady, Status: corev1.ConditionTrue}),
		},
		"own condition of the health": {
			status: true,
			patch:  conditions(node, corev1.NodeCondition{Type: "nvidia.com/GPUHealthy", Status: corev1.ConditionTrue}),
		},
		"no change of the status": {status: true, patch: conditions(node)},
		"label of another":        {patch: labelled("team", "x"), says: ofLabels + "team"},
		"role": {
			patch: labelled("node-role.kubernetes.io/control-plane", ""),
			says:  ofLabels + "node-role.kubernetes.io/control-plane",
		},
		"remove a label of another": {patch: labelled("kubernetes.io/os", nil), says: ofLabels + "kubernetes.io/os"},
		"write what discovery writes": {
			patch: labelled("nvidia.com/gpu.count", "9"), says: ofLabels + "nvidia.com/gpu.count",
		},
		"remove what NFD wrote": {
			patch: labelled("feature.node.kubernetes.io/pci-10de.present", nil), says: ofLabels + "feature.node",
		},
		"remove what is noted, not found": {patch: labelled("noted-team", nil), says: ofLabels + "noted-team"},
		"remove a layout of MIG": {
			patch: labelled("nvidia.com/mig.config", nil), says: ofLabels + "nvidia.com/mig.config",
		},
		"state of MIG": {
			patch: labelled("nvidia.com/mig.config.state", "success"), says: ofLabels + "nvidia.com/mig.config.state",
		},
		"label by way of the status": {status: true, patch: labelled("team", "x"), says: ofLabels + "team"},
		"annotation of another": {
			patch: `{"metadata":{"annotations":{"team":"x"}}}`, says: ofAnnotations + "team",
		},
		"finalizer": {
			patch: `{"metadata":{"finalizers":["example.com/x"]}}`, says: "may not change finalizers or owners",
		},
		"owner": {
			patch: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"1"}]}}`,
			says:  "may not change finalizers or owners",
		},
		"taint of another": {
			patch: `{"spec":{"taints":[{"key":"foreign","effect":"NoSchedule"},{"key":"x","effect":"NoExecute"}]}}`,
			says:  ofTaints + "x",
		},
		"remove a taint of another": {patch: `{"spec":{"taints":null}}`, says: ofTaints + "foreign"},
		"change a taint of another": {
			patch: `{"spec":{"taints":[{"key":"foreign","effect":"NoExecute"}]}}`, says: ofTaints + "foreign, foreign",
		},
		"provider": {
			patch: `{"spec":{"providerID":"x://y"}}`, says: "the operator may not change spec.providerID",
		},
		// The order of several is that of a map.,
		"pod network": {
			patch: `{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`,
			says:  "the operator may not change spec.podCIDR",
		},
		"capacity": {
			status: true, patch: `{"status":{"capacity":{"nvidia.com/gpu":"64"}}}`,
			says: "the operator may not change status.capacity",
		},
		"addresses": {
			status: true, patch: `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`,
			says: "the operator may not change status.addresses",
		},
		"software": {
			status: true, patch: `{"status":{"nodeInfo":{"kubeletVersion":"v0"}}}`,
			says: "the operator may not change status.nodeInfo",
		},
		"condition of another": {
			status: true, patch: conditions(node, corev1.NodeCondition{Type: "Other", Status: corev1.ConditionTrue}),
			says: "the operator may not change the conditions Other",
		},
		"remove the conditions of another": {
			status: true, patch: `{"status":{"conditions":null}}`, says: "the operator may not change the conditions ",
		},
	}
	return changes
}

func migManagerChanges() map[string]nodeChange {
	const ofLabels, ofAnnotations, ofSpec = "mig-manager may not change the labels ",
		"mig-manager may not change the annotations ", "mig-manager may not change spec."
	return map[string]nodeChange{
		"state":                   {patch: labelled("nvidia.com/mig.config.state", "pending")},
		"pause":                   {patch: labelled("nvidia.com/gpu.deploy.dcgm", "paused-for-mig-change")},
		"resume":                  {patch: labelled("nvidia.com/gpu.deploy.device-plugin", "true")},
		"pause what is not there": {patch: labelled("nvidia.com/gpu.deploy.nvsm", "")},
		"turn off": {
			patch: labelled("nvidia.com/gpu.deploy.dcgm", "false"), says: ofLabels + "nvidia.com/gpu.deploy.dcgm=false",
		},
		"remove a deploy label": {
			patch: labelled("nvidia.com/gpu.deploy.dcgm", nil), says: ofLabels + "nvidia.com/gpu.deploy.dcgm=",
		},
		"pause the driver": {
			patch: labelled("nvidia.com/gpu.deploy.driver", "paused-for-mig-change"),
			says:  ofLabels + "nvidia.com/gpu.deploy.driver=",
		},
		"what GPU Feature Discovery writes": {
			patch: labelled("nvidia.com/mig.capable", "false"), says: ofLabels + "nvidia.com/mig.capable=false",
		},
		"label of another": {patch: labelled("team", "x"), says: ofLabels + "team=x"},
		"role": {
			patch: labelled("node-role.kubernetes.io/control-plane", ""),
			says:  ofLabels + "node-role.kubernetes.io/control-plane=",
		},
		"annotation": {patch: `{"metadata":{"annotations":{"team":"x"}}}`, says: ofAnnotations + "team"},
		"the report of the health agent": {
			patch: annotated(healthAnnotation, "{}"), says: ofAnnotations + healthAnnotation,
		},
		"finalizer": {
			patch: `{"metadata":{"finalizers":["example.com/x"]}}`, says: "mig-manager may not change finalizers or owners",
		},
		"cordon": {patch: `{"spec":{"unschedulable":true}}`, says: ofSpec + "unschedulable"},
		"taint":  {patch: `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`, says: ofSpec + "taints"},
	}
}

func driverChanges() map[string]nodeChange {
	const ofLabels, ofAnnotations, ofSpec = "the driver may not change the labels ",
		"the driver may not change the annotations ", "the driver may not change spec."
	return map[string]nodeChange{
		"pause": {patch: labelled("nvidia.com/gpu.deploy.dcgm", "paused-for-driver-upgrade")},
		"pause what has its own value": {
			patch: labelled("nvidia.com/gpu.deploy.device-plugin", "x_paused-for-driver-upgrade"),
		},
		"pause what is not there":    {patch: labelled("nvidia.com/gpu.deploy.nvsm", "")},
		"a driver of the host":       {patch: labelled("nvidia.com/gpu.deploy.driver", "pre-installed")},
		"pause a user's":             {patch: labelled("noted-team", "paused-for-driver-upgrade")},
		"resume a user's":            {patch: labelled("example.com/paused", "true")},
		"a user's that is not there": {patch: labelled("example.com/absent", "")},
		"cordon":                     {patch: `{"spec":{"unschedulable":true}}`},
		"whether it was cordoned": {
			patch: `{"metadata":{"annotations":{"nvidia.com/driver-manager.node-initial-state.unschedulable":"false"}}}`,
		},
		"label of another":            {patch: labelled("team", "x"), says: ofLabels + "team"},
		"value of a label of another": {patch: labelled("noted-team", "y"), says: ofLabels + "noted-team"},
		"remove a deploy label": {
			patch: labelled("nvidia.com/gpu.deploy.dcgm", nil), says: ofLabels + "nvidia.com/gpu.deploy.dcgm",
		},
		"pool": {
			patch: labelled("nvidia.com/gpu-operator.pool", "x"), says: ofLabels + "nvidia.com/gpu-operator.pool",
		},
		"role": {
			patch: labelled("node-role.kubernetes.io/control-plane", ""),
			says:  ofLabels + "node-role.kubernetes.io/control-plane",
		},
		"pause what Kubernetes reads": {
			patch: labelled("kubernetes.io/os", "paused-for-driver-upgrade"), says: ofLabels + "kubernetes.io/os",
		},
		"annotation": {patch: `{"metadata":{"annotations":{"team":"x"}}}`, says: ofAnnotations + "team"},
		"finalizer": {
			patch: `{"metadata":{"finalizers":["example.com/x"]}}`, says: "may not change finalizers or owners",
		},
		"taint": {
			patch: `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`, says: ofSpec + "taints",
		},
		"remove the taints": {patch: `{"spec":{"taints":null}}`, says: ofSpec + "taints"},
		"provider":          {patch: `{"spec":{"providerID":"x://y"}}`, says: ofSpec + "providerID"},
		"a taint by the way of a cordon": {
			patch: `{"spec":{"unschedulable":true,"taints":[]}}`,
			says:  ofSpec + "taints",
		},
		"a label by the way of a pause": {
			patch: `{"metadata":{"labels":{"nvidia.com/gpu.deploy.dcgm":"paused-for-driver-upgrade","team":"x"}}}`,
			says:  ofLabels + "team",
		},
		"remove an annotation of another": {
			patch: `{"metadata":{"annotations":{"nvidia.com/gpu-operator.discovered-labels":null}}}`,
			says:  ofAnnotations + "nvidia.com/gpu-operator.discovered-labels",
		},
	}
}

// prepareNode sets the fields of the node that the changes concern.
func (e *env) prepareNode(name string) {
	e.t.Helper()
	e.Expect(patch(e.t, kubernetes.NewForConfigOrDie(e.cluster.Config), name, `{
	  "metadata": {
	    "labels": {"nvidia.com/gpu.present": "false", "nvidia.com/gpu.deploy.dcgm": "true", "nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change",
	      "nvidia.com/mig.config": "all-1g.5gb", "nvidia.com/mig.config.state": "failed", "nvidia.com/gpu.count": "8", "feature.node.kubernetes.io/cpu-noted": "true", "noted-team": "x",
	      "nvidia.com/gpu.deploy.driver": "false", "example.com/paused": "true_paused-for-driver-upgrade",
	      "nvidia.com/gpu-driver-upgrade-state": "upgrade-required", "nvidia.com/gpu-driver-upgrade.skip": "true"},
	    "annotations": {"nvidia.com/gpu-driver-upgrade-enabled": "true", "nvidia.com/gpu-driver-upgrade-requested": "true",
	      "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable": "true", "nvidia.com/gpu-operator.discovered-labels": "feature.node.kubernetes.io/cpu-noted,noted-team,nvidia.com/gpu.count"}},
	  "spec": {"taints": [{"key": "foreign", "effect": "NoSchedule"}]}}`)).To(Succeed())
}

// annotated returns a patch that sets an annotation, or removes it if the value is nil.
func annotated(key string, value any) string {
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	return string(body)
}

func (e *env) allRightsOnNodes(subjects ...rbacv1.Subject) {
	e.t.Helper()
	all := metav1.ObjectMeta{Name: "all-nodes"}
	e.create(&rbacv1.ClusterRole{ObjectMeta: all, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}},
	}})
	e.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: all, RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: all.Name,
		}, Subjects: subjects,
	})
}

func (e *env) judge(c kubernetes.Interface, node string, changes map[string]nodeChange) {
	for name, change := range changes {
		verdict, title := Succeed(), "allowed: "+name
		if change.says != "" {
			verdict, title = forbidden(change.says), "refused: "+name
		}
		e.t.Run(title, func(t *testing.T) {
			e.in(t).Expect(dryRun(t, c, node, change)).To(verdict)
		})
	}
}

func (e *env) neitherCreatesNorDeletes(c kubernetes.Interface, node, says string) {
	dry := []string{metav1.DryRunAll}
	e.t.Run("refused: create", func(t *testing.T) {
		_, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made"}},
			metav1.CreateOptions{DryRun: dry})
		e.in(t).Expect(err).To(forbidden(says))
	})
	e.t.Run("refused: delete", func(t *testing.T) {
		e.in(t).
			Expect(c.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{DryRun: dry})).
			To(forbidden(says))
	})
}

// dryRun submits a change as a dry run, so that each applies to the same node.
func dryRun(t *testing.T, c kubernetes.Interface, node string, change nodeChange) error {
	t.Helper()
	var sub []string
	if change.status {
		sub = []string{"status"}
	}
	_, err := c.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(change.patch),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, sub...)
	return err
}

func labelled(key string, value any) string {
	return mustJSON(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
}

// conditions returns a patch of the node's conditions with one more; heartbeats must not count as changes.
func conditions(node *corev1.Node, more ...corev1.NodeCondition) string {
	return mustJSON(map[string]any{"status": map[string]any{"conditions": append(node.Status.Conditions, more...)}})
}

func mustJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// healthChanges are tried on the health agent's own node.
func healthChanges() map[string]nodeChange {
	const ofAnnotations = "the health agent may not change the annotations "
	const ofSpec = "the health agent may not change spec."
	annotated := func(key string) string { return `{"metadata":{"annotations":{"` + key + `":"{}"}}}` }
	return map[string]nodeChange{
		"its report":            {patch: annotated(healthAnnotation)},
		"annotation of another": {patch: annotated("team"), says: ofAnnotations + "team"},
		"what node discovery writes": {
			patch: annotated("nvidia.com/gpu-operator.gpus-on-bus"), says: ofAnnotations + "nvidia.com/gpu-operator.gpus-on-bus",
		},
		"label": {patch: labelled("team", "ml"), says: "the health agent may not change the labels team=ml"},
		"a label that the driver pauses": {
			patch: labelled("nvidia.com/gpu.deploy.dcgm", "paused-for-driver-upgrade"),
			says:  "the health agent may not change the labels nvidia.com/gpu.deploy.dcgm=",
		},
		"finalizer": {
			patch: `{"metadata":{"finalizers":["example.com/x"]}}`,
			says:  "the health agent may not change finalizers or owners",
		},
		"cordon": {patch: `{"spec":{"unschedulable":true}}`, says: ofSpec + "unschedulable"},
		"taint":  {patch: `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`, says: ofSpec + "taints"},
	}
}
