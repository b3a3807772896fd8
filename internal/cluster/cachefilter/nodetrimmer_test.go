package cachefilter_test

import (
	"reflect"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
)

// A Node gets the labels that are known of it, without a copy, if they are equal, and else its own.
func TestNodesShareKnownLabels(t *testing.T) {
	known := map[string]string{"a": "1", "b": "2"}
	trimmer := cachefilter.NewNodeTrimmer(func(node string) map[string]string {
		return map[string]map[string]string{"known": known}[node]
	})
	for name, test := range map[string]struct {
		node   string
		labels map[string]string
		shared bool
	}{
		"equal labels":          {node: "known", labels: map[string]string{"a": "1", "b": "2"}, shared: true},
		"another value":         {node: "known", labels: map[string]string{"a": "1", "b": "3"}},
		"one more":              {node: "known", labels: map[string]string{"a": "1", "b": "2", "c": "3"}},
		"one less":              {node: "known", labels: map[string]string{"a": "1"}},
		"a node that has none":  {node: "known", labels: nil},
		"a node without labels": {node: "new", labels: nil},
		"a node that is new":    {node: "new", labels: map[string]string{"a": "1", "b": "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			sent := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: test.node, Labels: test.labels}}
			kept, err := trimmer.Node(sent)
			g.Expect(err).NotTo(HaveOccurred())
			node, isNode := kept.(*corev1.Node)
			g.Expect(isNode).To(BeTrue())
			g.Expect(node.Labels).To(HaveLen(len(test.labels)))
			for key, value := range test.labels {
				g.Expect(node.Labels).To(HaveKeyWithValue(key, value))
			}
			same := reflect.ValueOf(node.Labels).Pointer() == reflect.ValueOf(known).Pointer()
			g.Expect(same).To(Equal(test.shared))
		})
	}
}
