// Package resultfile keeps the results of the cases of a test in a file, so that a run that was interrupted can be
// continued, and writes them into a document.
package resultfile
