package manifest

import (
	"fmt"
	"sync"
)

// keptReads is after how many reads of other files one is forgotten: about twice the files of a cluster with many node
// pools. So no more files than this are remembered, and a file with an old version of a driver is forgotten soon.
const keptReads = 128

// decodedFiles remembers the objects of the files that were read last, by the executed text: a pass mostly renders what
// the pass before has rendered, and decoding is most of its cost.
type decodedFiles struct {
	lock sync.Mutex
	// reads counts them.
	reads  uint64
	byText map[string]*decodedFile
}

// decodedFile has the objects of a file, and the number of the read that was the last one of it.
type decodedFile struct {
	objects []Object
	read    uint64
}

// objects returns the objects of a file. The caller may change them.
func (d *decodedFiles) objects(text []byte) ([]Object, error) {
	if known := d.find(text); known != nil {
		return copies(known.objects)
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

// find counts a read of the file, and returns it if it is remembered, else nil.
func (d *decodedFiles) find(text []byte) *decodedFile {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.reads++
	known := d.byText[string(text)]
	if known != nil {
		known.read = d.reads
	}
	return known
}

// keep remembers the objects, and forgets those of files that have not been read for long.
func (d *decodedFiles) keep(text string, objects []Object) {
	d.lock.Lock()
	defer d.lock.Unlock()
	for other, file := range d.byText {
		if d.reads-file.read >= keptReads {
			delete(d.byText, other)
		}
	}
	if d.byText == nil {
		d.byText = map[string]*decodedFile{}
	}
	d.byText[text] = &decodedFile{objects: objects, read: d.reads}
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
