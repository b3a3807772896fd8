package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/yamlnode"
)

// validateOptions are the flags of validate.
type validateOptions struct {
	// path is a file or a folder.
	path, output string
}

// checkedExtensions are those of the files that are read of a folder.
var checkedExtensions = []string{".yaml", ".yml", ".json"}

// severity is how bad a result is.
type severity string

// The severities.
const (
	severityError severity = "error"
	severityNote  severity = "note"
	// severityValid: the object would be accepted.
	severityValid severity = "valid"
)

// result is an error or a note about an object or a file, or that an object is valid.
type result struct {
	File string `json:"file"`
	// Line in the file, from 1; 0 if it is not known.
	Line int `json:"line,omitempty"`
	// Kind and Name of the object; empty for a file that cannot be read.
	Kind     string   `json:"kind,omitempty"`
	Name     string   `json:"name,omitempty"`
	Field    string   `json:"field,omitempty"`
	Severity severity `json:"severity"`
	Message  string   `json:"message"`
}

// results is what validate prints as JSON. Fields are only added to it.
type results struct {
	Results []result `json:"results"`
	// Objects are the objects that were checked, and Refused those of them with an error.
	Objects int `json:"objects"`
	Refused int `json:"refused"`
	// Skipped are the files of the folder without any object of this operator.
	Skipped int `json:"skipped"`

	// unread are the errors of files that cannot be read. folder: a folder was given.
	unread []error
	folder bool
}

// validate checks the objects of the file or the folder.
func (o validateOptions) validate(ctx context.Context, in io.Reader) (*results, error) {
	files, folder, err := filesAt(o.path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.path, err)
	}
	found := &results{Results: []result{}, folder: folder}
	for _, file := range files {
		content, err := contentOf(file, in)
		if err != nil {
			found.addUnread(file, err)
			continue
		}
		if err := found.addFile(ctx, file, content); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// filesAt returns the file, or the files below a folder that may have objects, in the order of their paths.
func filesAt(path string) (files []string, folder bool, err error) {
	if path == stdin {
		return []string{path}, false, nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, false, err
	}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains(checkedExtensions, filepath.Ext(file)) {
			files = append(files, file)
		}
		return err
	})
	return files, true, err
}

// contentOf returns the content of a file, with the ends of lines of Unix.
func contentOf(file string, in io.Reader) (content []byte, err error) {
	if file == stdin {
		content, err = io.ReadAll(in)
	} else {
		content, err = os.ReadFile(file)
	}
	return bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n")), err
}

func (r *results) addUnread(file string, err error) {
	r.unread = append(r.unread, fmt.Errorf("reading %s: %w", file, err))
	r.Results = append(r.Results, result{File: file, Severity: severityError, Message: err.Error()})
}

// addFile adds the results of a file. Of a folder it skips a file without any object of this operator, also one that is
// no YAML: without the name of the group it has none.
func (r *results) addFile(ctx context.Context, file string, content []byte) error {
	if r.folder && !bytes.Contains(content, []byte(v1.GroupVersion.Group+"/")) {
		r.Skipped++
		return nil
	}
	all, err := located(content)
	if err != nil {
		r.addUnread(file, err)
		return nil
	}
	known := func(d placed) bool { _, known := definitionOf(d.text); return known }
	if r.folder && !slices.ContainsFunc(all, known) {
		r.Skipped++
		return nil
	}
	for _, one := range all {
		if err := r.addDocument(ctx, file, one); err != nil {
			return err
		}
	}
	return nil
}

// placed is a document of a file. line is that of the file on which it begins, from 1; 0 if that is not known.
type placed struct {
	text []byte
	line int
}

// located returns the documents of a file, without lists: their items have no line.
func located(content []byte) ([]placed, error) {
	all, err := documents(stdin, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	var found []placed
	from := 0
	for _, text := range all {
		line := 0
		if at := bytes.Index(content[from:], text); at >= 0 {
			line = bytes.Count(content[:from+at], []byte("\n")) + 1
			from += at + len(text)
		}
		items, err := withoutLists([][]byte{text})
		if err != nil {
			return nil, err
		}
		if len(items) == 1 && bytes.Equal(items[0], text) {
			found = append(found, placed{text, line})
			continue
		}
		for _, item := range items {
			found = append(found, placed{text: item})
		}
	}
	return found, nil
}

// addDocument adds the results of an object; none if it is of a kind that no policy names.
func (r *results) addDocument(ctx context.Context, file string, of placed) error {
	var problems, notes []problem
	definition, known := definitionOf(of.text)
	if known {
		var err error
		if problems, notes, err = checkNew(ctx, definition, of.text); err != nil {
			return err
		}
	} else if problems = checkNamed(of.text); len(problems) == 0 {
		return nil
	}
	add := func(severity severity, found problem) {
		one := result{
			File: file, Kind: kindOf(of.text).Kind, Name: nameOf(of.text), Field: found.field, Severity: severity,
			Message: found.message,
		}
		if line := yamlnode.Line(of.text, found.field); of.line > 0 && line > 0 {
			one.Line = of.line + line - 1
		}
		r.Results = append(r.Results, one)
	}
	for _, one := range problems {
		add(severityError, one)
	}
	for _, one := range notes {
		add(severityNote, one)
	}
	r.Objects++
	if len(problems) > 0 {
		r.Refused++
	} else {
		add(severityValid, problem{message: "would be accepted"})
	}
	return nil
}

// verdict returns an error if an object would be refused, a file cannot be read, or there is no object.
func (r *results) verdict() error {
	all := slices.Clone(r.unread)
	switch {
	case r.Refused > 0:
		all = append(all, fmt.Errorf("%d of %d objects would be refused", r.Refused, r.Objects))
	case r.Objects == 0 && len(all) == 0:
		all = append(all, errors.New("found no ClusterPolicy and no NVIDIADriver: check the kinds in the file"))
	}
	return errors.Join(all...)
}
