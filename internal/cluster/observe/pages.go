package observe

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/watchlist"
)

// InPages returns the source with lists that are read in pages of 500, each of which is trimmed before the next is
// read. By itself an informer asks for a list of any age, of which the API server ignores the limit, and trims the
// objects after all of them were decoded: 5,000 nodes have pods of 800 MB. So a list here is the most recent one. It
// fails if it expires between pages, and the informer then lists again. Trim must be idempotent, as the informer trims
// too. A server that streams lists, as from Kubernetes 1.34, is asked for none.
func InPages(source toolscache.ListerWatcher, trim toolscache.TransformFunc) toolscache.ListerWatcher {
	return pagedSource{
		ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(source), trim: trim,
		noStreams: watchlist.DoesClientNotSupportWatchListSemantics(source),
	}
}

type pagedSource struct {
	toolscache.ListerWatcherWithContext
	trim toolscache.TransformFunc
	// noStreams: the client does not support streamed lists.
	noStreams bool
}

// IsWatchListSemanticsUnSupported is how informers ask for noStreams.
func (s pagedSource) IsWatchListSemanticsUnSupported() bool { return s.noStreams }

// List implements toolscache.Lister.
func (s pagedSource) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch implements toolscache.Watcher.
func (s pagedSource) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// ListWithContext implements toolscache.ListerWithContext.
func (s pagedSource) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	pages := pager.New(s.page)
	pages.FullListIfExpired = false
	list, _, err := pages.ListWithAlloc(ctx, options)
	return list, err
}

// page reads one page and trims it.
func (s pagedSource) page(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	page, err := s.ListerWatcherWithContext.ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	of, err := meta.ListAccessor(page)
	if err != nil {
		return nil, err
	}
	trimmed := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue(), RemainingItemCount: of.GetRemainingItemCount(),
	}}
	err = meta.EachListItem(page, func(object runtime.Object) error {
		item, err := s.trim(object)
		if err != nil {
			return err
		}
		if kept, isObject := item.(runtime.Object); isObject {
			trimmed.Items = append(trimmed.Items, kept)
		}
		return nil
	})
	return trimmed, err
}
