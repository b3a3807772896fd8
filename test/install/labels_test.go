package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const discoveryPrefix = "feature.node.kubernetes.io/"

// watchLabels follows the labels of Node Feature Discovery on all nodes. The function that it returns ends that, and
// returns which were changed or missing at any time since.
func (e *env) watchLabels() func() []string {
	e.t.Helper()
	nodes := kubernetes.NewForConfigOrDie(e.cluster.Config).CoreV1().Nodes()
	list, err := nodes.List(e.t.Context(), metav1.ListOptions{})
	e.Expect(err).NotTo(HaveOccurred())
	before := map[string]map[string]string{}
	for i := range list.Items {
		before[list.Items[i].Name] = discovered(&list.Items[i])
		e.Expect(before[list.Items[i].Name]).NotTo(BeEmpty())
	}
	ctx, cancel := context.WithCancel(e.t.Context())
	watch, err := nodes.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	e.Expect(err).NotTo(HaveOccurred())
	found := make(chan []string, 1)
	go func() {
		var lost []string
		for event := range watch.ResultChan() {
			node, isNode := event.Object.(*corev1.Node)
			if !isNode && ctx.Err() != nil {
				break
			}
			if !isNode {
				lost = append(lost, fmt.Sprintf("watch: %v", event.Object))
				continue
			}
			now := discovered(node)
			for _, key := range slices.Sorted(maps.Keys(before[node.Name])) {
				if now[key] != before[node.Name][key] {
					lost = append(lost, fmt.Sprintf("%s: %s=%s", node.Name, key, now[key]))
				}
			}
		}
		if ctx.Err() == nil {
			lost = append(lost, "the watch has ended too early")
		}
		found <- lost
	}()
	return func() []string {
		cancel()
		return <-found
	}
}

// discovered returns the labels of Node Feature Discovery on a node.
func discovered(node *corev1.Node) map[string]string {
	labels := maps.Clone(node.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool {
		return !strings.HasPrefix(key, discoveryPrefix) && key != nfdOfRule
	})
	return labels
}
