package main

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// formatJUnit is the XML of test results that CI systems read.
const formatJUnit = "junit"

// validateFormats are the formats of validate.
var validateFormats = []string{formatText, formatJSON, formatJUnit}

// encode returns the results in a format.
func (r *results) encode(format string) ([]byte, error) {
	switch format {
	case formatJSON:
		return encode(r, formatJSON)
	case formatJUnit:
		return r.junit()
	}
	return []byte(r.text()), nil
}

// text returns the results as people read them. Files that cannot be read are in the error of the command.
func (r *results) text() string {
	text := &strings.Builder{}
	for i := range r.Results {
		one := &r.Results[i]
		if one.Kind == "" || one.Severity == severityValid {
			continue
		}
		if r.folder {
			text.WriteString(one.place() + ": ")
		}
		fmt.Fprintln(text, one.sentence())
	}
	if r.Objects > 0 && r.Refused == 0 {
		fmt.Fprintf(text, "%d of %d objects are valid.\n", r.Objects, r.Objects)
	}
	if r.Skipped > 0 {
		fmt.Fprintf(text, "%s without such an object skipped.\n", count(r.Skipped, "file"))
	}
	return text.String()
}

// place returns the file, and the line if it is known.
func (r *result) place() string {
	if r.Line == 0 {
		return r.File
	}
	return fmt.Sprintf("%s:%d", r.File, r.Line)
}

// object returns the kind and the name of the object; empty for a file.
func (r *result) object() string { return strings.TrimSpace(r.Kind + " " + r.Name) }

// sentence names the object and its field, and says what is wrong.
func (r *result) sentence() string {
	message := problem{r.Field, r.Message}.String()
	if r.Severity == severityNote {
		message = "note: " + message
	}
	if r.object() == "" {
		return message
	}
	return r.object() + ": " + message
}

// junitSuites is the root of results of tests in the format of JUnit, with the elements and attributes that CI systems
// have in common.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

// junitSuite has the results of one file.
type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Cases    []junitCase `xml:"testcase"`
}

// junitCase is one result. A note is a case that has passed, with an output.
type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr,omitempty"`
	Failure *junitFailure `xml:"failure"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// junit returns the results as XML, with a suite for each file.
func (r *results) junit() ([]byte, error) {
	all := junitSuites{Name: "kubectl gpu validate", Tests: len(r.Results)}
	for i := range r.Results {
		one := &r.Results[i]
		at := slices.IndexFunc(all.Suites, func(suite junitSuite) bool { return suite.Name == one.File })
		if at < 0 {
			at = len(all.Suites)
			all.Suites = append(all.Suites, junitSuite{Name: one.File})
		}
		suite := &all.Suites[at]
		suite.Cases = append(suite.Cases, one.junit())
		suite.Tests++
		if one.Severity == severityError {
			suite.Failures++
			all.Failures++
		}
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	return append([]byte(xml.Header), append(text, '\n')...), err
}

func (r *result) junit() junitCase {
	found := junitCase{Name: strings.TrimSpace(r.object() + " " + r.Field), Class: r.File, File: r.File, Line: r.Line}
	if found.Name == "" {
		found.Name = r.File
	}
	switch r.Severity {
	case severityError:
		found.Failure = &junitFailure{
			Message: r.Message, Type: string(r.Severity), Text: r.place() + ": " + r.sentence(),
		}
	case severityNote:
		found.Output = r.place() + ": " + r.sentence()
	case severityValid:
	}
	return found
}
