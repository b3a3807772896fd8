package observe_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// pages answers each list with the next page, and records what was asked.
type pages struct {
	answers []*corev1.PodList
	asked   []metav1.ListOptions
}

func (p *pages) list(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	p.asked = append(p.asked, options)
	if len(p.answers) == 0 {
		return nil, apierrors.NewResourceExpired("the page has expired")
	}
	next := p.answers[0]
	p.answers = p.answers[1:]
	return next, nil
}

// podPage is a page with these pods, after which others follow if there is a token.
func podPage(token string, names ...string) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: token}}
	for _, name := range names {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: "removed"}})
	}
	return list
}

func trimmedName(object any) (any, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return object, nil
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}, nil
}

func (p *pages) source() toolscache.ListerWatcherWithContext {
	return toolscache.ToListerWatcherWithContext(
		observe.InPages(&toolscache.ListWatch{ListWithContextFunc: p.list}, trimmedName))
}

func TestInPages(t *testing.T) {
	selected := metav1.ListOptions{LabelSelector: "a=b", ResourceVersion: "3", ResourceVersionMatch: "NotOlderThan"}
	for name, test := range map[string]struct {
		answers []*corev1.PodList
		names   []string
		tokens  []string
	}{
		"one": {[]*corev1.PodList{podPage("", "a", "b")}, []string{"a", "b"}, []string{""}},
		"several": {[]*corev1.PodList{podPage("2", "a"), podPage("3", "b"), podPage("", "c")}, []string{"a", "b", "c"},
			[]string{"", "2", "3"}},
		"none": {[]*corev1.PodList{podPage("")}, nil, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			served := &pages{answers: test.answers}
			list, err := served.source().ListWithContext(t.Context(), selected)
			g.Expect(err).NotTo(HaveOccurred())
			items, err := meta.ExtractListWithAlloc(list)
			g.Expect(err).NotTo(HaveOccurred())
			var want []runtime.Object
			for _, name := range test.names {
				want = append(want, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			g.Expect(items).To(HaveExactElements(want))
			of, err := meta.ListAccessor(list)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(of).To(And(HaveField("GetResourceVersion()", "7"), HaveField("GetContinue()", "")))
			var asked []metav1.ListOptions
			for _, token := range test.tokens {
				asked = append(asked, metav1.ListOptions{LabelSelector: "a=b", Limit: 500, Continue: token})
			}
			g.Expect(served.asked).To(Equal(asked))
		})
	}
}

// A list that expires is not read as a whole: the informer begins again.
func TestInPagesFailsIfAPageExpires(t *testing.T) {
	g := NewWithT(t)
	served := &pages{answers: []*corev1.PodList{podPage("2", "a")}}
	_, err := served.source().ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	g.Expect(apierrors.IsResourceExpired(err)).To(BeTrue(), "%v", err)
	g.Expect(served.asked).To(HaveLen(2))
}

func TestInPagesStreamsWhatItsSourceStreams(t *testing.T) {
	g := NewWithT(t)
	without := toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{}, noStreams{})
	with := toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{}, nil)
	g.Expect(watchlist.DoesClientNotSupportWatchListSemantics(observe.InPages(without, trimmedName))).To(BeTrue())
	g.Expect(watchlist.DoesClientNotSupportWatchListSemantics(observe.InPages(with, trimmedName))).To(BeFalse())
}

type noStreams struct{}

func (noStreams) IsWatchListSemanticsUnSupported() bool { return true }
