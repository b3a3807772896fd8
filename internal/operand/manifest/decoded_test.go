package manifest_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

func configMap(i int) []byte {
	return fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: map-%d}\ndata: {key: value}\n", i)
}

// Who gets an object may change it: the next one gets what is in the file.
func TestDecodedObjectsAreIndependent(t *testing.T) {
	g := NewWithT(t)
	files := manifest.DecodedFiles{}
	for range 3 {
		objects, err := files.Objects(configMap(1))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(objects).To(ConsistOf(And(HaveField("Name", "map-1"), HaveField("Data", HaveLen(1)))))
		object, isConfigMap := objects[0].(*corev1.ConfigMap)
		g.Expect(isConfigMap).To(BeTrue())
		object.Name, object.Data["more"] = "another", "value"
	}
}

// Each upgrade of the driver renders a file that is never read again; the others stay the same. What is remembered of
// them must not grow with the upgrades.
func TestFilesOfOldVersionsAreForgotten(t *testing.T) {
	g := NewWithT(t)
	files := manifest.DecodedFiles{}
	read := func(i int) {
		_, err := files.Objects(configMap(i))
		g.Expect(err).NotTo(HaveOccurred())
	}
	const same, upgrades = 31, 50
	for upgrade := range upgrades {
		for i := range same {
			read(i)
		}
		read(same + upgrade)
	}
	g.Expect(files.Len()).To(BeNumerically("<=", same+manifest.KeptReads/(same+1)+1))
	g.Expect(files.Len()).To(BeNumerically(">", same))
	before := files.Len()
	for i := range same {
		read(i)
	}
	g.Expect(files.Len()).To(Equal(before), "the files that are still read are remembered")
}

func TestDecodedFilesAreBounded(t *testing.T) {
	g := NewWithT(t)
	files := manifest.DecodedFiles{}
	for i := range 3 * manifest.KeptReads {
		objects, err := files.Objects(configMap(i))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(objects).To(ConsistOf(HaveField("Name", fmt.Sprintf("map-%d", i))))
		g.Expect(files.Len()).To(BeNumerically("<=", manifest.KeptReads))
	}
	_, err := files.Objects([]byte("apiVersion: v1\nkind: ConfigMap\nunknown: 1\n"))
	g.Expect(err).To(MatchError(ContainSubstring(`unknown field "unknown"`)))
}
