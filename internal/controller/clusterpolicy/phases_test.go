package clusterpolicy

import (
	"errors"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestLogRead(t *testing.T) {
	g := NewWithT(t)
	var logged []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	r := &Reconciler{failedReads: map[string]string{}}
	first, second := errors.New("first"), errors.New("second")
	for _, err := range []error{nil, first, first, second, nil, second} {
		(&scope{Reconciler: r}).logRead(ctx, err, "Reading A failed")
	}
	(&scope{Reconciler: r}).logRead(ctx, second, "Reading B failed")
	g.Expect(logged).To(HaveExactElements(
		And(ContainSubstring("Reading A"), ContainSubstring("first")),
		And(ContainSubstring("Reading A"), ContainSubstring("second")),
		And(ContainSubstring("Reading A"), ContainSubstring("second")),
		And(ContainSubstring("Reading B"), ContainSubstring("second")),
	))
}
