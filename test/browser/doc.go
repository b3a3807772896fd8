// Package browser shows the page of kubectl gpu status -o html and kubectl gpu ui in a real Chromium: that it fits
// narrow and wide windows, loads nothing from elsewhere, reports no error, and is fast with 1,000 nodes.
//
// The plugin runs as its own process, against a played API server.
package browser
