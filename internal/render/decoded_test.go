package render

import (
	"fmt"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

func configMap(name string) []byte {
	return fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  labels: {a: b}\n", name)
}

func fresh() *decodedTexts { return &decodedTexts{known: map[[32]byte][]Object{}} }

// What a caller changes in its objects, another one does not see.
func TestDecodedObjectsAreTheCallersOwn(t *testing.T) {
	g := NewWithT(t)
	texts := fresh()
	for range 3 {
		objects, err := texts.of(configMap("one"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(objects).To(HaveLen(1))
		g.Expect(objects[0].GetName()).To(Equal("one"))
		g.Expect(objects[0].GetLabels()).To(Equal(map[string]string{"a": "b"}))
		objects[0].GetLabels()["a"] = "changed"
		objects[0].SetName("changed")
	}
	g.Expect(texts.known).To(HaveLen(1))
}

func TestDecodedTextsAreBounded(t *testing.T) {
	g := NewWithT(t)
	texts := fresh()
	for i := range 3 * decodedAtMost {
		name := fmt.Sprintf("map-%d", i)
		objects, err := texts.of(configMap(name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(objects[0].GetName()).To(Equal(name))
	}
	g.Expect(len(texts.known)).To(BeNumerically("<=", decodedAtMost))
}

// A wrong text is wrong each time, and nothing of it is kept.
func TestATextThatCannotBeDecodedIsNotKept(t *testing.T) {
	g := NewWithT(t)
	texts := fresh()
	for range 2 {
		_, err := texts.of([]byte("apiVersion: v1\nkind: ConfigMap\nunknown: true\n"))
		g.Expect(err).To(MatchError(ContainSubstring(`unknown field "unknown"`)))
	}
	g.Expect(texts.known).To(BeEmpty())
}

// With the race detector this finds an access that is not guarded.
func TestDecodedTextsMayBeUsedAtTheSameTime(t *testing.T) {
	texts := fresh()
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("map-%d", (worker+i)%5)
				if objects, err := texts.of(configMap(name)); err != nil || objects[0].GetName() != name {
					t.Errorf("%s: %v, %v", name, objects, err)
				}
			}
		})
	}
	all.Wait()
}
