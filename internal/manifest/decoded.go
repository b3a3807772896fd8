package manifest

import (
	"fmt"
	"sync"
)

// maxDecoded is how many files are remembered: about twice those of a cluster with many node pools.
const maxDecoded = 128

// decodedFiles remembers the objects of the files that were decoded last, by the executed text: a pass mostly renders
// what the pass before has rendered, and decoding is most of its cost.
type decodedFiles struct {
	lock   sync.Mutex
	byText map[string][]Object
}

// objects returns the objects of a file. The caller may change them.
func (d *decodedFiles) objects(text []byte) ([]Object, error) {
	d.lock.Lock()
	known, isKnown := d.byText[string(text)]
	d.lock.Unlock()
	if isKnown {
		return copies(known)
	}
	found, err := decodeDocuments(text)
	if err != nil {
		return nil, err
	}
	kept, err := copies(found)
	if err != nil {
		return nil, err
	}
	d.keep(string(text), kept)
	return found, nil
}

// keep remembers the objects, and forgets those of any other file if there are too many.
func (d *decodedFiles) keep(text string, objects []Object) {
	d.lock.Lock()
	defer d.lock.Unlock()
	for other := range d.byText {
		if len(d.byText) < maxDecoded {
			break
		}
		delete(d.byText, other)
	}
	if d.byText == nil {
		d.byText = map[string][]Object{}
	}
	d.byText[text] = objects
}

func copies(objects []Object) ([]Object, error) {
	copied := make([]Object, len(objects))
	for i, object := range objects {
		c, isObject := object.DeepCopyObject().(Object)
		if !isObject {
			return nil, fmt.Errorf("a copy of %T is not an API object", object)
		}
		copied[i] = c
	}
	return copied, nil
}
