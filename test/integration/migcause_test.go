package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// managersLog answers as the kubelet of a node with the log of the MIG manager.
type managersLog struct {
	text []byte
	// broken: the kubelet cannot read it.
	broken atomic.Bool
	// wrong is the last request for anything else; nil for none.
	wrong atomic.Pointer[string]
}

func (l *managersLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.RequestURI()
	if !strings.HasPrefix(asked, "/containerLogs/"+namespace+"/nvidia-mig-manager-") || !strings.HasSuffix(asked,
		"/nvidia-mig-manager?limitBytes=131072&tailLines=200") {
		l.wrong.Store(&asked)
	}
	if l.broken.Load() {
		http.Error(w, "the log was removed", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(l.text)
}

// TestTheWordsOfTheMIGManager: a MIG layout that could not be applied is reported with the words of the MIG manager,
// which the operator reads once, through the API server, from the kubelet of the node.
func TestTheWordsOfTheMIGManager(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	address := hostAddress(t)
	needsAddress(t, address)
	e := newEnv(t, envOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "partitioned", Model: simulator.ModelH100})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	text, err := os.ReadFile(filepath.Join(repo, "internal/node/miglog/testdata/no-room.v0.15.log"))
	e.Expect(err).NotTo(HaveOccurred())
	log := &managersLog{text: text}
	e.standInForKubelets(log, address, "partitioned")
	e.sim.Break("mig-manager", "partitioned", simulator.MIGFails)

	mark := e.mark()
	e.requestLayout("all-3g.40gb")
	const words = `the MIG manager: "Error creating GPU instance for '3g.40gb': Insufficient Resources"`
	e.Eventually(e.partitionedCondition).WithTimeout(readyTime).Should(And(
		HaveField("Reason", "MIGConfigFailed"),
		HaveField("Message", MatchRegexp(`: see kubectl -n %s logs nvidia-mig-manager-\S+: %s$`, namespace, words))))
	e.settled()
	e.Expect(e.logReads(mark)).To(HaveLen(1))
	e.quietFor("after a failed layout", e.idle)

	log.broken.Store(true)
	e.requestLayout(labels.MIGAllDisabled)
	e.Eventually(e.partitionedCondition).WithTimeout(readyTime).Should(HaveField("Status", corev1.ConditionTrue))
	mark = e.mark()
	e.requestLayout("all-1g.10gb")
	e.Eventually(func() cluster.Calls { return e.logReads(mark) }).WithTimeout(readyTime).Should(HaveLen(3))
	e.settled()
	e.Expect(e.partitionedCondition()).To(And(HaveField("Reason", "MIGConfigFailed"),
		HaveField("Message", MatchRegexp(`MIG layout all-1g.10gb .*: see kubectl -n %s logs nvidia-mig-manager-\S+$`,
			namespace))))
	e.Expect(e.logReads(mark)).To(HaveLen(3), "not again")
	e.Expect(log.wrong.Load()).To(BeNil(), "the operator asks for nothing else of the kubelet")
}

// requestLayout requests a MIG layout for the node with MIG.
func (e *env) requestLayout(layout string) {
	e.t.Helper()
	e.Expect(e.client.Patch(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "partitioned"}},
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+labels.MIGConfig+`":"`+layout+`"}}}`)),
	)).To(Succeed())
}

func (e *env) partitionedCondition() *corev1.NodeCondition {
	return nodeCondition(e.node("partitioned"))
}

// logReads returns the operator's reads of logs since the mark.
func (e *env) logReads(mark cluster.Mark) cluster.Calls {
	var reads cluster.Calls
	for _, call := range e.operatorCalls(mark) {
		if call.Subresource == "log" {
			reads = append(reads, call)
		}
	}
	return reads
}
