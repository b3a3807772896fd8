package render

import (
	"crypto/sha256"
	"fmt"
	"sync"
)

// decoded is what texts were decoded to. The operator renders the same texts in every pass, and decoding them
// strictly is most of what a pass costs.
var decoded = decodedTexts{known: map[[sha256.Size]byte][]Object{}}

// decodedAtMost bounds the texts that are kept: many times those of a cluster, which has one for each operand
// and one for each pool or layout.
const decodedAtMost = 256

// decodedTexts depends on the texts alone: with and without it the same is rendered. Passes may use it at the
// same time.
type decodedTexts struct {
	mutex sync.Mutex
	known map[[sha256.Size]byte][]Object
}

// of decodes every document of a text. The objects are the caller's to change.
func (d *decodedTexts) of(text []byte) ([]Object, error) {
	key := sha256.Sum256(text)
	d.mutex.Lock()
	objects, known := d.known[key]
	d.mutex.Unlock()
	if !known {
		fresh, err := decodeDocuments(text)
		if err != nil {
			return nil, err
		}
		objects = fresh
		d.keep(key, objects)
	}
	return copies(objects)
}

func (d *decodedTexts) keep(key [sha256.Size]byte, objects []Object) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if len(d.known) >= decodedAtMost {
		// Most are of specs and pools that are gone; those that are not are decoded once more.
		clear(d.known)
	}
	d.known[key] = objects
}

func copies(objects []Object) ([]Object, error) {
	result := make([]Object, 0, len(objects))
	for _, object := range objects {
		another, isObject := object.DeepCopyObject().(Object)
		if !isObject {
			return nil, fmt.Errorf("%s cannot be copied", object.GetObjectKind().GroupVersionKind())
		}
		result = append(result, another)
	}
	return result, nil
}
