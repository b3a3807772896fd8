package migrationsteps

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
	"github.com/clusterpolicy/gpu-operator/test/golden"
)

// wholeStep shows all fields of a Step.
type wholeStep struct {
	Action          Action `json:"action"`
	cleanup.Object  `json:",inline"`
	ResourceVersion string                  `json:"resourceVersion,omitempty"`
	Owners          []metav1.OwnerReference `json:"owners,omitempty"`
	Selector        string                  `json:"selector,omitempty"`
	Annotations     []string                `json:"annotations,omitempty"`
	Nodes           []string                `json:"nodes,omitempty"`
	Patch           map[string]any          `json:"patch,omitempty"`
	StatusPatch     map[string]any          `json:"statusPatch,omitempty"`
}

func whole(steps []Step) []wholeStep {
	var found []wholeStep
	for i := range steps {
		found = append(found, wholeStep(steps[i]))
	}
	return found
}

// story is what a golden file shows of a cluster. The steps of the report are the others.
type story struct {
	Namespace     string      `json:"namespace"`
	FinishRefusal string      `json:"finishRefusal"`
	Report        *Report     `json:"report"`
	Stop          []wholeStep `json:"stop"`
	KnownFinish   []wholeStep `json:"knownFinish"`
	Finish        []wholeStep `json:"finish"`
}

// The golden files show everything that is planned for the cluster beside them. UPDATE_GOLDEN=1 writes them.
func TestGoldens(t *testing.T) {
	there := func(c *Cluster) (*Report, []Step, string) {
		r := Of(&Facts{Cluster: *c, Notes: []string{"first"}, Unreadable: "no preview", Preview: &preview.Preview{
			Policy: "previewed", Notes: []string{"second"}, Invalid: []string{"driver", "toolkit"}, Objects: []preview.Change{
				{Action: preview.Update, Kind: kindDaemonSet, Name: "nvidia-dcgm", Pods: preview.PodsRoll, Field: "spec"},
				{Action: preview.Delete, Kind: kindDaemonSet, Name: "nvidia-gpu-driver-a", Pods: preview.PodsStay},
				{Action: preview.Delete, Kind: kindDaemonSet, Name: "nvidia-gpu-driver-b", Pods: preview.PodsOutdated},
				{Action: preview.Delete, Kind: kindDaemonSet, Name: "nvidia-vfio-manager"},
				{Action: preview.Refuse, Kind: kindDaemonSet, Name: "nvidia-mig-manager", Field: "spec", Message: "not ours"},
				{Action: preview.Delete, Kind: "Service", Name: "nvidia-driver-daemonset"},
			},
		}})
		return r, c.Finish(), c.FinishRefusal()
	}
	back := func(c *Cluster) (*Report, []Step, string) {
		b, err := NewBack(c)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return b.Report(), b.Finish(), b.FinishRefusal()
	}
	for name, plan := range map[string]func(*Cluster) (*Report, []Step, string){
		"there": there, "back": back, "finish": back,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text, err := os.ReadFile("testdata/" + name + ".yaml")
			g.Expect(err).NotTo(HaveOccurred())
			c := &Cluster{Objects: parsed(g, strings.Split(string(text), "---\n")...)}
			r, finish, refusal := plan(c)
			s := story{c.Namespace(), refusal, r, whole(r.Stop), whole(r.Finish), whole(finish)}
			r.Stop, r.Finish = nil, nil
			found, err := yaml.Marshal(s)
			g.Expect(err).NotTo(HaveOccurred())
			golden.Compare(t, "testdata/"+name+".golden", string(found))
		})
	}
}
