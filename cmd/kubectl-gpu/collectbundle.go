package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/kube/redact"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

// bundleIndex is index.json of a bundle.
type bundleIndex struct {
	// Plugin is the release of the plugin, and Created when the bundle was made.
	Plugin  string    `json:"plugin"`
	Created time.Time `json:"created"`
	// Files of the bundle, without summary.txt and index.json.
	Files []bundleFile `json:"files"`
	// Redacted counts what was removed, by what it was.
	Redacted map[string]int `json:"redacted"`
	// Missing are the parts that could not be read, or had no place.
	Missing []missingPart `json:"missing,omitempty"`
}

// bundleFile is a file of the bundle.
type bundleFile struct {
	Name string `json:"name"`
	// Source is the path of the API server that it is from; empty if the plugin has computed it.
	Source string `json:"source,omitempty"`
	// Objects in the file; 0 for a text. Bytes is its size.
	Objects int `json:"objects,omitempty"`
	Bytes   int `json:"bytes"`
	// Cut: the source has more.
	Cut bool `json:"cut,omitempty"`
}

// missingPart is something that the bundle lacks.
type missingPart struct {
	Name   string `json:"name"`
	Source string `json:"source,omitempty"`
	Reason string `json:"reason"`
}

// content is a file before its last redaction: a text, objects, or what a page shows.
type content struct {
	file    bundleFile
	text    string
	objects []any
	page    map[string]any
}

// bundle collects files. It is safe for concurrent use.
type bundle struct {
	mu       sync.Mutex
	redactor *redact.Redactor
	contents []content
	index    bundleIndex
	// left is how many bytes may still be added, and full is set once something did not fit.
	left int64
	full bool
}

func newBundle(now time.Time, size int64) *bundle {
	return &bundle{
		redactor: redact.New(), left: size, index: bundleIndex{Plugin: version.Version, Created: now, Files: []bundleFile{}},
	}
}

// redactText returns a text without credentials.
func (b *bundle) redactText(text string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.redactor.RedactText(text)
}

// errFull: the bundle has its maximal size.
var errFull = errors.New("the bundle is full: raise --max-size")

// addText adds a text, in which credentials are redacted here.
func (b *bundle) addText(file bundleFile, text string) {
	b.add(content{file: file, text: b.redactText(text)}, len(text))
}

func (b *bundle) add(c content, size int) {
	b.mu.Lock()
	fits := b.left >= int64(size)
	b.full = b.full || !fits
	if fits {
		b.left -= int64(size)
		b.contents = append(b.contents, c)
	}
	b.mu.Unlock()
	if !fits {
		b.missing(c.file.Name, c.file.Source, errFull)
	}
}

// isFull reports whether something did not fit.
func (b *bundle) isFull() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full
}

// missing takes down what could not be read.
func (b *bundle) missing(name, source string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index.Missing = append(b.index.Missing, missingPart{name, source, b.redactor.RedactText(err.Error())})
}

// write writes the bundle, with all files in one folder.
func (b *bundle) write(out io.Writer, folder string) error {
	files, err := b.finish()
	if err != nil {
		return err
	}
	packed := gzip.NewWriter(out)
	archive := tar.NewWriter(packed)
	for _, file := range files {
		header := &tar.Header{
			Name: folder + "/" + file.name, Mode: 0o600, Size: int64(len(file.text)), ModTime: b.index.Created,
			Typeflag: tar.TypeReg,
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}
		if _, err := io.WriteString(archive, file.text); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}
	}
	if err := errors.Join(archive.Close(), packed.Close()); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	return nil
}

// finished is a file as it is written.
type finished struct{ name, text string }

// finish returns the files in order: what to read first, and then the others by name.
func (b *bundle) finish() ([]finished, error) {
	slices.SortFunc(b.contents, func(x, y content) int { return cmp.Compare(x.file.Name, y.file.Name) })
	var files []finished
	for i := range b.contents {
		c := &b.contents[i]
		text, err := b.textOf(c)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", c.file.Name, err)
		}
		c.file.Bytes, c.file.Objects = len(text), len(c.objects)
		b.index.Files = append(b.index.Files, c.file)
		files = append(files, finished{c.file.Name, text})
	}
	for i := range b.index.Missing {
		b.index.Missing[i].Reason = b.redactor.Finish(b.index.Missing[i].Reason)
	}
	slices.SortFunc(b.index.Missing, func(x, y missingPart) int { return cmp.Compare(x.Name, y.Name) })
	b.index.Redacted = b.redactor.Count
	index, err := json.MarshalIndent(b.index, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding index.json: %w", err)
	}
	first := []finished{{"summary.txt", b.summary(files)}, {"index.json", string(index) + "\n"}}
	return append(first, files...), nil
}

// textOf returns the text of a file, without the credentials that were found in others.
func (b *bundle) textOf(c *content) (string, error) {
	switch {
	case c.objects != nil:
		encoded, err := yaml.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "List", "items": b.redactor.FinishObject(c.objects),
		})
		return string(encoded), err
	case c.page != nil:
		b.redactor.FinishObject(c.page)
		return pageText(c.page, b.index.Created)
	}
	return b.redactor.Finish(c.text), nil
}

// summary returns a text that lists what is in the bundle.
func (b *bundle) summary(files []finished) string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "Bundle of kubectl gpu %s, made %s.\n", b.index.Plugin, b.index.Created.Format(time.RFC3339))
	for _, file := range files {
		if file.name == statusFile {
			fmt.Fprintf(text, "\n%s", file.text)
		}
	}
	text.WriteString("\nFiles\n")
	for _, file := range b.index.Files {
		fmt.Fprintf(text, "  %s (%d bytes)\n", file.Name, file.Bytes)
	}
	text.WriteString("\nRedacted\n")
	for _, what := range slices.Sorted(maps.Keys(b.index.Redacted)) {
		fmt.Fprintf(text, "  %s: %d\n", what, b.index.Redacted[what])
	}
	if len(b.index.Missing) > 0 {
		text.WriteString("\nNot read\n")
	}
	for _, part := range b.index.Missing {
		fmt.Fprintf(text, "  %s: %s\n", part.Name, part.Reason)
	}
	return text.String()
}
