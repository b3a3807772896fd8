package guides

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// nextGangs is the API of gang scheduling in the newest supported release of Kubernetes, which is beta.
const nextGangs = "scheduling.k8s.io/v1beta1"

// TestGangSchedulingOnTheNextKubernetes: the sample needs another version of the API there, and nothing else. make
// test-next runs it.
func TestGangSchedulingOnTheNextKubernetes(t *testing.T) {
	if os.Getenv(cluster.VersionVariable) != cluster.Next {
		t.Skip("needs the newest release of Kubernetes: make test-next runs this test")
	}
	e := newCluster(t, cluster.Options{
		Version: cluster.Next, FeatureGates: []string{"GenericWorkload"}, APIs: []string{nextGangs},
	}, []simulator.NodeSpec{h100(gangNode, 6)})
	e.create(&v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cluster-policy"}})
	e.startOperator()
	gang(e, func(object *unstructured.Unstructured) {
		if object.GetKind() == "PodGroup" {
			object.SetAPIVersion(nextGangs)
		}
	})
}
