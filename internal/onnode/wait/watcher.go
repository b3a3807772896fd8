package wait

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watcher reports changes in a directory or, while that is missing, in its nearest parent that exists. The zero
// value reports nothing.
type watcher struct {
	notify  *fsnotify.Watcher
	watched string
}

func newWatcher() (*watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &watcher{notify: notify}, nil
}

// follow watches dir, or its nearest parent. Call it before each look at the directory: adding an existing watch
// costs one system call, and one whose directory was replaced is renewed.
func (w *watcher) follow(dir string) error {
	if w.notify == nil {
		return nil
	}
	for {
		target := nearest(dir)
		if err := w.notify.Add(target); err != nil {
			if errors.Is(err, fs.ErrNotExist) && target != filepath.Dir(target) {
				continue // Removed since it was found.
			}
			return err
		}
		if w.watched != "" && w.watched != target {
			// Fails where the old directory is gone, together with its watch.
			_ = w.notify.Remove(w.watched)
		}
		w.watched = target
		if nearest(dir) == target {
			return nil
		}
		// A child was created before its parent was watched: there is no event for it.
	}
}

// nearest returns dir, or its nearest existing parent.
func nearest(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// events returns the channel of events; nil, so never ready, without inotify.
func (w *watcher) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

// overflows returns the channel of lost events, when the kernel's queue was full. Receive from it and events.
func (w *watcher) overflows() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}
