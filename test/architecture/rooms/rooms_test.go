package rooms_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/architecture/rooms"
)

func TestRoomsAreOrderedByTheirImports(t *testing.T) {
	g := NewWithT(t)
	all := rooms.Arrows{"cmd": {"plan": true, "names": true}, "plan": {"kube": true, "names": true},
		"kube": {"names": true}, "names": {}}
	g.Expect(all.Ordered()).To(Equal([]string{"names", "kube", "plan", "cmd"}))
	g.Expect(all.Reaches("cmd", "names")).To(BeTrue())
	g.Expect(all.Reaches("cmd", "plan")).To(BeFalse(), "one arrow is no way around")
	g.Expect(all.Reaches("names", "cmd")).To(BeFalse())

	all["names"]["plan"] = true
	_, err := all.Ordered()
	g.Expect(err).To(MatchError(ContainSubstring("rooms import each other: ")))
}
