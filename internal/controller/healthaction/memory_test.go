package healthaction

import "testing"

// Nothing is remembered of a node that has left.
func TestPruneForgetsNodesThatHaveLeft(t *testing.T) {
	m := newMemory()
	for _, node := range []string{"stays", "leaves"} {
		m.versions[node], m.failures[node] = "1", failure{message: "refused"}
		m.rejections[node] = rejection{message: "refused"}
	}
	m.prune(func(node string) bool { return node == "stays" })
	if len(m.versions) != 1 || m.versions["stays"] == "" {
		t.Errorf("the versions are of %v, want that of the node that stays", m.versions)
	}
	if len(m.failures) != 1 || m.failures["stays"].message == "" {
		t.Errorf("the failures are of %v, want that of the node that stays", m.failures)
	}
	if len(m.rejections) != 1 || m.rejections["stays"].message == "" {
		t.Errorf("the rejections are of %v, want that of the node that stays", m.rejections)
	}
}
