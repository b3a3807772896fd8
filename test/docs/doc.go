// Package docs checks README.md and the pages in docs: links and anchors resolve, and what they name in code exists:
// targets of make, flags, fields of the API, reasons, tests and files.
package docs
